"""Arrays that differ for the same reason, grouped: each array is in exactly one group."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from inspector.compare.difference.array_differences import ONLY_AFTER, ONLY_BEFORE, ArrayDifference
from inspector.compare.difference.cause import Cause
from inspector.compare.difference.causes import Causes
from inspector.compare.question import MINUS, change_text
from inspector.compare.splits import Axes, axes_of, elements_per_device
from inspector.core.formatting import bytes_text, elements_text
from inspector.core.snapshot import Array, Mesh
from inspector.core.statistics import sum_known
from inspector.core.totals import STATE_GROUPS

# From these mesh axes to those.
Change = tuple[Axes, Axes]
_Meshes = tuple[Mesh | None, Mesh | None]


@dataclass(frozen=True)
class Amount:
    """The bytes or elements on one device, before and after. None if unknown."""

    unit: str
    before: int | None
    after: int | None

    @property
    def gained(self) -> int | None:
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def text(self) -> str:
        """The change: `24.0 MiB → 48.0 MiB per device (+100%)`."""
        in_unit = bytes_text if self.unit == "bytes" else elements_text
        was, now, gained = in_unit(self.before), in_unit(self.after), self.gained
        if not gained:
            return f"{was} → {now} per device" if was != now else f"{now} per device, unchanged"
        sign = "+" if gained > 0 else MINUS
        amount = f"{was} → {now}" if was != now else f"{sign}{in_unit(abs(gained))} to {now}"
        change = change_text(self.before or 0, self.after or 0)
        return f"{amount} per device{f' ({change})' if change else ''}"


@dataclass(frozen=True)
class Group:
    """Arrays with the same causes or, if no cause is known, with the same changes.

    state: the amount of train state in this group. all: the amount of all its arrays.
    partial: the number of arrays with only some of the changes.
    """

    causes: tuple[Cause, ...]
    differences: tuple[ArrayDifference, ...]
    state: Amount
    all: Amount
    partial: int = 0

    @property
    def weight(self) -> tuple[int, int, int, int]:
        """The rank of the group: by gained bytes of train state, then of all arrays, then by size."""
        held = max(self.all.before or 0, self.all.after or 0)
        return abs(self.state.gained or 0), abs(self.all.gained or 0), held, len(self.differences)


# The causes of a group, and its changes if no cause is known.
_Key = tuple[tuple[Cause, ...], frozenset[Any]]


def groups(differences: Sequence[ArrayDifference], causes: Causes) -> tuple[Group, ...]:
    """Return the groups of all arrays that differ, the largest first."""
    changed = {difference.path: difference for difference in differences if difference.changed}
    known = {path: causes.of(difference) for path, difference in changed.items()}
    members: dict[_Key, list[ArrayDifference]] = {}
    for path, difference in changed.items():
        found = known[path]
        if not found and path.startswith("gradient/"):  # gradients are placed as their parameters
            found = known.get(f"params/{path.removeprefix('gradient/')}", ())
        members.setdefault((found, frozenset() if found else _changes(difference)), []).append(difference)
    partial: Counter[_Key] = Counter()
    for key in sorted(members, key=lambda key: len(members[key])):
        if host := _host(key, members):
            moved = members.pop(key)
            partial[host] += partial.pop(key, 0) + len(moved)
            members[host] += moved
    position = {path: place for place, path in enumerate(changed)}
    meshes = causes.before.mesh, causes.after.mesh
    found_groups = []
    for key, every in members.items():
        every.sort(key=lambda difference: position[difference.path])
        amounts = _amount(list(filter(in_state, every)), meshes), _amount(every, meshes)
        found_groups.append(Group(key[0], tuple(every), *amounts, partial[key]))
    return tuple(sorted(found_groups, key=lambda group: group.weight, reverse=True))


def in_state(difference: ArrayDifference) -> bool:
    """Return whether the array is part of the train state."""
    return difference.either.group in STATE_GROUPS


def axis_changes(difference: ArrayDifference, meshes: _Meshes = (None, None)) -> dict[Change, str]:
    """Return the changed mesh axes per dimension, with the dimension's logical axis or `dimension 0`.

    With `meshes`, also list the axes of size 1 that are larger in the other mesh.
    """
    names = difference.either.logical_axes or ()
    larger = {axis.name for mesh in meshes if mesh for axis in mesh.axes if axis.size > 1}
    sides = (
        (difference.before, difference.split_before or (), meshes[0]),
        (difference.after, difference.split_after or (), meshes[1]),
    )
    changes = {}
    for dimension in difference.split_dimensions():
        was, now = (
            (array and mesh and array.mesh is None and _named(array, dimension, mesh, larger))
            or (split[dimension] if dimension < len(split) else ())
            for array, split, mesh in sides
        )
        name = names[dimension] if dimension < len(names) else None
        changes[was, now] = name or f"dimension {dimension}"
    return changes


def _named(array: Array, dimension: int, mesh: Mesh, names: set[str]) -> Axes:
    """Return the axes with these names that the spec gives a dimension, whatever their size."""
    axes = axes_of(array, dimension)
    return tuple((name, mesh.sizes[name]) for name in axes if name in names & mesh.sizes.keys())


def _changes(difference: ArrayDifference) -> frozenset[Any]:
    """Return the changes of an array as a key for grouping."""
    marks: set[Any] = {*difference.changed} & {
        ONLY_BEFORE,
        ONLY_AFTER,
        "shape",
        "group",
        "logical axes",
    }
    if "dtype" in difference.changed and difference.before and difference.after:
        marks.add(("dtype", difference.before.dtype, difference.after.dtype))
    marks.update(axis_changes(difference))
    return frozenset(marks or difference.changed)


def _host(key: _Key, members: dict[_Key, list[ArrayDifference]]) -> _Key | None:
    """Return the largest group whose causes or changes include all of this group's, and more.

    Train state joins another group only if no cause is known.
    """
    causes, changes = key
    if causes:
        movable = not any(map(in_state, members[key]))
        larger = [other for other in members if movable and set(causes) < set(other[0])]
    else:
        least = len(members[key])
        wider = [other for other in members if changes and changes < other[1]]
        larger = [other for other in wider if len(members[other]) >= least]
    return max(larger, key=lambda other: len(members[other]), default=None)


def _amount(differences: Sequence[ArrayDifference], meshes: _Meshes) -> Amount:
    """Return the bytes, or the elements if only these are known."""
    sides = [
        [(array, mesh) for difference in differences if (array := getattr(difference, side))]
        for side, mesh in zip(("before", "after"), meshes, strict=True)
    ]
    held = [sum_known(array.bytes_per_device for array, _ in side) for side in sides]
    if None in held:
        elements = [sum_known(elements_per_device(*each) for each in side) for side in sides]
        if None not in elements:
            return Amount("elements", *elements)
    return Amount("bytes", *held)
