"""Compute the bytes that move between devices if a train state changes its layout.

The result is exact and follows from both placements. The part of a device's new shard that was in its old
shard stays on the device. Each other part is sent by the device that held replica 0 of it. This is the
minimum that must move: a restore from a checkpoint reads files and moves more.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from cachetools import LRUCache

from inspector.records.snapshot import Array, Mesh, Snapshot
from inspector.records.typed_json import LARGEST
from inspector.sharding import placement as sharding
from inspector.sharding.placement import Placement
from inspector.sharding.totals import STATE_GROUPS
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import bytes_text, counted

_MATRICES_TO_KEEP = 32  # 2 MB each for 512 devices


@dataclass(frozen=True)
class ArrayTransfer:
    """The effect of a new layout on one array. Bytes are summed over the devices of the new layout.

    Attributes:
      path: Path of the array in its tree, keys joined by "/".
      bytes: Bytes of one copy.
      kept: Bytes that were on the same device before.
      moved: Bytes that were not on the same device before.
    """

    path: str
    bytes: int
    kept: int
    moved: int


@dataclass(frozen=True)
class Transfer:
    """The data that moves when a layout takes over the train state of another layout.

    Attributes:
      sources: Device ids of the layout that saved the state.
      targets: Device ids of the new layout.
      routes: (source device, target device, bytes) of each route. Bytes that stay have the same device twice.
      arrays: All arrays of the train state.
    """

    sources: tuple[int, ...]
    targets: tuple[int, ...]
    routes: tuple[tuple[int, int, int], ...]
    arrays: tuple[ArrayTransfer, ...]


@dataclass(frozen=True)
class TransferTotals:
    """Bytes that stay and bytes that move, summed over the devices of the new layout.

    `senders` and `receivers` count the devices between which they move.
    """

    kept: int
    moved: int
    senders: int
    receivers: int

    @property
    def all(self) -> int:
        return self.kept + self.moved


def transfer(saved: Snapshot, restored: Snapshot) -> Transfer:
    """Return the data that moves from the layout of `saved` to the layout of `restored`.

    Raises:
      InvalidInput: the two do not hold the same train state, or the placement of an array is unknown.
    """
    old_mesh, new_mesh = _mesh(saved, "saved"), _mesh(restored, "restored")
    befores = _train_state(saved)
    afters = _train_state(restored)
    for path in sorted(befores.keys() ^ afters.keys()):
        only = "saved" if path in befores else "restored"
        raise InvalidInput(
            f"only the {only} train state has {shown(path, 200)}, but both must have the same arrays"
        )
    _refuse_too_large(afters.values(), new_mesh)
    matrix = np.zeros((old_mesh.size, new_mesh.size), dtype=np.int64)
    known: LRUCache[Hashable, np.ndarray] = LRUCache(_MATRICES_TO_KEEP)
    records = []
    for path, after in afters.items():
        before = befores[path]
        _refuse_different(before, after)
        # Repeated layers share one matrix. Arrays with explicit shards are rare.
        explicit = before.shards is not None or after.shards is not None
        key = path if explicit else (after.shape, before.spec, after.spec)
        if key not in known:
            was, now = _placed(before, old_mesh, "saved"), _placed(after, new_mesh, "restored")
            known[key] = moving_elements(was, now, old_mesh, new_mesh)
        elements = after.elements or 0
        itemsize = _itemsize(after, elements)
        moving = known[key] * itemsize
        matrix += moving
        kept = int(moving[_same_device(old_mesh, new_mesh)].sum())
        records.append(ArrayTransfer(path, elements * itemsize, kept, int(moving.sum()) - kept))
    return Transfer(
        sources=old_mesh.devices,
        targets=new_mesh.devices,
        routes=tuple(
            (old_mesh.devices[source], new_mesh.devices[target], int(matrix[source, target]))
            for source, target in np.argwhere(matrix).tolist()
        ),
        arrays=tuple(records),
    )


def of_array(saved: Snapshot, restored: Snapshot, path: str) -> Transfer:
    """Return the transfer of one array.

    Raises:
      InvalidInput: one of the two lacks it, or as `transfer`.
    """
    alone = [replace(snapshot, arrays=(snapshot.array(path),)) for snapshot in (saved, restored)]
    return transfer(*alone)


def parts(
    saved: Snapshot, restored: Snapshot, path: str
) -> dict[tuple[int, int], tuple[tuple[int, int], ...]]:
    """Return the index ranges of one array that move on each route.

    A route moves one box: the part of the target's new shard that the source holds.
    """
    old, new = _mesh(saved, "saved"), _mesh(restored, "restored")
    before, after = (
        _placed(saved.array(path), old, "saved"),
        _placed(restored.array(path), new, "restored"),
    )
    rows, columns = _positions(old.devices), _positions(new.devices)
    boxes = {}
    for source, target, _ in of_array(saved, restored, path).routes:
        row, column = rows[source], columns[target]
        starts = np.maximum(before.starts[row], after.starts[column]).tolist()
        stops = np.minimum(before.stops[row], after.stops[column]).tolist()
        boxes[source, target] = tuple(zip(starts, stops, strict=True))
    return boxes


def moving_elements(before: Placement, after: Placement, old: Mesh, new: Mesh) -> np.ndarray:
    """Return the elements that each device of the new mesh takes from each device of the old mesh.

    The shape is (old devices, new devices), both in mesh order. A device keeps the elements that it takes
    from itself. Each column sums to the size of that device's new shard.
    """
    _, first_old = np.unique(before.block, return_index=True)
    _, first_new = np.unique(after.block, return_index=True)
    shared = _overlaps(
        before.starts[first_old], before.stops[first_old],
        after.starts[first_new], after.stops[first_new],
    )  # fmt: skip
    wanted = shared[:, after.block]  # (old blocks, new devices)
    matrix = np.zeros((old.size, new.size), dtype=np.int64)
    matrix[_holders(before)] = wanted
    own_old, own_new = np.nonzero(_same_device(old, new))
    own_block = before.block[own_old]
    kept = wanted[own_block, own_new]
    matrix[_holders(before)[own_block], own_new] -= kept
    matrix[own_old, own_new] += kept
    return matrix


def totals(transfer: Transfer) -> TransferTotals:
    """Return the sums over all routes."""
    kept = sum(size for source, target, size in transfer.routes if source == target)
    moves = [route for route in transfer.routes if route[0] != route[1] and route[2]]
    sources, targets, sizes = zip(*moves, strict=True) if moves else ((), (), ())
    return TransferTotals(kept, sum(sizes), len(set(sources)), len(set(targets)))


def received(transfer: Transfer) -> Counter[int]:
    """Return the bytes that each target device receives. Devices that receive none are left out."""
    by_device: Counter[int] = Counter()
    for source, target, size in transfer.routes:
        if source != target and size:
            by_device[target] += size
    return by_device


def in_words(transfer: Transfer) -> str:
    """Return the totals in a sentence."""
    sums = totals(transfer)
    if not sums.moved:
        return f"Nothing has to move: each device already holds its part ({_on_all(transfer, sums)})."
    by_device = received(transfer)
    most = max(by_device.values())
    busiest = [device for device, size in by_device.items() if size == most]
    who = f"device {busiest[0]}" if len(busiest) == 1 else f"each of {len(busiest)} devices"
    words = (
        f"{_percent(sums.moved, sums.all)} of {_on_all(transfer, sums)} must move: "
        f"{bytes_text(sums.moved)} from {counted(sums.senders, 'device')} "
        f"to {counted(sums.receivers, 'device')}, at most {bytes_text(most)} to {who}."
    )
    return words + (f" {bytes_text(sums.kept)} stay." if sums.kept else " Nothing stays.")


def _on_all(transfer: Transfer, sums: TransferTotals) -> str:
    return f"{bytes_text(sums.all)} on {counted(len(transfer.targets), 'device')}"


def _percent(part: int, whole: int) -> str:
    share = 100 * part / whole
    if share < 1:
        return "Less than 1%"
    return "More than 99%" if 99 < share < 100 else f"{share:.0f}%"


def _mesh(snapshot: Snapshot, which: str) -> Mesh:
    if snapshot.mesh is None:
        raise InvalidInput(f"the mesh of the {which} train state is unknown")
    if any(array.mesh is not None for array in snapshot.arrays if array.group in STATE_GROUPS):
        raise InvalidInput(f"the {which} train state is on {len(snapshot.meshes)} meshes, but must be on one")
    return snapshot.mesh


def _train_state(snapshot: Snapshot) -> dict[str, Array]:
    return {array.path: array for array in snapshot.arrays if array.group in STATE_GROUPS}


def _refuse_different(before: Array, after: Array) -> None:
    for name in ("shape", "dtype", "bytes"):
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            raise InvalidInput(
                f"{name} of {shown(after.path, 200)} is {shown(str(old))} in the saved and "
                f"{shown(str(new))} in the restored train state, but both must be equal"
            )


def _refuse_too_large(arrays: Iterable[Array], mesh: Mesh) -> None:
    # All products and sums must fit in int64.
    if sum(max(a.elements or 0, a.bytes or 0) for a in arrays) * mesh.size > LARGEST:
        raise InvalidInput("the train state is too large: more than 2^63 bytes on all devices")


def _itemsize(array: Array, elements: int) -> int:
    if array.bytes is None or (elements and array.bytes % elements):
        raise InvalidInput(f"the bytes of one element of {shown(array.path, 200)} are unknown")
    return array.bytes // elements if elements else 0


def _placed(array: Array, mesh: Mesh, which: str) -> Placement:
    placement = sharding.place_array(array, mesh)
    if placement is None or not _is_partition(placement, array.elements):
        raise InvalidInput(f"the placement of {shown(array.path, 200)} in the {which} layout is unknown")
    return placement


def _is_partition(placement: Placement, elements: int | None) -> bool:
    """Return whether the distinct blocks cover each element once, as in any JAX sharding."""
    _, first = np.unique(placement.block, return_index=True)
    starts, stops = placement.starts[first], placement.stops[first]
    overlaps = _overlaps(starts, stops, starts, stops)
    own = np.diagonal(overlaps)
    return int(own.sum()) == elements and int(overlaps.sum()) == int(own.sum())


def _overlaps(
    starts: np.ndarray, stops: np.ndarray, other_starts: np.ndarray, other_stops: np.ndarray
) -> np.ndarray:
    """Return (blocks, other blocks): the elements that each pair of blocks shares."""
    common = np.ones((len(starts), len(other_starts)), dtype=np.int64)
    for dimension in range(starts.shape[1]):
        low = np.maximum(starts[:, None, dimension], other_starts[None, :, dimension])
        high = np.minimum(stops[:, None, dimension], other_stops[None, :, dimension])
        common *= np.maximum(high - low, 0)
    return common


def _holders(placement: Placement) -> np.ndarray:
    """Return (blocks,) the position of the device with replica 0 of each block."""
    order = np.lexsort((placement.replica, placement.block))
    _, first = np.unique(placement.block[order], return_index=True)
    return order[first]


def _positions(devices: Sequence[int]) -> dict[int, int]:
    return {device: position for position, device in enumerate(devices)}


def _same_device(old: Mesh, new: Mesh) -> np.ndarray:
    """Return (old devices, new devices): whether both are the same device."""
    same: np.ndarray = np.array(old.devices)[:, None] == np.array(new.devices)[None, :]
    return same
