"""The fields of a Layout: a table with the text form, default and dependencies of each.

Sidebar, URL, command line and JSON all read layouts by `parse`, so they report the same errors. To add a
field, add an attribute to `Layout` and an entry to `FIELDS`.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from inspector.layout import fields as texts
from inspector.layout.layout import Layout
from inspector.machines import targets
from inspector.model import ModelEntry, Size
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.records.snapshot import Snapshot
from inspector.sharding.once import once_per_snapshot
from inspector.text.errors import InvalidInput, shown
from inspector.text.field_parser import FieldParser, Parsed

# Between the mesh axes of one dimension, and the separators of lists in the text of each field.
_TOGETHER = "+"
_SEPARATORS = {
    **{"mesh": "x", "axes": ",", "axis_types": ",", "unconstrained": ",", "optimizer_axes": ","},
    **{"rules": ",=+", "specs": ",=.+", "state_specs": ";=.+", "compiler_options": ",="},
}

# Values of the fields read so far, by name; `model` is a ModelEntry.
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Separators:
    """Characters of a text form: between entries, parts of an entry, mesh axes and names, and a colon."""

    entries: str
    assign: str
    axes: str
    names: str
    colon: str


PLAIN = Separators(",", "=", "+", ",", ":")
# `,`, `=`, `+` and `:` would be percent-encoded in a URL.
URL = Separators("~", ".", "-", ".", ".")


@dataclass(frozen=True)
class LayoutField:
    """One field of a layout.

    Attributes:
      parse: returns the value of a text, given the values of the fields before it.
      default: returns the default, given these values.
      text: returns the text of a value.
      needs: fields that must be valid, otherwise this one is not parsed.
      attribute: of the Layout; empty if it has the name of the field.
      applies: whether a model has the field.
      optional: whether a file leaves it out at its default.
    """

    name: str
    parse: Callable[[str, Values], Any]
    default: Callable[[Values], Any]
    text: Callable[[Any, Separators], str] = lambda value, _: texts.print_size(value)
    needs: tuple[str, ...] = ()
    attribute: str = ""
    applies: Callable[[ModelEntry], bool] = lambda _: True
    optional: bool = False


def _field_of_size(size: Size, needs: tuple[str, ...] = (), optional: bool = True) -> LayoutField:
    return LayoutField(
        size.name,
        lambda text, _: texts.parse_size(text, size),
        lambda _: size.default,
        needs=needs,
        optional=optional,
    )


# Options of a run that are off by default.
SWITCHES = (
    Size("timeit", False, "time steps with timeit, as the Flax guide does"),
    Size("donate", False, "the train step may reuse the memory of its input state"),
    Size("trace", False, "record three more train steps with JAX's profiler"),
)

FIELDS = (
    LayoutField(
        "model",
        lambda text, _: texts.parse_model(text),
        lambda _: CATALOGUE[texts.DEFAULT_MODEL],
        lambda entry, _: entry.name,
    ),
    LayoutField("target", lambda text, _: texts.parse_target(text), lambda _: texts.TARGETS[0]),
    LayoutField(
        "mesh",
        lambda text, values: _mesh_for(text, values["target"]),
        lambda values: texts.default_mesh(values["model"], values["target"]),
        lambda shape, _: texts.print_mesh(shape),
        attribute="mesh_shape",
    ),
    LayoutField(
        "axes",
        lambda text, values: texts.parse_axes(text, values["mesh"]),
        lambda values: texts.default_axes(values["model"], len(values["mesh"])),
        lambda names, separators: separators.names.join(names),
        needs=("mesh",),
        attribute="axis_names",
    ),
    LayoutField(
        "axis_types",
        lambda text, values: texts.parse_axis_types(text, values["axes"]),
        lambda values: texts.default_axis_types(values["model"], values["axes"]),
        lambda types, separators: separators.names.join(types) or texts.AXIS_TYPES[0],
        needs=("mesh", "axes"),
        optional=True,
    ),
    LayoutField(
        "rules",
        lambda text, values: texts.parse_rules(text, values["axes"]),
        lambda values: texts.rules_on_mesh(values["model"].rules, values["axes"]),
        lambda rules, separators: separators.entries.join(
            f"{name}{separators.assign}{separators.axes.join(axes)}" for name, axes in rules
        ),
        needs=("model", "mesh", "axes"),
        applies=lambda model: model.has_rules,
    ),
    LayoutField(
        "specs",
        lambda text, values: texts.parse_specs(text, values["model"], values["axes"]),
        lambda values: texts.default_specs(values["model"], values["axes"]),
        lambda specs, separators: separators.entries.join(
            f"{place}{separators.assign}{texts.print_spec(spec, separators.axes)}"
            for place, spec in specs.items()
        ),
        needs=("model", "mesh", "axes"),
        applies=lambda model: not model.has_rules and model.state_specs is None,
    ),
    LayoutField(
        "state_specs",
        lambda text, values: texts.parse_state_specs(text, values["axes"]),
        lambda values: values["model"].state_specs or (),
        lambda rows, _: texts.print_state_specs(rows),
        needs=("model", "mesh", "axes"),
        applies=lambda model: model.state_specs is not None,
    ),
    LayoutField(
        "optimizer_axes",
        lambda text, values: texts.parse_optimizer_axes(text, values["axes"]),
        lambda _: (),
        lambda names, separators: separators.names.join(names),
        needs=("mesh", "axes"),
        optional=True,
    ),
    LayoutField("steps", lambda text, _: texts.parse_steps(text), lambda _: texts.DEFAULT_STEPS),
    LayoutField(
        "unconstrained",
        lambda text, values: texts.parse_unconstrained(text, values["model"]),
        lambda _: (),
        lambda names, separators: separators.names.join(names),
        needs=("model",),
        optional=True,
    ),
    *(_field_of_size(switch) for switch in SWITCHES),
    LayoutField(
        "processes",
        lambda text, values: texts.parse_processes(text, values["mesh"], values["target"]),
        lambda _: 1,
        needs=("mesh",),
        optional=True,
    ),
    _field_of_size(
        Size(
            "device_order",
            texts.DEVICE_ORDERS[0],
            "order of a mesh on the devices of a TPU slice",
            choices=texts.DEVICE_ORDERS,
        )
    ),
    LayoutField(
        "compiler_options",
        lambda text, _: texts.parse_compiler_options(text),
        lambda _: (),
        lambda options, separators: separators.entries.join(
            f"{name}{separators.assign}{value.replace(':', separators.colon)}" for name, value in options
        ),
        optional=True,
    ),
)

# Names that a size of a model must not have.
RESERVED_NAMES = frozenset({field.name for field in FIELDS} | {"sizes"})


@functools.lru_cache(maxsize=64)
def fields_of(model: ModelEntry) -> tuple[LayoutField, ...]:
    """Return the fields of layouts of this model, its sizes last."""
    sizes = (_field_of_size(size, ("model",), optional=False) for size in model.sizes)
    return (*(field for field in FIELDS if field.applies(model)), *sizes)


def _with_axis_types(fields: Mapping[str, str]) -> Mapping[str, str]:
    """Return the fields with the types of `axes` in `axis_types`: `data:explicit,model` has both."""
    try:
        names, types = texts.split_axes(fields.get("axes", ""))
    except InvalidInput:
        return fields  # the error is reported when `axes` is parsed
    return fields if types is None else {**fields, "axes": names, "axis_types": types}


def parse(fields: Mapping[str, str]) -> Parsed[Layout]:
    """Read a Layout from the text of its fields. A missing field has its default."""
    parser = FieldParser(_with_axis_types(fields))
    values: dict[str, Any] = {}

    def read(field: LayoutField) -> None:
        values[field.name] = parser.parse(
            field.name, lambda text: field.parse(text, values), field.default(values), field.needs
        )
        if field.name == "target" and "target" in parser.problems:
            values["target"] = "plan"  # which allows the largest mesh

    read(FIELDS[0])
    model: ModelEntry = values["model"]
    for field in fields_of(model)[1:]:
        read(field)
    if "model" not in parser.problems:
        parser.reject_unknown(set(values), f"model {model.name}")
    if parser.problems:
        return Parsed(None, parser.problems)
    attributes: dict[str, Any] = {"rules": (), "specs": {}}
    attributes |= {
        field.attribute or field.name: values[field.name] for field in FIELDS if field.name in values
    }
    attributes["model"] = model.name
    attributes["sizes"] = {size.name: values[size.name] for size in model.sizes}
    return Parsed(Layout(**attributes))


def parse_leniently(fields: Mapping[str, str]) -> Parsed[Layout]:
    """Read a Layout, with the default for each wrong field. The value is never None."""
    problems: dict[str, str] = {}
    kept = dict(fields)
    while (parsed := parse(kept)).value is None:
        problems |= {name: text for name, text in parsed.problems.items() if name not in problems}
        for name in parsed.problems:
            kept.pop(name, None)
    return Parsed(parsed.value, problems)


def from_json(value: Any, what: str = "the layout") -> Layout:
    """Read a Layout from parsed JSON; errors call it `what`.

    Raises:
      InvalidInput: it is not a layout.
    """
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} is {shown(value)}, but must be an object")
    fields: dict[str, str] = {}
    for name, part in value.items():
        if name == "sizes":
            if not isinstance(part, dict):
                raise InvalidInput(f"{what}: sizes is {shown(part)}, but must be an object")
            for size_name, size_value in part.items():
                if size_name in value or size_name in RESERVED_NAMES:
                    raise InvalidInput(
                        f"{what}: sizes has {shown(size_name)}, but must have each size of the model once"
                    )
                fields[size_name] = _text_of(size_value, "", f"{what}: {_named(size_name)}")
        else:
            fields[name] = _text_of(part, _SEPARATORS.get(name, ""), f"{what}: {_named(name)}")
    try:
        return parse(fields).unwrap()
    except InvalidInput as refused:
        raise InvalidInput(f"{what}: {refused}") from None


def to_fields(layout: Layout) -> dict[str, str]:
    """Return the text of every field. Optional fields are left out at their default."""
    return _texts(layout, PLAIN, lambda field, is_default: not (field.optional and is_default))


def opening_fields() -> dict[str, str]:
    """Return the fields of the first layout: the user's model, if the program was started with one."""
    own = next((name for name, entry in CATALOGUE.items() if entry.own), None)
    return {} if own is None else {"model": own}


def to_query(layout: Layout) -> dict[str, str]:
    """Return the fields that differ from their defaults, in characters that a URL keeps."""
    # Without `model`, a link would open the user's model if the program was started with one.
    always = set(opening_fields())
    return _texts(layout, URL, lambda field, is_default: field.name in always or not is_default)


def _texts(
    layout: Layout, separators: Separators, included: Callable[[LayoutField, bool], bool]
) -> dict[str, str]:
    values: dict[str, Any] = dict(layout.sizes) | {"model": layout.entry}
    fields = {}
    for field in fields_of(layout.entry):
        # A default depends on the values of the fields before it.
        default = field.default(values)
        if field.name not in values:
            values[field.name] = getattr(layout, field.attribute or field.name)
        value = values[field.name]
        if included(field, value == default):
            fields[field.name] = field.text(value, separators)
    return fields


def _named(name: str) -> str:
    return name if texts.NAME.fullmatch(name) else shown(name)


def _text_of(value: Any, separators: str, what: str, refused: str = "") -> str:
    """Return the text of a value in JSON; errors call it `what`.

    Args:
      separators: one for each level of lists, the outermost first. An object is a list of pairs. A dimension
        without mesh axes is null or an empty list.
      refused: characters that text must not have, because they separate the entries of the field.
    """
    if isinstance(value, str):
        if any(character in refused for character in value):
            raise InvalidInput(f"{what} has {shown(value)}, but must have none of {shown(refused)} in it")
        return value
    if isinstance(value, (bool, int, float)):
        return texts.print_size(value)
    if isinstance(value, dict) and separators:
        value = [*value.items()]
    if value is None and separators == _TOGETHER:
        value = []
    if not isinstance(value, (list, tuple)) or not separators:
        lists = " or a list" if separators else ""
        raise InvalidInput(f"{what} is {shown(value)}, but must be text, a number{lists}")
    separator, inner = separators[0], separators[1:]
    refused = refused or {",": ",~;\n", ";": ";\n"}.get(separator, "")
    joined = separator.join(_text_of(part, inner, what, refused) for part in value)
    return joined or "None" * (separators == _TOGETHER)


def _mesh_for(text: str, target: str) -> tuple[int, ...]:
    shape = texts.parse_mesh(text, texts.most_devices(target))
    if targets.is_target(target):
        targets.require_size(targets.parse(target), shape)
    return shape


@once_per_snapshot
def layout_of(snapshot: Snapshot) -> Layout | None:
    """Return the layout of a Snapshot, or None if it has no valid one."""
    if snapshot.layout is None:
        return None
    try:
        return from_json(snapshot.layout)
    except InvalidInput:
        return None
