"""Compare two Snapshots of one model leaf by leaf."""

from __future__ import annotations

from dataclasses import dataclass

from inspector.core import sharding
from inspector.core.snapshot import Array, Snapshot


@dataclass(frozen=True)
class LeafPair:
    """The arrays at one path. `left` or `right` is None if only the other Snapshot has the path."""

    path: str
    left: Array | None
    right: Array | None
    equal: bool


def leaf_pairs(left: Snapshot, right: Snapshot, groups: tuple[str, ...]) -> tuple[LeafPair, ...]:
    """Return all leaves of these groups in the order of `left`, then the leaves that only `right` has.

    Equal leaves have the same shape and put the same index ranges on the same devices. Their specs can be
    different: `P('data')` and `P('data', None)`, or an axis of size 1.
    """
    others = {array.path: array for array in right.arrays if array.group in groups}
    pairs = []
    for array in left.arrays:
        if array.group in groups:
            other = others.pop(array.path, None)
            equal = other is not None and _equal(array, left, other, right)
            pairs.append(LeafPair(array.path, array, other, equal))
    pairs += [LeafPair(path, None, array, False) for path, array in others.items()]
    return tuple(pairs)


def _equal(array: Array, left: Snapshot, other: Array, right: Snapshot) -> bool:
    if array.shape != other.shape or left.mesh is None or right.mesh is None:
        return False
    if left.mesh.devices != right.mesh.devices:
        return False
    mine, theirs = sharding.place_array(array, left.mesh), sharding.place_array(other, right.mesh)
    if mine is None or theirs is None:
        return False
    return bool((mine.starts == theirs.starts).all() and (mine.stops == theirs.stops).all())
