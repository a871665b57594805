"""The groups of arrays with their names in figures and sentences, in the order in which they are shown.

A new group is added here and to `Group` in `inspector.records.snapshot`. Values that only a program has,
such as temporaries, have separate groups.

Arrays whose names say nothing get the group of their role. Evidence, in this order: the keys `params` and
`opt_state`, the use of the array in a program, other keys that name an optimizer, and the one tree that the
arrays of an optimizer mirror.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from inspector.records.snapshot import (
    ArgumentUse,
    Array,
    Group,
    GroupUse,
    MemoryUse,
    Program,
    Snapshot,
    UseGroup,
)

ARRAY_GROUPS: dict[str, str] = {
    "params": "parameters",
    "opt_state": "optimizer state",
    "other": "unknown role",
    "batch": "batch",
    "cache": "caches",
    "output": "output",
    "activation": "activations",
    "gradient": "gradients",
}

# The groups of the values in memory while a program runs, in the order in which they are stacked.
USE_GROUPS: dict[UseGroup, str] = {
    "params": ARRAY_GROUPS["params"],
    "opt_state": ARRAY_GROUPS["opt_state"],
    "other": ARRAY_GROUPS["other"],
    "batch": ARRAY_GROUPS["batch"],
    "cache": ARRAY_GROUPS["cache"],
    "output": "memory of outputs",  # reserved for the whole program: other values can be in it before
    "constant": "constants",
    "activation": ARRAY_GROUPS["activation"],
    "gradient": ARRAY_GROUPS["gradient"],
    "collective": "buffers of collectives",
    "temporary": "temporaries",
}

# Keys of a path that name a group, by how certain they are. MaxText and Orbax write them in quotes.
_KEYS: tuple[dict[str, Group], ...] = (
    {"params": "params", "opt_state": "opt_state"},
    {"opt": "opt_state", "optimizer": "opt_state", "optimizer_state": "opt_state"},
)
_QUOTES = ".[]'\""


def certain_group(path: str) -> Group | None:
    """Return the group of the first key that is `params` or `opt_state`, or None."""
    return _group(path, _KEYS[0])


def group_of_path(path: str) -> Group | None:
    """Return the group that the keys of a path name, or None. `params` and `opt_state` come first."""
    return certain_group(path) or _group(path, _KEYS[1])


def _group(path: str, keys: dict[str, Group]) -> Group | None:
    names = (key.strip(_QUOTES) for key in path.split("/"))
    return next((keys[name] for name in names if name in keys), None)


GROUP_OF_USE: Mapping[ArgumentUse, Group] = {
    "weight": "params",
    "moment": "opt_state",
    "cache": "cache",
    "data": "batch",
    "gradient": "gradient",
}
_OF_INPUTS = frozenset({"other", "params", "opt_state", "cache", "batch"})

_Keys = tuple[str, ...]


def group_of_input(path: str, use: ArgumentUse | None) -> Group | None:
    """Return the group of an input of a program, or None if neither its path nor its use determines it.

    path: from the argument of the function on, without the name of the program.
    """
    named = certain_group(path)
    # A state can be called `params`, but no moment is a parameter.
    if named is not None and not (named == "params" and use == "moment"):
        return named
    return GROUP_OF_USE[use] if use is not None else group_of_path(path)


def with_roles(snapshot: Snapshot) -> Snapshot:
    """Return the Snapshot with a group for each array of the group `other` whose role is known.

    Of the live arrays of a job, those that none of its programs takes or returns have no role: an array
    with the name of a parameter can be an old copy of it.
    """
    uses = {
        sharding.path: sharding.use
        for role in ("output", "input")  # a state can have one path as both
        for program in snapshot.programs
        for sharding in program.shardings
        if sharding.role == role and sharding.use is not None
    }
    arrays = [_by_use(array, uses.get(array.path)) for array in snapshot.arrays]
    if any(array.group == "other" for array in arrays):
        arrays = [*_mirrored(arrays)]
    used = {sharding.path for program in snapshot.programs for sharding in program.shardings}
    if snapshot.most_alive_bytes is not None:
        arrays = [
            array if array.path in used or array.group not in _OF_INPUTS else replace(array, group="other")
            for array in arrays
        ]
    groups = {array.path: array.group for array in arrays}
    programs = tuple(
        program if program.memory_use is None else replace(program, memory_use=_with_groups(program, groups))
        for program in snapshot.programs
    )
    return replace(snapshot, arrays=tuple(arrays), programs=programs)


def _with_groups(program: Program, groups: Mapping[str, Group]) -> MemoryUse:
    """Return the memory of a program whose arguments have the groups of the arrays.

    An argument takes memory in the whole program, unless it is donated. Then its own use is known.
    """
    use = program.memory_use
    assert use is not None
    values, bytes_of = list(use.values), {group.group: [*group.bytes] for group in use.groups}
    for place, value in enumerate(values):
        group = groups.get(value.path or "", value.group)
        before, size = bytes_of.get(value.group, [0]), value.bytes
        if value.group not in _OF_INPUTS or value.group == group or min(before, default=0) < max(size, 1):
            continue
        values[place] = replace(value, group=group)
        bytes_of[value.group] = [number - size for number in before]
        bytes_of[group] = [number + size for number in bytes_of.get(group, [0] * len(before))]
    found = tuple(GroupUse(group, tuple(numbers)) for group, numbers in bytes_of.items() if any(numbers))
    return replace(use, groups=found, values=tuple(values))


def _by_use(array: Array, use: ArgumentUse | None) -> Array:
    if array.group != "other" and not (array.group == "params" and use == "moment"):
        return array
    return replace(array, group=group_of_input(_own_path(array), use) or "other")


def _own_path(array: Array) -> str:
    """Return the path without the program, whose name says nothing about the array."""
    prefix = f"{array.program}/input/"
    return array.path.removeprefix(prefix) if array.program is not None else array.path


def _mirrored(arrays: list[Array]) -> Iterable[Array]:
    """Name the parameters that the optimizer's state mirrors, if only one tree does and none is named."""
    if any(array.group == "params" for array in arrays):
        return arrays
    ends: dict[_Keys, set[tuple[int, ...]]] = defaultdict(set)
    for array in arrays:
        if array.group == "opt_state" and array.shape:
            keys = _keys(array)
            for start in range(1, len(keys)):
                ends[keys[start:]].add(array.shape)
    roots: dict[str, list[Array]] = defaultdict(list)
    for array in arrays:
        keys = _keys(array)
        places = range(1, len(keys))
        if array.group == "other" and any(array.shape in ends.get(keys[n:], ()) for n in places):
            roots["/".join(_root(keys, ends))].append(array)
    if len(roots) != 1:
        return arrays
    parameters = {array.path for held in roots.values() for array in held}
    return [replace(array, group="params") if array.path in parameters else array for array in arrays]


def _root(keys: _Keys, ends: Mapping[_Keys, set[tuple[int, ...]]]) -> _Keys:
    """Return the keys before the longest end that a moment has, too."""
    return next((keys[:n] for n in range(1, len(keys)) if keys[n:] in ends), ())


def _keys(array: Array) -> _Keys:
    return tuple(key.strip(_QUOTES) for key in _own_path(array).split("/"))
