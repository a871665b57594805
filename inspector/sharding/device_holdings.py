"""Compute the data that some devices hold.

Two devices hold the same block of an array if their index ranges are equal. Ranges that overlap without
being equal count as different data.
"""

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from inspector.records.snapshot import Array, Mesh, Snapshot
from inspector.records.statistics import sum_known
from inspector.sharding import placement as sharding
from inspector.sharding.memory_kinds import in_host_memory, memory_kind
from inspector.sharding.meshes import mesh_of_all_devices
from inspector.sharding.totals import counted_arrays
from inspector.text.errors import InvalidInput, shown


@dataclass(frozen=True)
class HeldPiece:
    """The blocks of one array on the chosen devices.

    Attributes:
      index: The index ranges of each block, in array order.
      bytes: Bytes of all blocks, each counted once. None if unknown.
      holders: Other devices with a copy of one of these blocks, in mesh order.
      memory_kind: The memory that holds it, as JAX names it. None if unknown.
      in_host: Whether it is in host memory.
    """

    path: str
    group: str
    dtype: str
    index: tuple[tuple[tuple[int, int], ...], ...]
    bytes: int | None
    holders: tuple[int, ...]
    memory_kind: str | None = None
    in_host: bool = False


@dataclass(frozen=True)
class Holdings:
    """The blocks of all arrays on the chosen devices.

    Attributes:
      devices: The chosen devices, in mesh order.
      unknown: Paths of the arrays whose placement is unknown.
    """

    devices: tuple[int, ...]
    pieces: tuple[HeldPiece, ...]
    unknown: tuple[str, ...]

    @property
    def bytes(self) -> int | None:
        """Return the bytes in device memory."""
        return sum_known(piece.bytes for piece in self.pieces if not piece.in_host)

    @property
    def host(self) -> int | None:
        """Return the bytes in host memory."""
        return sum_known(piece.bytes for piece in self.pieces if piece.in_host)


def holdings(snapshot: Snapshot, devices: Sequence[int], groups: Sequence[str] | None = None) -> Holdings:
    """Return the blocks that `devices` hold of the arrays in `groups` (by default of all arrays).

    Raises:
      InvalidInput: the Snapshot has no mesh, a device is not on it, or `devices` is empty.
    """
    mesh = _mesh(snapshot)
    chosen = _positions(devices, mesh)
    pieces, unknown = [], []
    for array, blocks in _placed(snapshot, mesh, groups):
        if blocks is None:
            unknown.append(array.path)
        elif (piece := _piece(array, mesh, chosen, blocks)) is not None:
            pieces.append(piece)
    return Holdings(
        tuple(mesh.devices[at] for at in np.flatnonzero(chosen).tolist()), tuple(pieces), tuple(unknown)
    )


def copies_of(snapshot: Snapshot, devices: Sequence[int], groups: Sequence[str] | None = None) -> np.ndarray:
    """Return (devices,) bytes, in the order of `mesh_of_all_devices`: copies of the chosen devices' data.

    For a chosen device these are all its bytes.

    Raises:
      InvalidInput: as `holdings`.
    """
    mesh = _mesh(snapshot)
    chosen = _positions(devices, mesh)
    held = np.zeros(mesh.size, np.int64)
    for array, blocks in _placed(snapshot, mesh, groups):
        if blocks is not None and array.bytes is not None:
            size = np.append(_bytes(array, blocks.elements), 0)[blocks.block]  # 0 without a block
            held += np.where(np.isin(blocks.block, blocks.block[chosen]), size, 0)
    return held


def devices_of_process(snapshot: Snapshot, process: int) -> tuple[int, ...]:
    """Return the devices of one process (host), in mesh order.

    Raises:
      InvalidInput: the Snapshot has no process indices, or does not have this process.
    """
    mesh = _mesh(snapshot)
    if mesh.processes is None:
        raise InvalidInput("this Snapshot has no process indices for its devices")
    devices = tuple(
        device for device, owner in zip(mesh.devices, mesh.processes, strict=True) if owner == process
    )
    if not devices:
        there = ", ".join(map(str, sorted(set(mesh.processes))))
        raise InvalidInput(f"process is {process}, but must be one of those in the Snapshot: {there}")
    return devices


@dataclass(frozen=True)
class _Blocks:
    """The blocks of an array and the devices that hold them.

    Attributes:
      block: (devices,) number of the device's block, in mesh order; -1 for a device without a block.
      starts, stops: (blocks, rank) index ranges.
      elements: (blocks,) number of elements.
    """

    block: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    elements: np.ndarray


def _placed(
    snapshot: Snapshot, mesh: Mesh, groups: Sequence[str] | None
) -> Iterator[tuple[Array, _Blocks | None]]:
    """Yield each array of `groups`, or of all groups if None, with its blocks.

    The blocks are None if the placement is unknown.
    """
    known: dict[Hashable, _Blocks | None] = {}
    for array in counted_arrays(snapshot):
        if groups is not None and array.group not in groups:
            continue
        key = array.path if array.shards is not None else (array.shape, array.spec, array.mesh)
        if key not in known:
            known[key] = _blocks(_on_all_devices(array, snapshot), mesh)
        yield array, known[key]


def _on_all_devices(array: Array, snapshot: Snapshot) -> Array:
    """Return the array as it is on the mesh of all devices: with several meshes, its shards are listed."""
    own = snapshot.mesh_of(array)
    if not snapshot.other_meshes or own is None or array.shards is not None:
        return array
    return replace(array, spec=None, shards=sharding.shards(array, own), mesh=None)


def _blocks(array: Array, mesh: Mesh) -> _Blocks | None:
    place = sharding.place_array if array.shards is None else sharding.place_shards
    placement = place(array, mesh)
    if placement is None:
        return None
    held = np.flatnonzero(placement.block >= 0)
    _, first = np.unique(placement.block[held], return_index=True)
    starts, stops = placement.starts[held[first]], placement.stops[held[first]]
    return _Blocks(
        placement.block,
        starts,
        stops,
        # Floats do not overflow, and are exact below 2**53 elements.
        np.prod(stops - starts, axis=1, dtype=float),
    )


def _piece(array: Array, mesh: Mesh, chosen: np.ndarray, blocks: _Blocks) -> HeldPiece | None:
    mine = blocks.block[chosen]
    held = np.unique(mine[mine >= 0])
    if not held.size:
        return None
    sharing = np.isin(blocks.block, held) & ~chosen
    size = None if array.bytes is None else _bytes(array, blocks.elements)[held]
    ranges = np.stack([blocks.starts[held], blocks.stops[held]], axis=-1).tolist()
    return HeldPiece(
        path=array.path,
        group=array.group,
        dtype=array.dtype,
        index=tuple(tuple((start, stop) for start, stop in index) for index in ranges),
        bytes=None if size is None else int(size.sum()),
        holders=tuple(mesh.devices[place] for place in np.flatnonzero(sharing).tolist()),
        memory_kind=memory_kind(array),
        in_host=in_host_memory(array, mesh),
    )


def _bytes(array: Array, elements: np.ndarray) -> np.ndarray:
    """Return (blocks,) bytes of each block. The bytes of the array must be known."""
    every = math.prod(array.shape or ())
    if not every or array.bytes is None:
        return np.zeros(elements.shape, np.int64)
    return np.rint(elements * (array.bytes / every)).astype(np.int64)


def _mesh(snapshot: Snapshot) -> Mesh:
    mesh = mesh_of_all_devices(snapshot)
    if mesh is None:
        raise InvalidInput("this Snapshot has no mesh, so its devices are unknown")
    return mesh


def _positions(devices: Sequence[int], mesh: Mesh) -> np.ndarray:
    """Return (devices,) whether each device of the mesh is in `devices`."""
    known = set(mesh.devices)
    absent = next((device for device in devices if device not in known), None)
    if absent is not None:
        raise InvalidInput(
            f"device is {shown(absent)}, but the mesh has {mesh.size} devices, "
            f"{mesh.devices[0]} to {mesh.devices[-1]}"
        )
    if not devices:
        raise InvalidInput("devices is empty, but must name at least one device")
    return np.isin(mesh.devices, devices)
