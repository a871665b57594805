"""Layouts: the record, its fields, and their text and JSON forms."""

from inspector.layout.fields import (
    AXIS_TYPES,
    DEVICE_ORDERS,
    MOST_AXES,
    MOST_COMPILED_DEVICES,
    MOST_DEVICES,
    MOST_STEPS,
    PROCESS_COUNTS,
    TARGETS,
    default_names,
    default_specs,
    left_out_rules,
    mesh_of,
    most_devices,
    parse_axes,
    parse_axis_types,
    parse_given_mesh,
    parse_mesh,
    parse_processes,
    parse_rule,
    parse_spec,
    parse_spec_row,
    parse_unsafe_compiler_options,
    print_mesh,
    print_row_spec,
    print_size,
    print_spec,
    specs_from_rules,
    split_axes,
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
from inspector.layout.mesh_shapes import LARGE_AXES
