"""Capture the live arrays and the compiled programs of a user's job as a Snapshot.

Runs inside the job and imports only JAX, NumPy and msgspec. It reads shardings but no shards, and moves
nothing. A sharding describes the devices of all processes.
"""

import math
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, get_args

import jax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec, Sharding

from inspector.compiled.donation import with_donation
from inspector.files import output
from inspector.model import PyTree
from inspector.recording.captured_arrays import ArrayRecords, first_paths, main_mesh
from inspector.recording.captured_program import CapturedProgram, ProgramValue
from inspector.records.snapshot import Array, Finding, Group, Program, Snapshot, Source, write
from inspector.sharding.array_groups import with_roles
from inspector.text.errors import InvalidInput, require_one_of, shown
from inspector.text.formatting import counted, numbered
from inspector.tracing.leaves import Leaf, Names, entries_of, group_of, spec_of, unboxed

# Find the captured arrays among the inputs and outputs of a compiled program.
#
# A value matches an array of the same shape, dtype and sharding whose path has the same end. The arguments of
# the program can be the whole state, parts of it, or its leaves.
#
# Numbered values, such as those of `eqx.filter_jit`, have no path. They match the arrays of a subtree if
# these follow each other in exactly one place.


@dataclass(frozen=True)
class Captured:
    """A captured array: its record, its leaf, and its JAX sharding, None if unknown."""

    array: Array
    leaf: Leaf
    sharding: Sharding | None


def matched(values: Sequence[ProgramValue], captured: Sequence[Captured]) -> tuple[ProgramValue, ...]:
    """Return the values, those that are captured arrays with the paths of the arrays.

    No array matches two inputs, or two outputs. The longest common end of the paths wins.
    """
    paths: dict[int, str] = {}
    for is_output in (False, True):
        own = [(at, value) for at, value in enumerate(values) if value.output == is_output]
        paths |= _matches(own, captured)
    return tuple(replace(value, path=paths[at]) if at in paths else value for at, value in enumerate(values))


def _matches(values: Iterable[tuple[int, ProgramValue]], captured: Sequence[Captured]) -> dict[int, str]:
    left = {at: (value, _keys(value.leaf.path)) for at, value in values}
    free = {at: (array, _keys(array.leaf.path)) for at, array in enumerate(captured)}
    paths: dict[int, str] = {}
    longest = max((len(keys) for _, keys in free.values()), default=0)
    for length in range(longest, 0, -1):
        by_end: dict[Hashable, list[int]] = defaultdict(list)
        for number, (array, keys) in free.items():
            end = keys[-length:]
            if len(end) == length and (end == keys or not all(key.isdigit() for key in end)):
                by_end[end, _type(array.leaf)].append(number)
        for at, (value, keys) in list(left.items()):
            candidates = by_end.get((keys[-length:], _type(value.leaf)), [])
            same = next((n for n in candidates if _same_sharding(value, free[n][0])), None)
            if same is not None:
                candidates.remove(same)
                paths[at] = free.pop(same)[0].array.path
                del left[at]
    numbered = {at: value for at, (value, keys) in left.items() if keys[-1].isdigit()}
    return paths | _in_order(numbered, [array for array, _ in free.values()])


def _in_order(values: dict[int, ProgramValue], captured: Sequence[Captured]) -> dict[int, str]:
    """Return the paths of values by the order of the arrays of each subtree, the largest subtree first."""
    by_root: dict[str, list[Captured]] = defaultdict(list)
    for entry in captured:
        by_root[_keys(entry.leaf.path)[0]].append(entry)
    paths: dict[int, str] = {}
    for arrays in (list(captured), *sorted(by_root.values(), key=len, reverse=True)):
        free = [at for at in values if at not in paths]
        # One array alone may have the type of another input by chance.
        if len(arrays) < 2 or any(array.array.path in paths.values() for array in arrays):
            continue
        runs = [free[start : start + len(arrays)] for start in range(len(free) - len(arrays) + 1)]
        places = [run for run in runs if _are(run, values, arrays)]
        if len(places) == 1:
            paths |= {at: array.array.path for at, array in zip(places[0], arrays, strict=True)}
    return paths


def _are(run: Sequence[int], values: dict[int, ProgramValue], arrays: Sequence[Captured]) -> bool:
    return all(
        _type(values[at].leaf) == _type(array.leaf) and _same_sharding(values[at], array)
        for at, array in zip(run, arrays, strict=True)
    )


def _keys(path: str) -> tuple[str, ...]:
    return tuple(path.split("/"))


def _type(leaf: Leaf) -> Hashable:
    return tuple(leaf.value.shape), str(leaf.value.dtype)


def _same_sharding(value: ProgramValue, captured: Captured) -> bool:
    """Return whether both place every element alike.

    A dropped input has no sharding, and JAX may move an array that is not committed to its devices.
    """
    if value.sharding is None or getattr(captured.leaf.value, "committed", True) is False:
        return True
    if captured.sharding is None:
        return False
    rank = len(value.leaf.value.shape)
    try:
        return bool(value.sharding.is_equivalent_to(captured.sharding, rank))
    except Exception:  # an abstract mesh has no devices to compare
        first, second = value.sharding, captured.sharding
        if not isinstance(first, NamedSharding) or not isinstance(second, NamedSharding):
            return False
        return spec_of(first.spec, rank) == spec_of(second.spec, rank)


LEFT_OUT = "left-out"

# One group for all arrays, or a function from the path of an array to its group.
GroupOf = Group | Callable[[str], Group]

_GROUPS: tuple[str, ...] = get_args(Group)
# Versions of these packages are recorded if the job imported them.
_PACKAGES = ("jax", "jaxlib", "flax", "optax", "equinox", "numpy")


def capture(
    state: PyTree,
    path: str | os.PathLike[str] | None = None,
    *,
    mesh: Mesh | AbstractMesh | None = None,
    logical_axes: PyTree = None,
    group: GroupOf | None = None,
    programs: Mapping[str, Any] | None = None,
) -> Snapshot:
    """Return a Snapshot of every array of a pytree, and write it to `path`.

    Use it in a training job, to see where its real arrays are: the cost is that of reading their shardings.
    Leaves of `state` are `jax.Array` or `ShapeDtypeStruct`, in Flax boxes, nnx modules, registered classes,
    Optax states and dicts. Other leaves are skipped, and a finding lists them. Call it in every process of
    the job; process 0 writes the file. Nothing is gathered, moved or waited for.

    Args:
      path: the file to write; None writes none.
      mesh: the main mesh of the Snapshot; if None, the mesh of most arrays. The meshes of other arrays and
        programs are its `other_meshes`. An array without a NamedSharding gets explicit shards.
      logical_axes: a pytree with the same paths, with a tuple of names per array. It replaces the names in
        boxes.
      group: `params`, `opt_state`, `batch`, … for all arrays, or a function of the path. By default it is
        what the types of Optax states, the keys `params` and `opt_state`, the types of nnx variables, the use
        in `programs`, and the keys `weights`, `opt` and `optimizer` say, in this order. Arrays that mirror
        the moments of an optimizer are parameters.
      programs: compiled programs by name, as for `capture_compiled`. Their inputs and outputs that are
        captured arrays have the paths of these.

    Raises:
      InvalidInput: the file cannot be written, or an argument has a wrong type or value.

    Example:
      >>> import jax
      >>> from jax.sharding import NamedSharding, PartitionSpec
      >>> from inspector import capture
      >>> mesh = jax.make_mesh((2, 4), ("data", "model"))
      >>> sharding = NamedSharding(mesh, PartitionSpec(None, "model"))
      >>> kernel = jax.device_put(jax.numpy.zeros((1024, 512)), sharding)
      >>> snapshot = capture({"params": {"kernel": kernel}}, "state.json")
      >>> array = snapshot.array("params/kernel")
      >>> array.shard_shape, array.bytes_per_device, array.replicas
      ((1024, 128), 524288, 2)
    """
    leaves = _leaves(state)
    arrays = [leaf for leaf in leaves if _is_array(leaf.value)]
    others = [leaf for leaf in leaves if not _is_array(leaf.value)]
    compiled = [CapturedProgram(name, program) for name, program in (programs or {}).items()]
    shardings = [_sharding(leaf.value) for leaf in arrays]
    shardings += [sharding for program in compiled for sharding in program.shardings()]
    main = main_mesh(shardings, mesh)
    axis_names = () if main is None else tuple(main.axis_names)
    given_names = None if logical_axes is None else _names_by_path(logical_axes, arrays)
    records, captured = ArrayRecords(main, shardings), []
    # A key can contain a slash, so two leaves can have one path.
    paths = numbered(leaf.path or "array" for leaf in arrays)
    for leaf, array_path in zip(arrays, paths, strict=True):
        _refuse_traced(leaf.value, array_path)
        names = _logical(leaf, axis_names) if given_names is None else given_names.get(leaf.path)
        of_group = _group(leaf, array_path, group)
        sharding = _sharding(leaf.value)
        record = records.record(leaf, array_path, of_group, sharding, names)
        captured.append(Captured(record, leaf, sharding))
    recorded = [program.record(records, matched(program.values, captured)) for program in compiled]
    records_of_arrays = [array.array for array in captured]
    notes = tuple(_left_out(others))
    return _finish(records, records_of_arrays, recorded, path, notes, grouped=group is not None)


def capture_compiled(
    compiled: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    name: str = "program",
    mesh: Mesh | AbstractMesh | None = None,
) -> Snapshot:
    """Return a Snapshot of compiled programs: inputs, outputs, collectives, FLOPs and memory.

    Use it if the job has compiled a program already. `inspector.inspect` compiles a function itself, and
    names its inputs by parameter. Here an input is named by its position (`program/input/0/…`) or its
    keyword.

    Args:
      compiled: the result of `jitted.lower(...).compile()`, or several of them by name.
      path: the file to write; None writes none.
      name: the name of a single program.
      mesh: the main mesh of the Snapshot; if None, the mesh of most inputs and outputs.

    Raises:
      InvalidInput: the file cannot be written, or `compiled` is something else.

    Example:
      >>> import jax
      >>> from inspector import capture_compiled
      >>> double = jax.jit(lambda x: x * 2)
      >>> compiled = double.lower(jax.ShapeDtypeStruct((8, 4), "float32")).compile()
      >>> snapshot = capture_compiled(compiled, "double.json", name="double")
      >>> program = snapshot.programs[0]
      >>> program.name, program.memory.arguments, program.collectives
      ('double', 128, ())
    """
    by_name = compiled if isinstance(compiled, Mapping) else {name: compiled}
    programs = [CapturedProgram(str(key), program) for key, program in by_name.items()]
    shardings = [sharding for program in programs for sharding in program.shardings()]
    main = main_mesh(shardings, mesh)
    axis_names = () if main is None else tuple(main.axis_names)
    records = ArrayRecords(main, shardings)
    arrays = [
        records.record(
            value.leaf,
            value.path,
            "output" if value.output else _group(value.leaf, value.leaf.path, None),
            value.sharding,
            _logical(value.leaf, axis_names),
            program.name,
        )
        for program in programs
        for value in program.values
        if value.used
    ]
    return _finish(records, arrays, [program.record(records) for program in programs], path)


def _finish(
    records: ArrayRecords,
    arrays: Iterable[Array],
    programs: Iterable[Program],
    path: str | os.PathLike[str] | None,
    findings: tuple[Finding, ...] = (),
    grouped: bool = False,
) -> Snapshot:
    """Make the Snapshot, and write it in the first process. `grouped`: the caller gave the groups."""
    to_write = path if jax.process_index() == 0 else None
    if to_write is not None:
        output.refuse_unwritable(to_write)
    snapshot = Snapshot(
        source=Source(
            "capture",
            None,
            datetime.now(UTC).replace(microsecond=0).isoformat(),
            _versions(),
            processes=jax.process_count(),
        ),
        layout=None,
        mesh=records.mesh,
        arrays=tuple(arrays),
        programs=tuple(programs),
        findings=(*records.findings(), *findings),
        other_meshes=records.other_meshes,
    )
    if not grouped:
        snapshot = with_roles(snapshot)
    snapshot = with_donation(snapshot)
    if to_write is not None:
        write(snapshot, to_write)
    return snapshot


def _leaves(state: PyTree) -> list[Leaf]:
    try:
        return list(unboxed(state))
    except (ValueError, TypeError) as error:  # for example, dict keys without an order
        cause = " ".join(f"{error.__cause__ or error}".split())
        raise InvalidInput(f"the state cannot be read as a pytree: {cause[:200]}") from error


def _is_array(value: object) -> bool:
    return isinstance(value, (jax.Array, jax.ShapeDtypeStruct))


def _sharding(value: object) -> Sharding | None:
    # A traced value has no sharding; `_refuse_traced` follows.
    return None if isinstance(value, jax.core.Tracer) else getattr(value, "sharding", None)


def _refuse_traced(value: object, path: str) -> None:
    if isinstance(value, jax.core.Tracer):
        raise InvalidInput(
            f"{shown(path, 200)} is a traced value without devices: call capture outside of jax.jit"
        )


def _group(leaf: Leaf, path: str, given: GroupOf | None) -> Group:
    if given is None:
        return group_of(leaf, path) or "other"
    chosen = given(path) if callable(given) else given
    require_one_of("group", chosen, _GROUPS)
    return chosen


def _logical(leaf: Leaf, axis_names: tuple[str, ...]) -> Names | None:
    """Return the names of a box if the box says they are logical, or if one is not a mesh axis."""
    names = leaf.names
    if names is None or not all(name is None or isinstance(name, str) for name in names):
        return None
    if leaf.logical or any(name is not None and name not in axis_names for name in names):
        return names
    return None


def _names_by_path(tree: PyTree, arrays: list[Leaf]) -> dict[str, Names]:
    """Return the names in a pytree by path."""
    ranks = {leaf.path: len(leaf.value.shape) for leaf in arrays}
    by_path = {}
    for key_path, names in jax.tree_util.tree_leaves_with_path(tree, is_leaf=_is_names):
        path = jax.tree_util.keystr(key_path, simple=True, separator="/")
        if not _is_names(names):
            raise InvalidInput(
                f"logical_axes has {shown(str(names))} at {shown(path, 200)}, but must have a tuple "
                "with a name or None for each dimension"
            )
        if path not in ranks:
            raise InvalidInput(f"logical_axes has {shown(path, 200)}, but no array has this path")
        if len(names) != ranks[path]:
            raise InvalidInput(
                f"logical_axes has {counted(len(names), 'name')} at {shown(path, 200)}, but must have "
                f"one for each of {counted(ranks[path], 'dimension')}"
            )
        by_path[path] = tuple(names)
    return by_path


def _is_names(node: object) -> bool:
    # A named tuple is a node, as in Optax states.
    if not isinstance(node, (tuple, PartitionSpec)) or hasattr(node, "_fields"):
        return False
    return all(name is None or isinstance(name, str) for name in node)


def _left_out(leaves: list[Leaf]) -> Iterator[Finding]:
    if leaves:
        kinds = ", ".join(sorted({type(leaf.value).__name__ for leaf in leaves}))
        paths = first_paths([leaf.path or "the whole state" for leaf in leaves])
        skipped = counted(len(leaves), "leaf", "leaves")
        message = f"Skipped {skipped} of type {kinds}, not jax.Array: {paths}"
        yield Finding("note", LEFT_OUT, message)


def _versions() -> dict[str, str]:
    versions = {name: getattr(sys.modules.get(name), "__version__", None) for name in _PACKAGES}
    return {name: str(version) for name, version in versions.items() if version is not None}


def snapshot_of(value: PyTree) -> Snapshot:
    """Return the Snapshot of an array, a pytree, a sharding, a mesh, or a compiled program.

    Raises:
      InvalidInput: the value contains no array.
    """
    if isinstance(value, Snapshot):
        return value
    if isinstance(value, Mesh):
        value = NamedSharding(value, PartitionSpec(value.axis_names))
    if isinstance(value, Sharding):
        return capture({"sharding": _smallest(value)})
    if _is_compiled(value):
        return capture_compiled(value)
    if isinstance(value, Mapping) and value and all(map(_is_compiled, value.values())):
        return capture_compiled(value)
    if isinstance(value, (jax.Array, jax.ShapeDtypeStruct)):
        return capture({"array": value})
    snapshot = capture(value)
    if not snapshot.arrays:
        kind = type(value).__name__
        raise InvalidInput(
            f"the value is a {kind} without arrays, but must be an array, a pytree, a sharding, a mesh, "
            "a compiled program or a Snapshot"
        )
    return snapshot


def _is_compiled(value: object) -> bool:
    # nnx and Equinox wrap `jax.stages.Compiled` in classes of this name.
    return isinstance(value, jax.stages.Compiled) or type(value).__name__ == "Compiled"


def _smallest(sharding: Sharding) -> jax.ShapeDtypeStruct:
    """Return the smallest array that the sharding divides: one element per shard."""
    if not isinstance(sharding, NamedSharding):
        return jax.ShapeDtypeStruct((len(sharding.device_set),), "int8", sharding=sharding)
    sizes = sharding.mesh.shape
    shape = []
    for entry in entries_of(sharding.spec):
        names = (entry,) if isinstance(entry, str) else entry or ()
        shape.append(math.prod(sizes[name] for name in names))
    return jax.ShapeDtypeStruct(tuple(shape), "int8", sharding=sharding)
