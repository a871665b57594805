"""Parse and print the values of a Layout's fields.

The command line has `embed=fsdp+tensor,batch=data`. A URL would percent-encode `,`, `=` and `+`, so it has
`embed.fsdp-tensor~batch.data`. Both forms are parsed.
"""

import contextlib
import itertools
import math
import re
from collections.abc import Sequence

from inspector.layout.mesh_shapes import LARGE_AXES, mesh_shape
from inspector.machines import compiler_options, targets
from inspector.model import ModelEntry, Partitions, Size, SizeValue, own_model
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.records.snapshot import Spec
from inspector.sharding import rules as rule_list
from inspector.sharding.rules import Rule
from inspector.sharding.state_specs import LEAST_BYTES, MOST_ROWS, Fsdp, SpecRow, check_pattern
from inspector.text.errors import InvalidInput, require_one_of, shown

DEFAULT_MODEL = "logical_mlp"
DEFAULT_MESH = (2, 4)
DEFAULT_STEPS = 20
MOST_STEPS = 10_000
PROCESS_COUNTS = (1, 2, 4)
MOST_AXES = 16  # the meshes of MaxText have 13
MOST_DEVICES = 512  # emulated devices that were tested on one machine
MOST_COMPILED_DEVICES = targets.MOST_DEVICES
LOCAL = "local"  # the devices that JAX finds on this machine
TARGETS = ("cpu", LOCAL, "plan")
# That of `jax.devices()`, or that of `jax.experimental.mesh_utils.create_device_mesh`, which maps mesh axes
# to axes of the torus.
DEVICE_ORDERS = ("row-major", "torus")
AXIS_TYPES = ("auto", "explicit")

MOST_RULES = 250  # the editor draws each of them; the longest of the published lists has 76
MOST_OPTIONS = 100  # options of the compiler

# The default bound of sizes: JSON keeps every whole number up to it.
_LARGEST = 2**53
_LONGEST_TEXT = 200

# Sizes that change the work of a step, and sizes of the training. The others are those of the model.
WORK_SIZES = ("batch", "seq")
TRAINING_SIZES = (
    "optimizer",
    "learning_rate",
    "loss",
    "dtype",
    "weight_dtype",
    "optimizer_dtype",
    "remat",
    "accumulate",
)

_DEFAULT_AXES = {
    1: ("data",),
    2: ("data", "model"),
    3: ("data", "fsdp", "model"),
    4: ("data", "fsdp", "expert", "model"),
}


NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENTRY_SEPARATOR = re.compile(r"[,~;\n]")
_ROW_SEPARATOR = re.compile(r"[;\n]")
_FSDP = re.compile(r"\s*fsdp\(\s*(?P<axes>[^,()]*?)\s*(,\s*(min_bytes=)?(?P<least>[0-9]{1,15})\s*)?\)\s*")


def default_names(count: int) -> tuple[str, ...]:
    """Return default names for `count` mesh axes: usual ones, then `axis_5`, `axis_6` and so on."""
    further = (f"axis_{number}" for number in range(LARGE_AXES + 1, count + 1))
    return (*_DEFAULT_AXES[min(count, LARGE_AXES)], *further)


def print_mesh(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def print_spec(spec: Spec, together: str = "+") -> str:
    return ".".join(together.join(axes) if axes else "None" for axes in spec)


def print_size(value: SizeValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_mesh(text: str, most: int = MOST_DEVICES, most_axes: int = MOST_AXES) -> tuple[int, ...]:
    """Return axis sizes joined by `x`, with at most `most` devices.

    Raises:
      InvalidInput: the text is malformed, or has too many axes or devices.
    """
    parts = re.split(r"[x×*]", text.strip().lower())
    if not all(re.fullmatch(r"\s*[0-9]{1,18}\s*", part) for part in parts):
        raise InvalidInput(f"mesh is {shown(text)}, but must be axis sizes joined by x, such as 2x4")
    shape = tuple(int(part) for part in parts)
    if len(shape) > most_axes:
        raise InvalidInput(f"mesh {print_mesh(shape)} has {len(shape)} axes, at most {most_axes} are allowed")
    if min(shape) < 1:
        raise InvalidInput(f"mesh {print_mesh(shape)} has an axis of size 0, each must be at least 1")
    if math.prod(shape) > most:
        raise InvalidInput(
            f"mesh {print_mesh(shape)} makes {math.prod(shape):,} devices, at most {most:,} are allowed"
        )
    return shape


def most_devices(target: str) -> int:
    """Return the largest number of devices of a mesh; it is smaller for devices that run programs."""
    return MOST_DEVICES if target in ("cpu", LOCAL) else MOST_COMPILED_DEVICES


def mesh_of(target: str, axes: int = len(DEFAULT_MESH)) -> tuple[int, ...]:
    """Return the most even mesh with all devices of a target, smaller axes first.

    Emulated devices are as many as in `DEFAULT_MESH`. The slices of a target are along the first axis: alone
    in a mesh of 3 axes or more, else with a part of each slice. Axes after `LARGE_AXES` have size 1.
    """
    if axes > LARGE_AXES:
        return (*mesh_of(target, LARGE_AXES), *(1,) * (axes - LARGE_AXES))
    machine = targets.parse(target) if targets.is_target(target) else None
    if machine is None:
        return mesh_shape(math.prod(DEFAULT_MESH), axes)
    slices = machine.slices
    if slices > 1 and axes > 2:
        return (slices, *mesh_shape(machine.devices // slices, axes - 1))
    first, *others = mesh_shape(machine.devices // slices, axes)
    return (first * slices, *others)


def default_mesh(model: ModelEntry, target: str) -> tuple[int, ...]:
    """Return the mesh of the model if the target has as many devices, else the most even mesh.

    It has as many axes as the model's mesh, or as the model names, at most `MOST_AXES`.
    """
    own = tuple(axis.size for axis in model.mesh)
    machine = targets.parse(target) if targets.is_target(target) else None
    if own and (machine is None or machine.devices == math.prod(own)):
        return own
    usual = default_names(len(DEFAULT_MESH))
    count = len(usual) if set(model.mesh_axes) <= set(usual) else len(model.mesh_axes)
    return mesh_of(target, len(own) or min(count, MOST_AXES))


def default_axes(model: ModelEntry, count: int) -> tuple[str, ...]:
    """Return names for `count` mesh axes: those of the model's mesh if it has as many.

    Else the first that the model names, after others if it has fewer.
    """
    own = tuple(axis.name for axis in model.mesh)
    if len(own) == count:
        return own
    usual, named = default_names(count), model.mesh_axes[:count]
    if set(model.mesh_axes) <= set(usual):
        return usual
    spare = (name for name in default_names(MOST_AXES) if name not in named)
    return (*itertools.islice(spare, count - len(named)), *named)


def left_out_rules(
    model: ModelEntry, rules: tuple[Rule, ...], axis_names: tuple[str, ...]
) -> tuple[Rule, ...]:
    """Return the rules of a user's model that name unknown mesh axes, if no rule replaces them."""
    if not model.own:
        return ()
    ruled = {name for name, _ in rules}
    return tuple(
        (name, axes) for name, axes in model.rules if name not in ruled and not set(axes) <= set(axis_names)
    )


def default_axis_types(model: ModelEntry, axis_names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the types of the axes of the model's mesh; auto for other axes. Empty if all are auto."""
    own = {axis.name: axis.type for axis in model.mesh}
    types = tuple(own.get(name, AXIS_TYPES[0]) for name in axis_names)
    return types if "explicit" in types else ()


def parse_axes(text: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    """Return a name for each axis of the mesh.

    Raises:
      InvalidInput: a name is malformed or repeated, or the number of names is wrong.
    """
    names = tuple(part.strip() for part in re.split(r"[,.~;]", split_axes(text.strip())[0]))
    for name in names:
        check_name(name, "axes", "a mesh axis")
    if len(set(names)) != len(names):
        raise InvalidInput(f"axes is {shown(text)}, but names of mesh axes must differ")
    if len(names) != len(shape):
        raise InvalidInput(
            f"axes gives {len(names)} name{'s' * (len(names) != 1)} ({', '.join(names)}), "
            f"but mesh {print_mesh(shape)} has {len(shape)} ax{'e' if len(shape) > 1 else 'i'}s"
        )
    return names


def parse_given_mesh(
    mesh: str | None, axes: str | None, most: int, most_axes: int
) -> tuple[tuple[str, int], ...] | None:
    """Return name and size of each mesh axis, for a program whose text names no mesh.

    Args:
      mesh: sizes such as 2x4, None or empty if the user gives no mesh.
      axes: names such as data,model. By default `axis_0`, `axis_1` …

    Raises:
      InvalidInput: one of them is malformed, or there are names without sizes.
    """
    if not mesh:
        if axes:
            raise InvalidInput(f"axes is {shown(axes)}, but needs mesh with the size of each axis")
        return None
    shape = parse_mesh(mesh, most, most_axes)
    if axes:
        return tuple(zip(parse_axes(axes, shape), shape, strict=True))
    return tuple((f"axis_{number}", size) for number, size in enumerate(shape))


def split_axes(text: str) -> tuple[str, str | None]:
    """Split `data:explicit,model` into the names and the types of the axes, both joined by commas.

    The types are None if all axes are without one. An axis without a type is auto.

    Raises:
      InvalidInput: a type is unknown.
    """
    if ":" not in text:
        return text, None
    parts = [part.partition(":") for part in re.split(r"[,.~;]", text)]
    types = [_axis_type(kind or AXIS_TYPES[0], "axes", text) for _, _, kind in parts]
    return ",".join(name.strip() for name, _, _ in parts), ",".join(types)


def parse_axis_types(text: str, axis_names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the type of each mesh axis. The result is empty if all are auto, as for the text `auto`.

    Raises:
      InvalidInput: a type is unknown, or the number of types is wrong.
    """
    if text.strip() == AXIS_TYPES[0]:
        return ()
    types = tuple(_axis_type(part, "axis_types", text) for part in re.split(r"[,.~;]", text))
    if len(types) != len(axis_names):
        raise InvalidInput(
            f"axis_types gives {len(types)} type{'s' * (len(types) != 1)} ({', '.join(types)}), "
            f"but must give one for each mesh axis ({', '.join(axis_names)})"
        )
    return types if "explicit" in types else ()


def _axis_type(text: str, field: str, whole: str) -> str:
    """Return one of `AXIS_TYPES`. `field` and its `whole` value are for the error."""
    kind = text.strip().lower()
    if kind == "manual":
        raise InvalidInput(
            f"{field} has the type manual, but must have {' or '.join(AXIS_TYPES)}: an axis is manual only "
            "inside of jax.shard_map, which the code of a model calls"
        )
    if kind not in AXIS_TYPES:
        raise InvalidInput(
            f"{field} is {shown(whole)} with the type {shown(kind)}, but a type must be "
            f"{' or '.join(AXIS_TYPES)}"
        )
    return kind


def parse_rules(text: str, axis_names: tuple[str, ...]) -> tuple[Rule, ...]:
    """Return rules in order: `batch=data`, with several mesh axes `embed=fsdp+tensor`, with none `embed=`.

    Raises:
      InvalidInput: a rule is malformed or names a mesh axis that the mesh lacks.
    """
    entries = _entries(text, "rules", _ENTRY_SEPARATOR, MOST_RULES)
    return tuple(parse_rule(entry, axis_names) for entry in entries)


def _entries(text: str, field: str, separator: re.Pattern[str], most: int) -> list[str]:
    """Return the entries of a field that are not blank.

    Raises:
      InvalidInput: there are more than `most`.
    """
    entries = [entry for entry in separator.split(text) if entry.strip()]
    if len(entries) > most:
        raise InvalidInput(f"{field} has {len(entries):,} entries, but must have at most {most:,}")
    return entries


def parse_rule(text: str, axis_names: tuple[str, ...]) -> Rule:
    """Return one rule.

    Raises:
      InvalidInput: it is malformed or names a mesh axis that the mesh lacks.
    """
    name, separator, rest = _split_entry(text)
    if not separator:
        raise InvalidInput(f"rules has {shown(text)}, but a rule is a logical axis, =, and mesh axes")
    check_name(name, "rules", "a logical axis")
    return name, parse_axes_of_dimension(rest, axis_names, f"rule {name}")


def parse_specs(text: str, model: ModelEntry, axis_names: tuple[str, ...]) -> Partitions:
    """Return PartitionSpecs by place: `W1=None.model,W2=model.None`. Missing places have their default.

    Raises:
      InvalidInput: a place is unknown, or its spec does not fit the array or the mesh.
    """
    specs = default_specs(model, axis_names)
    for entry in _ENTRY_SEPARATOR.split(text):
        if not entry.strip():
            continue
        place, separator, rest = _split_entry(entry)
        if place not in model.partitions or not separator:
            raise InvalidInput(
                f"specs has {shown(entry)}, but must give PartitionSpecs "
                f"for {', '.join(model.partitions)}, such as W1=None.model"
            )
        specs[place] = parse_spec(rest, place, model, axis_names)
    return specs


def parse_spec(text: str, place: str, model: ModelEntry, axis_names: tuple[str, ...]) -> Spec:
    """Return the PartitionSpec of one place: mesh axes or None for each dimension.

    Raises:
      InvalidInput: it has the wrong number of dimensions, or an axis is unknown or used twice.
    """
    entries = re.split(r"[.,]", text) if text.strip() else []
    dimensions = model.partitions[place]
    if len(entries) != len(dimensions):
        raise InvalidInput(
            f"spec {place} is {shown(text)}, but must have {len(dimensions)} "
            f"entr{'ies' if len(dimensions) > 1 else 'y'} ({', '.join(dimensions)}) "
            "joined by commas, such as " + ", ".join(["None"] * len(dimensions))
        )
    spec = tuple(parse_axes_of_dimension(entry, axis_names, f"spec {place}") or None for entry in entries)
    _check_used_once([axis for axes in spec for axis in axes or ()], f"spec {place} is {shown(text)}")
    return spec


def parse_state_specs(text: str, axis_names: tuple[str, ...]) -> tuple[SpecRow, ...]:
    """Return rows in order: `wq/kernel=fsdp.mp;bias=;.*=fsdp(data,1024)`. A line break also ends a row.

    Raises:
      InvalidInput: a row is malformed or names a mesh axis that the mesh lacks.
    """
    entries = _entries(text, "state_specs", _ROW_SEPARATOR, MOST_ROWS)
    return tuple(parse_spec_row(entry, axis_names) for entry in entries)


def parse_spec_row(text: str, axis_names: tuple[str, ...]) -> SpecRow:
    """Return one row: a regular expression, the last `=` of the text, and a PartitionSpec or `fsdp(axis)`.

    Raises:
      InvalidInput: it is malformed or names a mesh axis that the mesh lacks.
    """
    pattern, separator, spec = text.rpartition("=")
    if not separator:
        raise InvalidInput(
            f"state_specs has {shown(text)}, but each row must be PATTERN=SPEC, such as kernel=None.model or "
            ".*=fsdp(data)"
        )
    pattern, what = pattern.strip(), f"the row of the pattern {shown(pattern.strip())}"
    check_pattern(pattern)
    match = _FSDP.fullmatch(spec)
    if match is not None:
        axes = parse_axes_of_dimension(match["axes"], axis_names, what)
        if not axes:
            raise InvalidInput(f"{what} has {shown(spec.strip())}, but fsdp needs a mesh axis")
        least = match["least"]
        return SpecRow(pattern, Fsdp(axes) if least is None else Fsdp(axes, int(least)))
    entries = re.split(r"[.,]", spec) if spec.strip() else []
    parsed = tuple(parse_axes_of_dimension(entry, axis_names, what) or None for entry in entries)
    _check_used_once([axis for axes in parsed for axis in axes or ()], f"{what} has {shown(spec)}")
    return SpecRow(pattern, parsed)


def print_row_spec(spec: Spec | Fsdp) -> str:
    """Return the spec of a row as text: `None.model`, `fsdp(data,1024)`."""
    if not isinstance(spec, Fsdp):
        return print_spec(spec)
    least = "" if spec.min_bytes == LEAST_BYTES else f",{spec.min_bytes}"
    return f"fsdp({'+'.join(spec.axes)}{least})"


def print_state_specs(rows: tuple[SpecRow, ...]) -> str:
    return ";".join(f"{row.pattern}={print_row_spec(row.spec)}" for row in rows)


def parse_optimizer_axes(text: str, axis_names: tuple[str, ...]) -> tuple[str, ...]:
    """Return mesh axes in the order of the text: `data`, `data,fsdp`, or nothing.

    Raises:
      InvalidInput: a name is not an axis of the mesh, or is given twice.
    """
    names = tuple(part.strip() for part in re.split(r"[,.~;]", text) if part.strip())
    for name in names:
        if name not in axis_names or names.count(name) > 1:
            raise InvalidInput(
                f"optimizer_axes is {shown(text)}, but must have axes of the mesh "
                f"({', '.join(axis_names)}), each once"
            )
    return names


def parse_unconstrained(text: str, model: ModelEntry) -> tuple[str, ...]:
    """Return the activations without a sharding constraint, in the model's order.

    Raises:
      InvalidInput: the model has no such constraint.
    """
    names = {part.strip() for part in re.split(r"[,.~;]", text) if part.strip()}
    for name in sorted(names):
        if name not in model.constraints:
            raise InvalidInput(
                f"unconstrained has {shown(name)}, but model {model.name} has constraints on "
                f"{', '.join(model.constraints) or 'nothing'}"
            )
    return tuple(name for name in model.constraints if name in names)


def parse_compiler_options(text: str) -> compiler_options.Options:
    """Return name and value of each option of the compiler, by name: `xla_a=true,xla_b=4`.

    The text of `LIBTPU_INIT_ARGS` and `XLA_FLAGS` is accepted too: `--xla_a=true --xla_b=4`.

    Raises:
      InvalidInput: an option is malformed, given twice, or not in the table of safe options.
    """
    entries = [entry for entry in re.split(_ENTRY_SEPARATOR.pattern + r"|\s+(?=--)", text) if entry.strip()]
    given = _options(entries, "compiler_options")
    options = tuple((name, compiler_options.with_colons(name, value)) for name, value in given)
    compiler_options.check(options)
    return options


def parse_unsafe_compiler_options(text: str) -> compiler_options.Options:
    """Return any options of the compiler, by name. Only the command line may give this text.

    Commas separate the options. No other character does, because a value can be a path.

    Raises:
      InvalidInput: an option is malformed or given twice, or there is none.
    """
    options = _options(text.split(","), compiler_options.UNSAFE_FLAG)
    if not options:
        raise InvalidInput(
            f"{compiler_options.UNSAFE_FLAG} is {shown(text)}, but must have at least one NAME=VALUE"
        )
    return options


def _options(entries: list[str], field: str) -> compiler_options.Options:
    if len(entries) > MOST_OPTIONS:
        raise InvalidInput(f"{field} has {len(entries):,} options, at most {MOST_OPTIONS} are allowed")
    options: dict[str, str] = {}
    for entry in entries:
        match = re.fullmatch(r"\s*(?:--)?([A-Za-z_][A-Za-z0-9_]*)[=.]\s*(\S.*?)\s*", entry)
        if match is None or not entry.isprintable() or len(entry) > _LONGEST_TEXT:
            raise InvalidInput(
                f"{field} has {shown(entry)}, but must give the value of each option, such as "
                f"xla_tpu_scoped_vmem_limit_kib=98304, in at most {_LONGEST_TEXT} printable characters"
            )
        if match[1] in options:
            raise InvalidInput(f"{field} has {shown(match[1])} twice, but must give each option once")
        options[match[1]] = match[2]
    return tuple(sorted(options.items()))


def parse_processes(text: str, shape: tuple[int, ...], target: str = "cpu") -> int:
    """Return the number of processes.

    Raises:
      InvalidInput: the number is not allowed, or does not divide the number of devices.
    """
    if text.strip() != "1" and (target == LOCAL or targets.is_target(target)):
        why = "which runs in one process" if target == LOCAL else "which is only compiled"
        raise InvalidInput(f"processes is {shown(text)}, but must be 1 for target {target}, {why}")
    if text.strip() not in map(str, PROCESS_COUNTS):
        raise InvalidInput(
            f"processes is {shown(text)}, but must be one of {', '.join(map(str, PROCESS_COUNTS))}"
        )
    processes = int(text)
    if math.prod(shape) % processes:
        raise InvalidInput(
            f"processes is {processes}, but must divide the {math.prod(shape)} "
            f"device{'s' * (math.prod(shape) > 1)} of mesh {print_mesh(shape)}"
        )
    return processes


def default_specs(model: ModelEntry, axis_names: tuple[str, ...]) -> dict[str, Spec]:
    """Return the PartitionSpecs that the model's default rules give on this mesh."""
    return specs_from_rules(model, rules_on_mesh(model.rules, axis_names))


def specs_from_rules(model: ModelEntry, rules: tuple[Rule, ...]) -> dict[str, Spec]:
    """Return the PartitionSpec that these rules give for each place of the model."""
    return {
        place: rule_list.partition_spec(logical_axes, rules)
        for place, logical_axes in model.partitions.items()
    }


def rules_on_mesh(rules: tuple[Rule, ...], axis_names: tuple[str, ...]) -> tuple[Rule, ...]:
    return tuple((name, axes) for name, axes in rules if set(axes) <= set(axis_names))


def _split_entry(text: str) -> tuple[str, str, str]:
    match = re.search(r"=|:|→|->|\.", text)
    if match is None:
        return text.strip(), "", ""
    return text[: match.start()].strip(), match.group(), text[match.end() :].strip()


def parse_axes_of_dimension(text: str, axis_names: Sequence[str], what: str) -> tuple[str, ...]:
    """Return mesh axes joined by `+`: none for an empty text or `None`. InvalidInput calls them `what`."""
    if text.strip() in ("", "None"):
        return ()
    axes = tuple(part.strip() for part in re.split(r"[+-]", text))
    for axis in axes:
        if axis not in axis_names:
            raise InvalidInput(
                f"{what} names mesh axis {shown(axis)}, but the mesh has {', '.join(axis_names)}"
            )
    _check_used_once(axes, f"{what} is {shown(text)}")
    return axes


def _check_used_once(axes: Sequence[str], what: str) -> None:
    if len(set(axes)) != len(axes):
        raise InvalidInput(f"{what}, but may use each mesh axis only once")


def check_name(name: str, where: str, what: str) -> None:
    if not NAME.fullmatch(name) or name == "None":
        raise InvalidInput(
            f"{where} has {shown(name)}, but {what} must be ASCII letters, digits and _, not only digits"
        )


def parse_model(text: str) -> ModelEntry:
    """Return the model of this name. A layout cannot name code; only the command line can.

    Raises:
      InvalidInput: no such model is registered.
    """
    if text in CATALOGUE:
        return CATALOGUE[text]
    hint = (
        f"; your own model needs `--model {text[:200]}` when the program starts"
        if own_model.FORM.fullmatch(text)
        else ", or package.module:function for your own model"
    )
    raise InvalidInput(f"model is {shown(text)}, but must be one of {', '.join(CATALOGUE)}{hint}")


def parse_target(text: str) -> str:
    """Return `cpu`, `plan`, or the normalized name of a machine.

    Raises:
      InvalidInput: there is no such target.
    """
    if targets.is_target(text):
        return targets.parse(text).text
    if text not in TARGETS:
        raise InvalidInput(
            f"target is {shown(text)}, but must be one of {', '.join(TARGETS)}, or {targets.FORMS}"
        )
    return text


def parse_steps(text: str) -> int:
    return int(_parse_number(text, Size("steps", DEFAULT_STEPS, "", least=1, most=MOST_STEPS)))


def parse_size(text: str, size: Size) -> SizeValue:
    if isinstance(size.default, bool):
        if text.strip().lower() in ("true", "1", "yes", "on"):
            return True
        if text.strip().lower() in ("false", "0", "no", "off"):
            return False
        raise InvalidInput(f"{size.name} is {shown(text)}, but must be true or false")
    if isinstance(size.default, str):
        if size.normalize is not None:
            return size.normalize(text)
        if not size.choices:
            return _free_text(text, size)
        return require_one_of(size.name, text, size.choices)
    return _parse_number(text, size)


def _parse_number(text: str, size: Size) -> int | float:
    kind = int if isinstance(size.default, int) else float
    value: float | None = None
    # Python also parses "1_000" and digits that are not ASCII, which other programs refuse.
    if text.isascii() and "_" not in text:
        with contextlib.suppress(ValueError, OverflowError):
            value = kind(text)
    least = -_LARGEST if size.least is None else size.least
    most = _LARGEST if size.most is None else size.most
    if value is None or not least <= value <= most:
        noun = "a whole number" if kind is int else "a number"
        raise InvalidInput(
            f"{size.name} is {shown(text)}, but must be {noun} from {_bound(least)} to {_bound(most)}"
        )
    return value


def _bound(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:,.10g}"


def _free_text(text: str, size: Size) -> str:
    if not text.isprintable() or len(text) > _LONGEST_TEXT:
        raise InvalidInput(
            f"{size.name} is {shown(text)}, but must be at most {_LONGEST_TEXT} printable characters"
        )
    return text
