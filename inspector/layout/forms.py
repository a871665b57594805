"""The forms of a whole Layout: a text for each field, which sidebar, URL and command line speak, and JSON.

All go through `parse`, so that a mistake is refused with the same sentence everywhere.
Fields: `model`, `mesh` (`2x4`), `axes` (`data,model`), `rules` (`batch=data,embed=fsdp+tensor,layer=`) or
`specs` (`W1=None.model,W2=model.None`), `target`, `steps`, `unconstrained` (`y,z`), `timeit`, `processes`,
`donate`, `trace`, and one field for each size of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inspector.core.errors import InvalidInput, shown
from inspector.core.field_parser import FieldParser, Parsed
from inspector.core.rules import Rule
from inspector.layout import fields as texts
from inspector.layout.layout import OPTIONAL_FIELDS, Layout
from inspector.machines import targets
from inspector.model import ModelEntry, Partitions, Size, own_model
from inspector.models.catalogue import CATALOGUE

# What a run does besides, if it is to.
SWITCHES = (
    Size("timeit", False, "time steps as the guide does, too"),
    Size("donate", False, "the train step may overwrite the state that it is given"),
    Size("trace", False, "have JAX's profiler watch three more train steps"),
)
_DEVICE_ORDER = Size(
    "device_order",
    texts.DEVICE_ORDERS[0],
    "how a mesh lies on the devices of a TPU slice",
    choices=texts.DEVICE_ORDERS,
)


def parse(fields: Mapping[str, str]) -> Parsed[Layout]:
    """Read a Layout from the text of its fields; a field that is absent has its default."""
    parser = FieldParser(fields)
    model = parser.parse("model", texts.parse_model, CATALOGUE[texts.DEFAULT_MODEL])
    sizes = {
        size.name: parser.parse(
            size.name,
            lambda text, size=size: texts.parse_size(text, size),
            size.default,
            requires=("model",),
        )
        for size in model.sizes
    }
    target = parser.parse("target", texts.parse_target, texts.TARGETS[0])
    # What a mesh may be hangs on the target; where that is wrong, any mesh may be meant.
    meant = "plan" if "target" in parser.problems else target
    shape = parser.parse("mesh", lambda text: _mesh_for(text, meant), texts.mesh_of(target))
    names = parser.parse(
        "axes",
        lambda text: texts.parse_axes(text, shape),
        texts.DEFAULT_AXES[len(shape)],
        requires=("mesh",),
    )
    rules: tuple[Rule, ...] = ()
    specs: Partitions = {}
    needs = ("model", "mesh", "axes")
    if model.has_rules:
        rules = parser.parse(
            "rules",
            lambda text: texts.parse_rules(text, names),
            texts.rules_on_mesh(model.rules, names),
            requires=needs,
        )
    else:
        specs = parser.parse(
            "specs",
            lambda text: texts.parse_specs(text, model, names),
            texts.default_specs(model, names),
            requires=needs,
        )
    steps = parser.parse("steps", texts.parse_steps, texts.DEFAULT_STEPS)
    unconstrained = parser.parse(
        "unconstrained",
        lambda text: texts.parse_unconstrained(text, model),
        (),
        requires=("model",),
    )
    processes = parser.parse(
        "processes",
        lambda text: texts.parse_processes(text, shape, target),
        1,
        requires=("mesh",),
    )
    switches = {
        switch.name: parser.parse(
            switch.name, lambda text, switch=switch: texts.parse_size(text, switch), False
        )
        for switch in SWITCHES
    }
    device_order = parser.parse(
        "device_order", lambda text: texts.parse_size(text, _DEVICE_ORDER), _DEVICE_ORDER.default
    )
    if "model" not in parser.problems:
        parser.reject_unknown(_known_fields(model), f"model {model.name}")
    if parser.problems:
        return Parsed(None, parser.problems)
    return Parsed(
        Layout(
            *(model.name, sizes, shape, names, rules, specs, target, steps),
            unconstrained=unconstrained,
            processes=processes,
            device_order=device_order,
            **switches,
        )
    )


def parse_leniently(fields: Mapping[str, str]) -> Parsed[Layout]:
    """Read a Layout, with the default in place of each field that is wrong; always gives a Layout."""
    problems: dict[str, str] = {}
    kept = dict(fields)
    while (parsed := parse(kept)).value is None:
        problems |= {name: text for name, text in parsed.problems.items() if name not in problems}
        for name in parsed.problems:
            kept.pop(name, None)
    return Parsed(parsed.value, problems)


def from_json(value: Any, what: str = "the layout") -> Layout:
    """Read a Layout from parsed JSON.

    Raises:
      InvalidInput: it is not a layout; the sentence names the field, the value and what is allowed.
    """
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} is {shown(value)}, but must be an object")
    fields: dict[str, str] = {}
    for name, part in value.items():
        if name == "sizes":
            if not isinstance(part, dict):
                raise InvalidInput(f"{what}: sizes is {shown(part)}, but must be an object")
            for size_name, size_value in part.items():
                if size_name in value or size_name in own_model.NOT_SIZES:
                    raise InvalidInput(
                        f"{what}: sizes has {shown(size_name)}, but sizes of the model go there, "
                        "each of them once"
                    )
                fields[size_name] = _text_of_scalar(size_value, f"{what}: {_named(size_name)}")
        elif name == "mesh" and isinstance(part, list):
            fields[name] = "x".join(_text_of_scalar(size, f"{what}: mesh") for size in part)
        elif name in ("axes", "unconstrained") and isinstance(part, list):
            fields[name] = ",".join(_text_of_scalar(item, f"{what}: {name}") for item in part)
        elif name == "rules" and isinstance(part, (list, dict)):
            fields[name] = _text_of_rules(part, what)
        elif name == "specs" and isinstance(part, dict):
            fields[name] = ",".join(
                f"{place}={_text_of_spec(spec, f'{what}: specs.{_named(place)}')}"
                for place, spec in part.items()
            )
        else:
            fields[name] = _text_of_scalar(part, f"{what}: {_named(name)}")
    try:
        return parse(fields).unwrap()
    except InvalidInput as refused:
        raise InvalidInput(f"{what}: {refused}") from None


def to_fields(layout: Layout, url: bool = False) -> dict[str, str]:
    """The text of every field; with `url`, in the characters that a URL leaves as they are."""
    between, within, together = ("~", ".", "-") if url else (",", "=", "+")
    # The target comes before the mesh, whose default depends on it.
    fields = {"model": layout.model, "target": layout.target}
    fields["mesh"] = texts.print_mesh(layout.mesh_shape)
    fields["axes"] = ("." if url else ",").join(layout.axis_names)
    if layout.entry.has_rules:
        fields["rules"] = between.join(
            f"{name}{within}{together.join(axes)}" for name, axes in layout.rules
        )
    else:
        fields["specs"] = between.join(
            f"{place}{within}{texts.print_spec(spec, together)}"
            for place, spec in layout.specs.items()
        )
    for name, value in layout.sizes.items():
        fields[name] = texts.print_size(value)
    fields["steps"] = str(layout.steps)
    for name, value in layout.optional().items():
        parted = ("." if url else ",").join
        fields[name] = parted(value) if isinstance(value, tuple) else texts.print_size(value)
    return fields


def opening_fields() -> dict[str, str]:
    """The fields of the layout to begin with: the model that the program was started with, if any."""
    own = next((name for name, entry in CATALOGUE.items() if entry.own), None)
    return {} if own is None else {"model": own}


def to_query(layout: Layout) -> dict[str, str]:
    """The fields that differ from their defaults, for a URL that says only what was chosen."""
    fields = to_fields(layout, url=True)
    query: dict[str, str] = {}
    for name, text in fields.items():
        if name == "model" and opening_fields():
            # What no model in a link means would be another one here and elsewhere.
            query[name] = text
        # A default may depend on the fields before it, so ask the parser, not a table.
        default = to_fields(parse(query).unwrap(), url=True)
        if default.get(name) != text:
            query[name] = text
    return query


def _text_of_scalar(value: Any, what: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        return texts.print_size(value)
    raise InvalidInput(f"{what} is {shown(value)}, but must be text or a number")


def _text_of_rules(value: list[Any] | dict[str, Any], what: str) -> str:
    pairs = value.items() if isinstance(value, dict) else value
    entries = []
    for pair in pairs:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not isinstance(pair[0], str):
            raise InvalidInput(
                f"{what}: rules has {shown(pair)}, but a rule is [logical axis, mesh axes]"
            )
        name, axes = pair
        texts.check_name(name, f"{what}: rules", "a logical axis")
        entries.append(f"{name}={_text_of_axes(axes, f'{what}: rule {name}')}")
    return ",".join(entries)


def _named(name: str) -> str:
    return name if texts.NAME.fullmatch(name) else shown(name)


def _text_of_spec(value: Any, what: str) -> str:
    if not isinstance(value, list):
        raise InvalidInput(
            f"{what} is {shown(value)}, but must be a list with an entry a dimension"
        )
    return ".".join(_text_of_axes(entry, what) or "None" for entry in value)


def _text_of_axes(value: Any, what: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(axis, str) for axis in value):
        return "+".join(value)
    raise InvalidInput(
        f"{what} is {shown(value)}, but must be a mesh axis, a list of them, or null"
    )


def _mesh_for(text: str, target: str) -> tuple[int, ...]:
    shape = texts.parse_mesh(text, texts.most_devices(target))
    if targets.is_target(target):
        targets.require_size(targets.parse(target), shape)
    return shape


def _known_fields(model: ModelEntry) -> set[str]:
    always = {"model", "mesh", "axes", "target", "steps", *OPTIONAL_FIELDS}
    return {*always, "rules" if model.has_rules else "specs", *(size.name for size in model.sizes)}
