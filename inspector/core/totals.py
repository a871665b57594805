"""Sums over the arrays of a Snapshot."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from inspector.core.memory_kinds import in_host_memory
from inspector.core.snapshot import Array, Snapshot
from inspector.core.statistics import sum_known

STATE_GROUPS = ("params", "opt_state", "other")


@dataclass(frozen=True)
class Totals:
    """Bytes of some arrays. None if the bytes of an array are unknown.

    Attributes:
      arrays: Number of arrays.
      bytes: Bytes of all arrays, each counted once.
      per_device: Bytes in the memory of the device with the most.
      everywhere: Bytes of all devices together, in device and in host memory.
      host: Bytes in host memory of the device with the most.
    """

    arrays: int
    bytes: int | None
    per_device: int | None
    everywhere: int | None
    host: int | None = 0

    @property
    def copies(self) -> float | None:
        """How often each byte is held on average."""
        return self.everywhere / self.bytes if self.bytes and self.everywhere is not None else None

    @property
    def duplicated(self) -> int | None:
        """Bytes on all devices together beyond `bytes`."""
        if self.everywhere is None or self.bytes is None:
            return None
        return self.everywhere - self.bytes


def state_totals(snapshot: Snapshot) -> Totals:
    """Return the totals of the train state: parameters, optimizer state and step."""
    return totals(snapshot, STATE_GROUPS)


def totals(snapshot: Snapshot, groups: tuple[str, ...]) -> Totals:
    """Return the totals of the arrays in these groups."""
    if not snapshot.arrays:  # an imported program without arrays
        return Totals(0, None, None, None)
    arrays = [array for array in counted_arrays(snapshot) if array.group in groups]
    once = sum_known(array.bytes for array in arrays)
    if any(array.bytes_per_device is None for array in arrays):
        return Totals(len(arrays), once, None, None, None)
    mesh, per_memory, everywhere = snapshot.mesh, [], 0
    for in_host in (False, True):
        held = [array for array in arrays if in_host_memory(array, mesh) == in_host]
        # An array with explicit shards may be on some devices only, such as a step counter.
        alike = sum(array.bytes_per_device or 0 for array in held if array.shards is None)
        by_device = shard_bytes(array for array in held if array.shards is not None)
        per_memory.append(alike + max(by_device.values(), default=0))
        everywhere += alike * (0 if mesh is None else mesh.size) + sum(by_device.values())
    device, host = per_memory
    return Totals(len(arrays), once, device, None if mesh is None else everywhere, host)


def by_group(snapshot: Snapshot, groups: tuple[str, ...]) -> dict[str, int] | None:
    """Return the bytes of each group in the memory of the device with the most.

    They add up to `totals(snapshot, groups).per_device`. Groups without arrays are left out. Return None if
    the bytes of an array are unknown.
    """
    arrays = [array for array in counted_arrays(snapshot) if array.group in groups]
    if not arrays or any(array.bytes_per_device is None for array in arrays):
        return None
    held = [array for array in arrays if not in_host_memory(array, snapshot.mesh)]
    listed = shard_bytes(array for array in held if array.shards is not None)
    fullest = max(listed, key=lambda device: listed[device], default=-1)
    found: dict[str, int] = {}
    for group in groups:
        own = [array for array in held if array.group == group]
        if own:
            alike = sum(array.bytes_per_device or 0 for array in own if array.shards is None)
            apart = shard_bytes(array for array in own if array.shards is not None)
            found[group] = alike + apart[fullest]
    return found


def counted_program(snapshot: Snapshot) -> str | None:
    """Return the program whose inputs and outputs are counted, or None if all arrays are.

    Arrays of imported or captured programs belong to programs. Several programs then have the same arrays,
    such as parameters, so the one with the most bytes of state and batch is counted.
    """
    counted = [one for one in snapshot.arrays if one.group in (*STATE_GROUPS, "batch")]
    held: Counter[str] = Counter()
    for array in counted:
        if array.program is None:
            return None
        held[array.program] += array.bytes or 0
    return max(held, key=lambda name: held[name]) if len(held) > 1 else None


def counted_arrays(snapshot: Snapshot) -> tuple[Array, ...]:
    """Return the arrays to sum: those of one program if each program lists its own."""
    chosen = counted_program(snapshot)
    if chosen is None:
        return snapshot.arrays
    return tuple(array for array in snapshot.arrays if array.program in (None, chosen))


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


def shard_bytes(arrays: Iterable[Array]) -> Counter[int]:
    """Return the bytes of the listed shards on each device. Unknown bytes count as 0."""
    held: Counter[int] = Counter()
    for array in arrays:
        for shard in array.shards or ():
            part = math.prod(stop - start for start, stop in shard.index)
            held[shard.device] += (array.bytes or 0) * part // (array.elements or 1)
    return held
