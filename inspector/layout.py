"""What to inspect: a model with its sizes, a mesh, the rules that map it there, and a target.

A Layout is frozen and valid. It has one text form, a text for each field, which the sidebar, the URL and
the command line all speak, and one JSON form for files; both go through `parse`, so that a mistake is
refused with the same sentence everywhere.

Fields: `model`, `mesh` (`2x4`), `axes` (`data,model`), `rules` (`batch=data,embed=fsdp+tensor,layer=`) or
`specs` (`W1=None.model,W2=model.None`), `target`, `steps`, `unconstrained` (`y,z`), `timeit`, `processes`,
`donate`, `trace`, and one field for each size of the model.
In a URL `,` `=` and `+` would be percent-encoded, so there `~` parts the entries, `.` the parts of an
entry, and `-` the mesh axes that split one dimension together; both ways of writing are read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from inspector import rules as rule_list
from inspector.errors import Refused, shown
from inspector.model import ModelEntry, Partitions, Size, SizeValue
from inspector.rules import Rule
from inspector.snapshot import Mesh, MeshAxis, Spec
from models import CATALOGUE

DEFAULT_MODEL = "logical_mlp"
DEFAULT_MESH = (2, 4)
DEFAULT_STEPS = 20
MOST_STEPS = 10_000
PROCESS_COUNTS = (1, 2, 4)
# JAX numbers the devices of each process from a round number on, the same in all versions supported.
DEVICE_NUMBERS_PER_PROCESS = 2048
MOST_AXES = 4
MOST_DEVICES = 512  # as many as were built and run on emulated devices of one machine
TARGETS = ("cpu", "plan")

# Names for a mesh of one to four axes whose axes are not named.
DEFAULT_AXES = {
    1: ("data",),
    2: ("data", "model"),
    3: ("data", "fsdp", "model"),
    4: ("data", "fsdp", "expert", "model"),
}

# Fields that say nothing at their default, and then are left out of every form.
_OPTIONAL_FIELDS = ("unconstrained", "timeit", "processes", "donate", "trace")
_TIMEIT = Size("timeit", False, "time steps as the guide does, too")
_DONATE = Size("donate", False, "the train step may overwrite the state that it is given")
_TRACE = Size("trace", False, "have JAX's profiler watch three more train steps")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_SIZES = (
    "model",
    "sizes",
    "mesh",
    "axes",
    "rules",
    "specs",
    "target",
    "steps",
    "unconstrained",
    *_OPTIONAL_FIELDS[1:],
)
_ENTRY_SEPARATOR = re.compile(r"[,~;\n]")


@dataclass(frozen=True)
class Layout:
    """A valid layout. `specs` is empty for models with logical axes, `rules` for the others."""

    model: str
    sizes: Mapping[str, SizeValue]
    mesh_shape: tuple[int, ...]
    axis_names: tuple[str, ...]
    rules: tuple[Rule, ...]
    specs: Partitions
    target: str
    steps: int
    unconstrained: tuple[str, ...] = ()
    timeit: bool = False
    processes: int = 1
    donate: bool = False
    trace: bool = False

    @property
    def entry(self) -> ModelEntry:
        return CATALOGUE[self.model]

    @property
    def devices(self) -> int:
        return math.prod(self.mesh_shape)

    def mesh(self) -> Mesh:
        """The mesh as a Snapshot has it: emulated devices in JAX's order, row by row.

        The processes have equal shares of them, and each numbers its own from its own base on.
        """
        share = self.devices // self.processes
        return Mesh(
            axes=tuple(
                MeshAxis(name, size)
                for name, size in zip(self.axis_names, self.mesh_shape, strict=True)
            ),
            devices=tuple(
                process * DEVICE_NUMBERS_PER_PROCESS + device
                for process in range(self.processes)
                for device in range(share)
            ),
            processes=tuple(place // share for place in range(self.devices)),
            device_kind="cpu",
        )

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "model": self.model,
            "sizes": dict(self.sizes),
            "mesh": print_mesh(self.mesh_shape),
            "axes": list(self.axis_names),
        }
        if self.entry.has_rules:
            plain["rules"] = [[name, list(axes)] for name, axes in self.rules]
        else:
            plain["specs"] = {
                place: [list(axes) if axes else None for axes in spec]
                for place, spec in self.specs.items()
            }
        plain |= {"target": self.target, "steps": self.steps}
        if self.unconstrained:
            plain["unconstrained"] = list(self.unconstrained)
        if self.timeit:
            plain["timeit"] = True
        if self.processes != 1:
            plain["processes"] = self.processes
        if self.donate:
            plain["donate"] = True
        if self.trace:
            plain["trace"] = True
        return plain

    def key(self) -> str:
        """Text that two layouts share only if they are equal."""
        return json.dumps(self.to_json(), sort_keys=True)


@dataclass(frozen=True)
class Parsed:
    """What came of some fields: a Layout, or a sentence for each field that is wrong."""

    layout: Layout | None
    problems: Mapping[str, str] = field(default_factory=dict)

    def unwrap(self) -> Layout:
        """The Layout.

        Raises:
          Refused: a field is wrong; the sentences of all of them.
        """
        if self.layout is None:
            raise Refused("; ".join(self.problems.values()))
        return self.layout


def parse(fields: Mapping[str, str]) -> Parsed:
    """Read a Layout from the text of its fields; a field that is absent has its default."""
    reader = _Reader(fields)
    model = reader.read("model", _parse_model, CATALOGUE[DEFAULT_MODEL])
    sizes = {
        size.name: reader.read(
            size.name,
            lambda text, size=size: _parse_size(text, size),
            size.default,
            needs=("model",),
        )
        for size in model.sizes
    }
    shape = reader.read("mesh", parse_mesh, DEFAULT_MESH)
    names = reader.read(
        "axes", lambda text: parse_axes(text, shape), DEFAULT_AXES[len(shape)], needs=("mesh",)
    )
    rules: tuple[Rule, ...] = ()
    specs: Partitions = {}
    needs = ("model", "mesh", "axes")
    if model.has_rules:
        rules = reader.read(
            "rules",
            lambda text: parse_rules(text, names),
            _rules_on_mesh(model.rules, names),
            needs=needs,
        )
    else:
        specs = reader.read(
            "specs",
            lambda text: parse_specs(text, model, names),
            default_specs(model, names),
            needs=needs,
        )
    target = reader.read("target", _parse_target, TARGETS[0])
    steps = reader.read("steps", _parse_steps, DEFAULT_STEPS)
    unconstrained = reader.read(
        "unconstrained", lambda text: parse_unconstrained(text, model), (), needs=("model",)
    )
    timeit = reader.read("timeit", lambda text: _parse_size(text, _TIMEIT), False)
    processes = reader.read(
        "processes", lambda text: parse_processes(text, shape), 1, needs=("mesh",)
    )
    donate = reader.read("donate", lambda text: _parse_size(text, _DONATE), False)
    trace = reader.read("trace", lambda text: _parse_size(text, _TRACE), False)
    if "model" not in reader.problems:
        reader.refuse_unknown(model)
    if reader.problems:
        return Parsed(None, reader.problems)
    return Parsed(
        Layout(
            *(model.name, sizes, shape, names, rules, specs, target, steps),
            *(unconstrained, timeit, processes, donate, trace),
        )
    )


def parse_leniently(fields: Mapping[str, str]) -> Parsed:
    """Read a Layout, with the default in place of each field that is wrong; always gives a Layout."""
    problems: dict[str, str] = {}
    kept = dict(fields)
    while (parsed := parse(kept)).layout is None:
        problems |= {name: text for name, text in parsed.problems.items() if name not in problems}
        for name in parsed.problems:
            kept.pop(name, None)
    return Parsed(parsed.layout, problems)


def from_json(value: Any, what: str = "the layout") -> Layout:
    """Read a Layout from parsed JSON.

    Raises:
      Refused: it is not a layout; the sentence names the field, the value and what is allowed.
    """
    if not isinstance(value, dict):
        raise Refused(f"{what} is {shown(value)}, but must be an object")
    fields: dict[str, str] = {}
    for name, part in value.items():
        if name == "sizes":
            if not isinstance(part, dict):
                raise Refused(f"{what}: sizes is {shown(part)}, but must be an object")
            for size_name, size_value in part.items():
                if size_name in value or size_name in _NOT_SIZES:
                    raise Refused(
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
    except Refused as refused:
        raise Refused(f"{what}: {refused}") from None


def to_fields(layout: Layout, url: bool = False) -> dict[str, str]:
    """The text of every field; with `url`, in the characters that a URL leaves as they are."""
    between, within, together = ("~", ".", "-") if url else (",", "=", "+")
    fields = {"model": layout.model, "mesh": print_mesh(layout.mesh_shape)}
    fields["axes"] = ("." if url else ",").join(layout.axis_names)
    if layout.entry.has_rules:
        fields["rules"] = between.join(
            f"{name}{within}{together.join(axes)}" for name, axes in layout.rules
        )
    else:
        fields["specs"] = between.join(
            f"{place}{within}{print_spec(spec, together)}" for place, spec in layout.specs.items()
        )
    for name, value in layout.sizes.items():
        fields[name] = print_size(value)
    fields |= {"target": layout.target, "steps": str(layout.steps)}
    if layout.unconstrained:
        fields["unconstrained"] = ("." if url else ",").join(layout.unconstrained)
    if layout.timeit:
        fields["timeit"] = "true"
    if layout.processes != 1:
        fields["processes"] = str(layout.processes)
    if layout.donate:
        fields["donate"] = "true"
    if layout.trace:
        fields["trace"] = "true"
    return fields


def to_query(layout: Layout) -> dict[str, str]:
    """The fields that differ from their defaults, for a URL that says only what was chosen."""
    fields = to_fields(layout, url=True)
    query: dict[str, str] = {}
    for name, text in fields.items():
        # A default may depend on the fields before it, so ask the parser, not a table.
        default = to_fields(parse(query).unwrap(), url=True)
        if default.get(name) != text:
            query[name] = text
    return query


def print_mesh(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def print_spec(spec: Spec, together: str = "+") -> str:
    return ".".join(together.join(axes) if axes else "None" for axes in spec)


def print_size(value: SizeValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_mesh(text: str) -> tuple[int, ...]:
    """Sizes joined by `x`.

    Raises:
      Refused: it is not that, or makes too many axes or devices.
    """
    parts = re.split(r"[x×*]", text.strip().lower())
    if not all(re.fullmatch(r"\s*[0-9]{1,9}\s*", part) for part in parts):
        raise Refused(f"mesh is {shown(text)}, but must be axis sizes joined by x, such as 2x4")
    shape = tuple(int(part) for part in parts)
    if len(shape) > MOST_AXES:
        raise Refused(
            f"mesh {print_mesh(shape)} has {len(shape)} axes, at most {MOST_AXES} are allowed"
        )
    if min(shape) < 1:
        raise Refused(f"mesh {print_mesh(shape)} has an axis of size 0, each must be at least 1")
    if math.prod(shape) > MOST_DEVICES:
        raise Refused(
            f"mesh {print_mesh(shape)} makes {math.prod(shape)} devices, "
            f"at most {MOST_DEVICES} are allowed"
        )
    return shape


def parse_axes(text: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    """A name for each axis of the mesh.

    Raises:
      Refused: a name is malformed or repeated, or there are not as many as axes.
    """
    names = tuple(part.strip() for part in re.split(r"[,.~;]", text.strip()))
    for name in names:
        _check_name(name, "axes", "a mesh axis")
    if len(set(names)) != len(names):
        raise Refused(f"axes is {shown(text)}, but every mesh axis needs a name of its own")
    if len(names) != len(shape):
        raise Refused(
            f"axes gives {len(names)} name{'s' * (len(names) != 1)} ({', '.join(names)}), "
            f"but mesh {print_mesh(shape)} has {len(shape)} ax{'e' if len(shape) > 1 else 'i'}s"
        )
    return names


def parse_rules(text: str, axis_names: tuple[str, ...]) -> tuple[Rule, ...]:
    """Rules in order: `batch=data`, to several mesh axes `embed=fsdp+tensor`, to none `embed=`.

    Raises:
      Refused: a rule is malformed or names a mesh axis that the mesh lacks.
    """
    return tuple(
        parse_rule(entry, axis_names) for entry in _ENTRY_SEPARATOR.split(text) if entry.strip()
    )


def parse_rule(text: str, axis_names: tuple[str, ...]) -> Rule:
    """One rule.

    Raises:
      Refused: it is malformed or names a mesh axis that the mesh lacks.
    """
    name, separator, rest = _split_entry(text)
    if not separator:
        raise Refused(f"rules has {shown(text)}, but a rule is a logical axis, =, and mesh axes")
    _check_name(name, "rules", "a logical axis")
    return name, _parse_axes_of_one_dimension(rest, axis_names, f"rule {name}")


def parse_specs(text: str, model: ModelEntry, axis_names: tuple[str, ...]) -> Partitions:
    """A PartitionSpec for some of the model's places: `W1=None.model,W2=model.None`.

    Raises:
      Refused: a place is unknown, or its spec does not fit it or the mesh.
    """
    specs = default_specs(model, axis_names)
    for entry in _ENTRY_SEPARATOR.split(text):
        if not entry.strip():
            continue
        place, separator, rest = _split_entry(entry)
        if place not in model.partitions or not separator:
            raise Refused(
                f"specs has {shown(entry)}, but must give PartitionSpecs "
                f"for {', '.join(model.partitions)}, such as W1=None.model"
            )
        specs[place] = parse_spec(rest, place, model, axis_names)
    return specs


def parse_spec(text: str, place: str, model: ModelEntry, axis_names: tuple[str, ...]) -> Spec:
    """The PartitionSpec of one place, a mesh axis, several or None for each dimension.

    Raises:
      Refused: it has the wrong number of dimensions, or an axis is unknown or used twice.
    """
    entries = re.split(r"[.,]", text) if text.strip() else []
    dimensions = model.partitions[place]
    if len(entries) != len(dimensions):
        raise Refused(
            f"spec {place} is {shown(text)}, but must have {len(dimensions)} "
            f"entr{'ies' if len(dimensions) > 1 else 'y'} ({', '.join(dimensions)}) "
            "joined by commas, such as " + ", ".join(["None"] * len(dimensions))
        )
    spec = tuple(
        _parse_axes_of_one_dimension(entry, axis_names, f"spec {place}") or None
        for entry in entries
    )
    used = [axis for axes in spec for axis in axes or ()]
    if len(set(used)) != len(used):
        raise Refused(f"spec {place} is {shown(text)}, but may use each mesh axis only once")
    return spec


def parse_unconstrained(text: str, model: ModelEntry) -> tuple[str, ...]:
    """The activations whose sharding constraint is off, in the model's order.

    Raises:
      Refused: the model has no such constraint.
    """
    names = {part.strip() for part in re.split(r"[,.~;]", text) if part.strip()}
    for name in sorted(names):
        if name not in model.constraints:
            raise Refused(
                f"unconstrained has {shown(name)}, but model {model.name} has constraints on "
                f"{', '.join(model.constraints) or 'nothing'}"
            )
    return tuple(name for name in model.constraints if name in names)


def parse_processes(text: str, shape: tuple[int, ...]) -> int:
    """How many processes share the devices of the mesh.

    Raises:
      Refused: not so many are allowed, or the devices cannot be shared equally among them.
    """
    if text.strip() not in map(str, PROCESS_COUNTS):
        raise Refused(
            f"processes is {shown(text)}, but must be one of {', '.join(map(str, PROCESS_COUNTS))}"
        )
    processes = int(text)
    if math.prod(shape) % processes:
        raise Refused(
            f"processes is {processes}, but must divide the {math.prod(shape)} "
            f"device{'s' * (math.prod(shape) > 1)} of mesh {print_mesh(shape)}"
        )
    return processes


def default_specs(model: ModelEntry, axis_names: tuple[str, ...]) -> dict[str, Spec]:
    """The PartitionSpecs that the model's default rules give on this mesh."""
    return specs_from_rules(model, _rules_on_mesh(model.rules, axis_names))


def specs_from_rules(model: ModelEntry, rules: tuple[Rule, ...]) -> dict[str, Spec]:
    """The PartitionSpec of each of the model's places that these rules make."""
    return {
        place: rule_list.partition_spec(logical_axes, rules)
        for place, logical_axes in model.partitions.items()
    }


class _Reader:
    """Reads fields one by one and keeps the sentence of each that is wrong."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self.fields = fields
        self.problems: dict[str, str] = {}

    def read(self, name: str, parser: Any, default: Any, needs: tuple[str, ...] = ()) -> Any:
        # What a field means hangs on those it `needs`; where one of them is wrong, say only that.
        if name not in self.fields or not self.problems.keys().isdisjoint(needs):
            return default
        try:
            return parser(self.fields[name])
        except Refused as refused:
            self.problems[name] = str(refused)
            return default

    def refuse_unknown(self, model: ModelEntry) -> None:
        known = {
            "model",
            "mesh",
            "axes",
            "target",
            "steps",
            *_OPTIONAL_FIELDS,
            *(size.name for size in model.sizes),
        }
        known.add("rules" if model.has_rules else "specs")
        for name in self.fields.keys() - known:
            self.problems[name] = (
                f"{shown(name)} is not a field of model {model.name}, "
                f"which has {', '.join(sorted(known))}"
            )


def _rules_on_mesh(rules: tuple[Rule, ...], axis_names: tuple[str, ...]) -> tuple[Rule, ...]:
    return tuple((name, axes) for name, axes in rules if set(axes) <= set(axis_names))


def _split_entry(text: str) -> tuple[str, str, str]:
    found = re.search(r"=|:|→|->|\.", text)
    if found is None:
        return text.strip(), "", ""
    return text[: found.start()].strip(), found.group(), text[found.end() :].strip()


def _parse_axes_of_one_dimension(
    text: str, axis_names: tuple[str, ...], what: str
) -> tuple[str, ...]:
    if text.strip() in ("", "None"):
        return ()
    axes = tuple(part.strip() for part in re.split(r"[+-]", text))
    for axis in axes:
        if axis not in axis_names:
            raise Refused(
                f"{what} names mesh axis {shown(axis)}, but the mesh has {', '.join(axis_names)}"
            )
    if len(set(axes)) != len(axes):
        raise Refused(f"{what} is {shown(text)}, but may use each mesh axis only once")
    return axes


def _check_name(name: str, where: str, what: str) -> None:
    if not _NAME.fullmatch(name) or name == "None":
        raise Refused(
            f"{where} has {shown(name)}, but {what} must be letters, digits and _, not only digits"
        )


def _parse_model(text: str) -> ModelEntry:
    if text not in CATALOGUE:
        raise Refused(f"model is {shown(text)}, but must be one of {', '.join(CATALOGUE)}")
    return CATALOGUE[text]


def _parse_target(text: str) -> str:
    if text not in TARGETS:
        raise Refused(f"target is {shown(text)}, but must be one of {', '.join(TARGETS)}")
    return text


def _parse_steps(text: str) -> int:
    return int(_parse_number(text, Size("steps", DEFAULT_STEPS, "", least=1, most=MOST_STEPS)))


def _parse_size(text: str, size: Size) -> SizeValue:
    if isinstance(size.default, bool):
        if text.strip().lower() in ("true", "1", "yes", "on"):
            return True
        if text.strip().lower() in ("false", "0", "no", "off"):
            return False
        raise Refused(f"{size.name} is {shown(text)}, but must be true or false")
    if isinstance(size.default, str):
        if text not in size.choices:
            raise Refused(
                f"{size.name} is {shown(text)}, but must be one of {', '.join(size.choices)}"
            )
        return text
    return _parse_number(text, size)


def _parse_number(text: str, size: Size) -> int | float:
    kind = type(size.default)
    try:
        # Python also reads " 8 " and "nan", which the bounds below refuse, "1_000" and digits that
        # are not ASCII, which nobody else reads.
        value = kind(text) if text.isascii() and "_" not in text else None
    except (ValueError, OverflowError):
        value = None
    if value is None or not size.least <= value <= size.most:
        noun = "a whole number" if kind is int else "a number"
        raise Refused(
            f"{size.name} is {shown(text)}, but must be {noun} from {size.least:g} to {size.most:,.10g}"
        )
    return value


def _text_of_scalar(value: Any, what: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        return print_size(value)
    raise Refused(f"{what} is {shown(value)}, but must be text or a number")


def _text_of_rules(value: list[Any] | dict[str, Any], what: str) -> str:
    pairs = value.items() if isinstance(value, dict) else value
    entries = []
    for pair in pairs:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not isinstance(pair[0], str):
            raise Refused(
                f"{what}: rules has {shown(pair)}, but a rule is [logical axis, mesh axes]"
            )
        name, axes = pair
        _check_name(name, f"{what}: rules", "a logical axis")
        entries.append(f"{name}={_text_of_axes(axes, f'{what}: rule {name}')}")
    return ",".join(entries)


def _named(name: str) -> str:
    return name if _NAME.fullmatch(name) else shown(name)


def _text_of_spec(value: Any, what: str) -> str:
    if not isinstance(value, list):
        raise Refused(f"{what} is {shown(value)}, but must be a list with an entry a dimension")
    return ".".join(_text_of_axes(entry, what) or "None" for entry in value)


def _text_of_axes(value: Any, what: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(axis, str) for axis in value):
        return "+".join(value)
    raise Refused(f"{what} is {shown(value)}, but must be a mesh axis, a list of them, or null")
