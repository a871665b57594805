"""Layouts: the record, its fields, and their text and JSON forms."""

from inspector.layout.fields import (
    DEFAULT_AXES,
    DEVICE_ORDERS,
    MOST_AXES,
    MOST_COMPILED_DEVICES,
    MOST_DEVICES,
    MOST_STEPS,
    PROCESS_COUNTS,
    TARGETS,
    default_specs,
    mesh_of,
    most_devices,
    parse_axes,
    parse_mesh,
    parse_processes,
    parse_rule,
    parse_spec,
    print_mesh,
    print_size,
    print_spec,
    specs_from_rules,
)
from inspector.layout.forms import (
    RESERVED_NAMES,
    SWITCHES,
    from_json,
    opening_fields,
    parse,
    parse_leniently,
    to_fields,
    to_query,
)
from inspector.layout.layout import Layout
