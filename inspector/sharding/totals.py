"""Sums over the arrays of a Snapshot."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from inspector.records.snapshot import Array, Snapshot
from inspector.records.statistics import sum_known
from inspector.sharding.memory_kinds import in_host_memory
from inspector.sharding.once import once_per_snapshot

STATE_GROUPS = ("params", "opt_state", "other")
ALL_GROUPS = (*STATE_GROUPS, "cache", "batch", "gradient")  # of arrays that live between programs
_ANY_DEVICE = -1


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
    """Return the totals of the arrays of `state_groups`."""
    return totals(snapshot, state_groups(snapshot))


def state_groups(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the groups of the train state; those of all arrays if the role of one is unknown."""
    return ALL_GROUPS if state_title(snapshot) == "Arrays" else STATE_GROUPS


def state_title(snapshot: Snapshot) -> str:
    """Return the label of the arrays of `state_totals`: arrays of unknown role are not train state."""
    groups = {array.group for array in snapshot.arrays} & {*STATE_GROUPS}
    if not snapshot.arrays or (
        "opt_state" in groups and (snapshot.layout is not None or "other" not in groups)
    ):
        return "Train state"
    return "Parameters" if groups == {"params"} else "Arrays"


def states_text(*snapshots: Snapshot) -> str:
    """Return `train states`, or `arrays` if the arrays of a Snapshot are not known to be its train state."""
    return "train states" if {*map(state_title, snapshots)} == {"Train state"} else "arrays"


@once_per_snapshot
def _known_totals(snapshot: Snapshot) -> dict[tuple[str, ...], Totals]:
    return {}


def totals(snapshot: Snapshot, groups: tuple[str, ...]) -> Totals:
    """Return the totals of the arrays in these groups."""
    known = _known_totals(snapshot)
    if groups not in known:
        known[groups] = _totals(snapshot, groups)
    return known[groups]


def _totals(snapshot: Snapshot, groups: tuple[str, ...]) -> Totals:
    if not snapshot.arrays:  # an imported program without arrays
        return Totals(0, None, None, None)
    arrays = [array for array in counted_arrays(snapshot) if array.group in groups]
    once = sum_known(array.bytes for array in arrays)
    if any(array.bytes_per_device is None for array in arrays):
        return Totals(len(arrays), once, None, None, None)
    in_devices = in_device_memory(snapshot, arrays)
    others = {id(array) for array in in_devices}
    in_hosts = [array for array in arrays if id(array) not in others]
    device, host = (bytes_by_device(snapshot, held).values() for held in (in_devices, in_hosts))
    everywhere = None if snapshot.mesh is None else sum(device) + sum(host)
    return Totals(len(arrays), once, max(device, default=0), everywhere, max(host, default=0))


def in_device_memory(snapshot: Snapshot, arrays: Iterable[Array]) -> list[Array]:
    """Return the arrays that take memory of a device: those that are not in host memory."""
    return [array for array in arrays if not in_host_memory(array, snapshot.mesh_of(array))]


def by_group(snapshot: Snapshot, groups: tuple[str, ...]) -> dict[str, int] | None:
    """Return the bytes of each group in the memory of the device with the most.

    They add up to `totals(snapshot, groups).per_device`. Groups without arrays are left out. Return None if
    the bytes of an array are unknown.
    """
    arrays = [array for array in counted_arrays(snapshot) if array.group in groups]
    if not arrays or any(array.bytes_per_device is None for array in arrays):
        return None
    held = in_device_memory(snapshot, arrays)
    by_device = bytes_by_device(snapshot, held)
    fullest = max(by_device, key=lambda device: by_device[device], default=_ANY_DEVICE)
    by_group: dict[str, int] = {}
    for group in groups:
        own = [array for array in held if array.group == group]
        if own:
            of_group = bytes_by_device(snapshot, own)
            by_group[group] = of_group.get(fullest, of_group.get(_ANY_DEVICE, 0))
    return by_group


def bytes_by_device(snapshot: Snapshot, arrays: Iterable[Array]) -> dict[int, int]:
    """Return the bytes of these arrays of a Snapshot on each device, by device id.

    A device holds its part of the arrays on each mesh that it is on, and the shards that are listed for it.
    Without a mesh, the id -1 has the bytes of a device without listed shards. Unknown bytes count as 0.
    """
    alike: Counter[int | None] = Counter()
    listed = []
    for array in arrays:
        if array.shards is None:
            alike[array.mesh] += array.bytes_per_device or 0
        else:
            # It may be on some devices only, such as a step counter.
            listed.append(array)
    held: dict[int, int] = dict(shard_bytes(listed))
    if snapshot.mesh is None:
        everywhere = alike[None]
        return {_ANY_DEVICE: everywhere} | {one: held[one] + everywhere for one in held}
    for index, mesh in snapshot.indexed_meshes():
        if mesh is not None and alike[index]:
            for device in mesh.devices:
                held[device] = held.get(device, 0) + alike[index]
    return held


def counted_program(snapshot: Snapshot) -> str | None:
    """Return the program whose inputs and outputs are counted, or None if all arrays are.

    Arrays of imported or captured programs belong to programs. Several programs then have the same arrays,
    such as parameters, so the one with the most bytes of state and batch is counted.
    """
    counted = [array for array in snapshot.arrays if array.group in (*STATE_GROUPS, "batch")]
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
        else replace(array, bytes=math.prod(array.shape), bytes_per_device=math.prod(array.shard_shape))
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
