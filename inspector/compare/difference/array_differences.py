"""Two Snapshots leaf by leaf: what is not the same of each array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from inspector.compare.difference.splitting import Places, Split, split_of, trimmed
from inspector.core.snapshot import Array, Snapshot

# What may differ of an array that both have, in the order in which it is named.
FACTS = (
    *("group", "shape", "dtype", "logical axes", "spec"),
    *("placement", "bytes", "bytes per device", "replicas"),
)
# Where an array lies, against where it lay.
Placement = Literal["same", "other names", "other", "unknown"]
UNKNOWN = "unknown"  # as readers write the dtype of a file that does not tell it
ONLY_BEFORE, ONLY_AFTER = "only before", "only after"


@dataclass(frozen=True)
class ArrayDifference:
    """One path in two Snapshots.

    before, after: None where the path is in one of them only.
    changed: the facts that differ, of `FACTS`, or `only before`, `only after`; empty if all are the
      same. What one of the two does not know is no difference.
    placement: `same` if the same split puts the same blocks on the same devices, `other names` if axes of
      other names or sizes put them there all the same.
    split_before, split_after: the mesh axes larger than 1 that split each dimension; None where there is
      no spec.
    """

    path: str
    before: Array | None
    after: Array | None
    changed: tuple[str, ...]
    placement: Placement = "unknown"
    split_before: Split | None = None
    split_after: Split | None = None

    @property
    def bytes_gained(self) -> int | None:
        """Bytes on each device after, less those before; an array that is not there has none."""
        held = [0 if one is None else one.bytes_per_device for one in (self.before, self.after)]
        return None if None in held else held[1] - held[0]

    @property
    def either(self) -> Array:
        """The array after, or before where there is no other."""
        found = self.after or self.before
        assert found is not None, "a path is of an array"
        return found


def arrays(before: Snapshot, after: Snapshot) -> tuple[ArrayDifference, ...]:
    """Every array of both, paired by path: in the order of `before`, then what only `after` has."""
    others = {array.path: array for array in after.arrays}
    places = Places(before.mesh, after.mesh)
    found = []
    for array in before.arrays:
        other = others.pop(array.path, None)
        found.append(_difference(array, other, before, after, places))
    for path, array in others.items():
        split = split_of(array, after.mesh)
        found.append(ArrayDifference(path, None, array, (ONLY_AFTER,), split_after=split))
    return tuple(found)


def _difference(
    array: Array, other: Array | None, before: Snapshot, after: Snapshot, places: Places
) -> ArrayDifference:
    was = split_of(array, before.mesh)
    if other is None:
        return ArrayDifference(array.path, array, None, (ONLY_BEFORE,), split_before=was)
    becomes = split_of(other, after.mesh)
    respelled = was is not None and becomes is not None and trimmed(was) != trimmed(becomes)
    same = places.same(array, other)
    placement: Placement = "unknown"
    if same is not None:
        placement = "other" if not same else "other names" if respelled else "same"
    differs = {
        "group": array.group != other.group,
        "shape": _differ(array.shape, other.shape),
        "dtype": UNKNOWN not in (array.dtype, other.dtype) and array.dtype != other.dtype,
        "logical axes": _differ(array.logical_axes, other.logical_axes),
        "spec": respelled,
        "placement": placement == "other",
        "bytes": _differ(array.bytes, other.bytes),
        "bytes per device": _differ(array.bytes_per_device, other.bytes_per_device),
        "replicas": _differ(array.replicas, other.replicas),
    }
    changed = tuple(fact for fact in FACTS if differs[fact])
    return ArrayDifference(array.path, array, other, changed, placement, was, becomes)


def _differ(one: object, other: object) -> bool:
    """Whether both are known and not the same."""
    return one is not None and other is not None and one != other
