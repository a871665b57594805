"""Sums over the arrays of a Snapshot."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from inspector.core.snapshot import Array, Snapshot

STATE_GROUPS = ("params", "opt_state", "other")


@dataclass(frozen=True)
class Totals:
    """Bytes of some arrays: each once, and on the fullest device. None where an array's are not known.

    `copies` is the bytes on all devices over `bytes`.
    """

    arrays: int
    bytes: int | None
    per_device: int | None
    copies: float | None


def state_totals(found: Snapshot) -> Totals:
    """The totals of the train state: parameters, optimizer state and step."""
    return totals(found, STATE_GROUPS)


def totals(found: Snapshot, groups: tuple[str, ...]) -> Totals:
    """The totals of the arrays in these groups."""
    if not found.arrays:  # a program's text alone: what it was given is not known
        return Totals(0, None, None, None)
    arrays = [array for array in found.arrays if array.group in groups]
    once = _sum(array.bytes for array in arrays)
    if any(array.bytes_per_device is None for array in arrays):
        return Totals(len(arrays), once, None, None)
    # Shards that are told one by one may be on some devices alone, such as a step on the first of them.
    alike = sum(array.bytes_per_device or 0 for array in arrays if array.shards is None)
    by_device = _by_device(array for array in arrays if array.shards is not None)
    copies = None
    if once and found.mesh is not None:
        copies = (alike * found.mesh.size + sum(by_device.values())) / once
    return Totals(len(arrays), once, alike + max(by_device.values(), default=0), copies)


def in_elements(found: Snapshot) -> Snapshot | None:
    """The Snapshot with elements in place of bytes, where no array's bytes are known; None elsewhere."""
    if not found.arrays or any(array.bytes is not None for array in found.arrays):
        return None
    counted = tuple(
        array
        if array.shape is None or array.shard_shape is None
        else replace(
            array,
            bytes=math.prod(array.shape),
            bytes_per_device=math.prod(array.shard_shape),
        )
        for array in found.arrays
    )
    return replace(found, arrays=counted)


def _by_device(arrays: Iterable[Array]) -> Counter[int]:
    """Device → bytes of the shards that it has."""
    held: Counter[int] = Counter()
    for array in arrays:
        elements = math.prod(array.shape or ())
        for shard in array.shards or () if elements else ():
            part = math.prod(stop - start for start, stop in shard.index)
            held[shard.device] += (array.bytes or 0) * part // elements
    return held


def _sum(values) -> int | None:
    known = list(values)
    return None if any(value is None for value in known) else sum(known)
