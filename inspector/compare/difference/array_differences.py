"""Two Snapshots compared array by array."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from inspector.compare.difference.splits import Places, Split, split_of, trimmed
from inspector.core.snapshot import Array, Snapshot

# What can differ between two arrays with the same path, in display order.
FACTS = (
    *("group", "shape", "dtype", "logical axes", "spec"),
    *("placement", "bytes", "bytes per device", "replicas"),
)
# `other names`: mesh axes with other names or sizes put the same blocks on the same devices.
Placement = Literal["same", "other names", "other", "unknown"]
UNKNOWN = "unknown"  # the dtype of an array whose file does not record one
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
    others = {array.path: array for array in after.arrays}
    places = Places(before.mesh, after.mesh)
    pairs = [
        _difference(array, others.pop(array.path, None), before, after, places)
        for array in before.arrays
    ]
    for path, array in others.items():
        split = split_of(array, after.mesh)
        pairs.append(ArrayDifference(path, None, array, (ONLY_AFTER,), split_after=split))
    return tuple(pairs)


def _difference(
    array: Array, other: Array | None, before: Snapshot, after: Snapshot, places: Places
) -> ArrayDifference:
    was = split_of(array, before.mesh)
    if other is None:
        return ArrayDifference(array.path, array, None, (ONLY_BEFORE,), split_before=was)
    now = split_of(other, after.mesh)
    other_spec = was is not None and now is not None and trimmed(was) != trimmed(now)
    same = places.same(array, other)
    placement: Placement = "unknown"
    if same is not None:
        placement = "other" if not same else "other names" if other_spec else "same"
    differs = {
        "group": array.group != other.group,
        "dtype": UNKNOWN not in (array.dtype, other.dtype) and array.dtype != other.dtype,
        "spec": other_spec,
        "placement": placement == "other",
    }
    for fact in FACTS:
        if fact not in differs:  # a fact that can be None
            values = [getattr(each, fact.replace(" ", "_")) for each in (array, other)]
            differs[fact] = None not in values and values[0] != values[1]
    changed = tuple(fact for fact in FACTS if differs[fact])
    return ArrayDifference(array.path, array, other, changed, placement, was, now)
