"""Two Snapshots compared array by array."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from inspector.compare.splits import Split, same_placement, split_of, trimmed
from inspector.core.snapshot import Array, Snapshot

# What can differ between two arrays with the same path, in display order.
FACTS = (
    *("group", "shape", "dtype", "logical axes", "spec"),
    *("placement", "bytes", "bytes per device", "replicas"),
)
# `other names`: mesh axes with other names or sizes put the same blocks on the same devices.
Placement = Literal["same", "other names", "other", "unknown"]
UNKNOWN = "unknown"  # the dtype of an array whose file does not record one
# Files and states without the names of groups have this one.
UNGROUPED = {"group": "other"}
ONLY_BEFORE, ONLY_AFTER = "only before", "only after"


@dataclass(frozen=True)
class ArrayDifference:
    """One array path in two Snapshots.

    before, after: the array, or None if this Snapshot does not have the path.
    changed: the entries of `FACTS` that differ, or `only before` or `only after`. A value that is unknown
      in one Snapshot does not count as a difference.
    split_before, split_after: the mesh axes that split each dimension, or None without a spec.
    """

    path: str
    before: Array | None
    after: Array | None
    changed: tuple[str, ...]
    placement: Placement = "unknown"
    split_before: Split | None = None
    split_after: Split | None = None

    @property
    def either(self) -> Array:
        """The array after, or else before."""
        array = self.after or self.before
        assert array is not None
        return array

    @property
    def same_placement(self) -> bool:
        """Whether each device is known to hold the same index ranges of both arrays."""
        return self.placement in ("same", "other names")

    def split_dimensions(self) -> Iterator[int]:
        """Yield the dimensions that are split by other mesh axes, or into another number of parts."""
        was, now = self.split_before, self.split_after
        if was is None or now is None or ("shape" in self.changed and len(was) != len(now)):
            return
        for dimension, (old, new) in enumerate(itertools.zip_longest(was, now, fillvalue=())):
            if old != new:
                yield dimension


def arrays(before: Snapshot, after: Snapshot) -> tuple[ArrayDifference, ...]:
    """Pair the arrays by path: first in the order of `before`, then those that only `after` has."""
    old, new = ({array.path: array for array in snapshot.arrays} for snapshot in (before, after))
    # Of each pair of meshes once: it compares all their devices.
    same = {
        (was, now): same_placement(old_mesh, new_mesh)
        for was, old_mesh in before.indexed_meshes()
        for now, new_mesh in after.indexed_meshes()
    }
    array_differences = []
    for path in {**old, **new}:
        was, now = old.get(path), new.get(path)
        splits = (
            split_of(was, before.mesh_of(was) if was else None),
            split_of(now, after.mesh_of(now) if now else None),
        )
        changed: tuple[str, ...] = (ONLY_BEFORE if was else ONLY_AFTER,)
        placement: Placement = "unknown"
        if was and now:
            changed, placement = _changed(was, now, splits, same[was.mesh, now.mesh](was, now))
        array_differences.append(ArrayDifference(path, was, now, changed, placement, *splits))
    return tuple(array_differences)


def _changed(
    before: Array, after: Array, splits: tuple[Split | None, Split | None], same: bool | None
) -> tuple[tuple[str, ...], Placement]:
    was, now = splits
    other_spec = was is not None and now is not None and trimmed(was) != trimmed(now)
    differs = {"spec": other_spec, "placement": same is False}
    for fact in FACTS:
        if fact not in differs:
            values = [getattr(array, fact.replace(" ", "_")) for array in (before, after)]
            unknown = any(value in (None, UNKNOWN, UNGROUPED.get(fact)) for value in values)
            differs[fact] = not unknown and values[0] != values[1]
    placement: Placement = "same"
    if not same:
        placement = "unknown" if same is None else "other"
    elif other_spec:
        placement = "other names"
    return tuple(fact for fact in FACTS if differs[fact]), placement
