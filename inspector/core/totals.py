"""Sums over the arrays of a Snapshot."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from inspector.core.snapshot import Array, Snapshot
from inspector.core.statistics import sum_known

STATE_GROUPS = ("params", "opt_state", "other")


@dataclass(frozen=True)
class Totals:
    """Bytes of some arrays. None if the bytes of an array are unknown.

    Attributes:
      arrays: Number of arrays.
      bytes: Bytes of all arrays, each counted once.
      per_device: Bytes on the device with the most.
      copies: Bytes on all devices together, divided by `bytes`.
    """

    arrays: int
    bytes: int | None
    per_device: int | None
    copies: float | None


def state_totals(snapshot: Snapshot) -> Totals:
    """Return the totals of the train state: parameters, optimizer state and step."""
    return totals(snapshot, STATE_GROUPS)


def totals(snapshot: Snapshot, groups: tuple[str, ...]) -> Totals:
    """Return the totals of the arrays in these groups."""
    if not snapshot.arrays:  # an imported program without arrays
        return Totals(0, None, None, None)
    arrays = [array for array in snapshot.arrays if array.group in groups]
    once = sum_known(array.bytes for array in arrays)
    if any(array.bytes_per_device is None for array in arrays):
        return Totals(len(arrays), once, None, None)
    # An array with explicit shards may be on some devices only, such as a step counter.
    alike = sum(array.bytes_per_device or 0 for array in arrays if array.shards is None)
    by_device = _by_device(array for array in arrays if array.shards is not None)
    copies = None
    if once and snapshot.mesh is not None:
        copies = (alike * snapshot.mesh.size + sum(by_device.values())) / once
    return Totals(len(arrays), once, alike + max(by_device.values(), default=0), copies)


def in_elements(snapshot: Snapshot) -> Snapshot | None:
    """Return the Snapshot with elements instead of bytes if no bytes are known. Return None otherwise."""
    if not snapshot.arrays or any(array.bytes is not None for array in snapshot.arrays):
        return None
    counted = tuple(
        array
        if array.shape is None or array.shard_shape is None
        else replace(
            array, bytes=math.prod(array.shape), bytes_per_device=math.prod(array.shard_shape)
        )
        for array in snapshot.arrays
    )
    return replace(snapshot, arrays=counted)


def _by_device(arrays: Iterable[Array]) -> Counter[int]:
    """Return the bytes of the shards on each device."""
    held: Counter[int] = Counter()
    for array in arrays:
        elements = math.prod(array.shape or ())
        for shard in array.shards or () if elements else ():
            part = math.prod(stop - start for start, stop in shard.index)
            held[shard.device] += (array.bytes or 0) * part // elements
    return held
