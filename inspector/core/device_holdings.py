"""Compute the data that some devices hold, and the data that is lost if they fail.

Two devices hold the same block of an array if their index ranges are equal. Ranges that overlap without
being equal count as different data.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from inspector.core import sharding
from inspector.core.errors import InvalidInput, shown
from inspector.core.snapshot import Array, Mesh, Snapshot


@dataclass(frozen=True)
class Piece:
    """The blocks of one array on the chosen devices.

    Attributes:
      index: The index ranges of each block, in array order.
      bytes: Bytes of all blocks, each counted once. None if unknown.
      alone: Bytes of the blocks that no other device holds. None if unknown.
      elsewhere: The smallest number of other devices with a copy of a block. 0 if a block would be lost.
      holders: Other devices with a copy of one of these blocks, in mesh order.
    """

    path: str
    group: str
    dtype: str
    index: tuple[tuple[tuple[int, int], ...], ...]
    bytes: int | None
    alone: int | None
    elsewhere: int
    holders: tuple[int, ...]

    @property
    def shared(self) -> int | None:
        """Return the bytes of which another device has a copy."""
        return None if self.bytes is None or self.alone is None else self.bytes - self.alone


@dataclass(frozen=True)
class Holdings:
    """The blocks of all arrays on the chosen devices.

    Attributes:
      devices: The chosen devices, in mesh order.
      unknown: Paths of the arrays whose placement is unknown.
    """

    devices: tuple[int, ...]
    pieces: tuple[Piece, ...]
    unknown: tuple[str, ...]

    @property
    def bytes(self) -> int | None:
        return _sum(piece.bytes for piece in self.pieces)

    @property
    def alone(self) -> int | None:
        """Return the bytes that are lost if all chosen devices fail."""
        return _sum(piece.alone for piece in self.pieces)

    @property
    def lost(self) -> tuple[Piece, ...]:
        """Return the arrays that would lose data, with the largest loss first."""
        lost = [piece for piece in self.pieces if piece.elsewhere == 0]
        return tuple(sorted(lost, key=lambda piece: -(piece.alone or 0)))


@dataclass(frozen=True)
class Everyone:
    """Bytes on each device, and bytes that no other device holds: two (devices,) arrays in mesh order."""

    held: np.ndarray
    alone: np.ndarray


def holdings(
    found: Snapshot, devices: Sequence[int], groups: Sequence[str] | None = None
) -> Holdings:
    """Return the blocks that `devices` hold of the arrays in `groups` (by default of all arrays).

    Raises:
      InvalidInput: the Snapshot has no mesh, a device is not on it, or `devices` is empty.
    """
    mesh = _mesh(found)
    chosen = _positions(devices, mesh)
    places = _Places(mesh)
    pieces, unknown = [], []
    for array in found.arrays:
        if groups is not None and array.group not in groups:
            continue
        placed = places.of(array)
        if placed is None:
            unknown.append(array.path)
        elif (piece := _piece(array, mesh, chosen, placed)) is not None:
            pieces.append(piece)
    return Holdings(
        tuple(mesh.devices[at] for at in np.flatnonzero(chosen).tolist()),
        tuple(pieces),
        tuple(unknown),
    )


def everyone(found: Snapshot, groups: Sequence[str] | None = None) -> Everyone:
    """Return the bytes on each device of the mesh, and the bytes that no other device holds.

    Arrays with unknown placement or unknown bytes are not counted.

    Raises:
      InvalidInput: the Snapshot has no mesh.
    """
    mesh = _mesh(found)
    places = _Places(mesh)
    held, alone = np.zeros(mesh.size, np.int64), np.zeros(mesh.size, np.int64)
    for array in found.arrays:
        placed = places.of(array)
        if placed is None or array.bytes is None or (groups and array.group not in groups):
            continue
        size = _bytes(array, placed.elements)
        held += placed.each(size)
        alone += placed.each(np.where(placed.holders == 1, size, 0))
    return Everyone(held, alone)


def copies_of(
    found: Snapshot, devices: Sequence[int], groups: Sequence[str] | None = None
) -> np.ndarray:
    """Return (devices,) bytes in mesh order: copies of the chosen devices' data on each device.

    For a chosen device these are all its bytes.

    Raises:
      InvalidInput: as `holdings`.
    """
    mesh = _mesh(found)
    chosen = _positions(devices, mesh)
    places = _Places(mesh)
    held = np.zeros(mesh.size, np.int64)
    for array in found.arrays:
        placed = places.of(array)
        if placed is None or array.bytes is None or (groups and array.group not in groups):
            continue
        mine = placed.block[chosen]
        size = placed.each(_bytes(array, placed.elements))
        held += np.where(placed.has_any(mine[mine >= 0]), size, 0)
    return held


def devices_of_process(found: Snapshot, process: int) -> tuple[int, ...]:
    """Return the devices of one process (host), in mesh order.

    Raises:
      InvalidInput: the Snapshot has no process indices, or does not have this process.
    """
    mesh = _mesh(found)
    if mesh.processes is None:
        raise InvalidInput("this Snapshot has no process indices for its devices")
    devices = tuple(
        device
        for device, owner in zip(mesh.devices, mesh.processes, strict=True)
        if owner == process
    )
    if not devices:
        there = ", ".join(map(str, sorted(set(mesh.processes))))
        raise InvalidInput(f"process is {process}, but this Snapshot has {there}")
    return devices


@dataclass(frozen=True)
class _Blocks:
    """The blocks of an array and the devices that hold them.

    Attributes:
      block: (devices,) number of the device's block, in mesh order; -1 for a device without a block.
      starts, stops: (blocks, rank) index ranges.
      elements: (blocks,) number of elements.
      holders: (blocks,) number of devices with this block.
    """

    block: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    elements: np.ndarray
    holders: np.ndarray

    def each(self, values: np.ndarray) -> np.ndarray:
        """Return (devices,) the value of each device's block, 0 for a device without a block."""
        return np.where(self.block >= 0, values[self.block], 0)

    def has_any(self, blocks: np.ndarray) -> np.ndarray:
        """Return (devices,) whether each device holds one of these blocks."""
        chosen = np.zeros(len(self.holders), bool)
        chosen[blocks] = True
        return (self.block >= 0) & chosen[self.block]


class _Places:
    """Computes the blocks of arrays, once for all arrays with the same shape and spec."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._known: dict[Hashable, _Blocks | None] = {}

    def of(self, array: Array) -> _Blocks | None:
        if array.shards is not None:
            return _blocks(array, self._mesh)
        key = (array.shape, array.spec)
        if key not in self._known:
            self._known[key] = _blocks(array, self._mesh)
        return self._known[key]


def _blocks(array: Array, mesh: Mesh) -> _Blocks | None:
    if array.shape is None:
        return None
    if array.shards is not None:
        return _of_shards(array, mesh)
    placement = sharding.place_array(array, mesh)
    if placement is None:
        return None
    return _numbered(placement.block, placement.starts, placement.stops)


def _of_shards(array: Array, mesh: Mesh) -> _Blocks | None:
    """Return the blocks of explicit shards. A device has at most one shard, and may have no shard."""
    position = {device: at for at, device in enumerate(mesh.devices)}
    here = [shard for shard in array.shards or () if shard.device in position]
    places = np.array([position[shard.device] for shard in here], np.int64)
    rank = len(array.shape)
    if not array.shards:  # the array is only in host memory
        nowhere = np.zeros((0, rank), np.int64)
        return _numbered(np.full(mesh.size, -1, np.int64), nowhere, nowhere)
    if not here or len(set(places.tolist())) != len(here):
        return None
    ranges = np.array([shard.index for shard in here], np.int64).reshape(len(here), 2 * rank)
    _, number = np.unique(ranges, axis=0, return_inverse=True)
    block = np.full(mesh.size, -1, np.int64)
    block[places] = number.reshape(-1)
    bounds = np.zeros((mesh.size, 2 * rank), np.int64)
    bounds[places] = ranges
    return _numbered(block, bounds[:, 0::2], bounds[:, 1::2])


def _numbered(block: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> _Blocks:
    held = np.flatnonzero(block >= 0)
    _, first = np.unique(block[held], return_index=True)
    at = held[first]
    return _Blocks(
        block,
        starts[at],
        stops[at],
        # Floats do not overflow, and are exact below 2**53 elements.
        np.prod(stops[at] - starts[at], axis=1, dtype=float),
        np.bincount(block[held]),
    )


def _piece(array: Array, mesh: Mesh, chosen: np.ndarray, blocks: _Blocks) -> Piece | None:
    mine = blocks.block[chosen]
    held = np.unique(mine[mine >= 0])
    if not held.size:
        return None
    among_chosen = np.bincount(mine[mine >= 0], minlength=len(blocks.holders))
    others = (blocks.holders - among_chosen)[held]
    sharing = blocks.has_any(held) & ~chosen
    size = None if array.bytes is None else _bytes(array, blocks.elements)[held]
    ranges = np.stack([blocks.starts[held], blocks.stops[held]], axis=-1).tolist()
    return Piece(
        path=array.path,
        group=array.group,
        dtype=array.dtype,
        index=tuple(tuple((start, stop) for start, stop in index) for index in ranges),
        bytes=None if size is None else int(size.sum()),
        alone=None if size is None else int(size[others == 0].sum()),
        elsewhere=int(others.min()),
        holders=tuple(mesh.devices[place] for place in np.flatnonzero(sharing).tolist()),
    )


def _bytes(array: Array, elements: np.ndarray) -> np.ndarray:
    """Return (blocks,) bytes of each block. The bytes of the array must be known."""
    every = math.prod(array.shape)
    if not every or array.bytes is None:
        return np.zeros(elements.shape, np.int64)
    return np.rint(elements * (array.bytes / every)).astype(np.int64)


def _mesh(found: Snapshot) -> Mesh:
    if found.mesh is None:
        raise InvalidInput("this Snapshot has no mesh, so its devices are unknown")
    return found.mesh


def _positions(devices: Sequence[int], mesh: Mesh) -> np.ndarray:
    """Return (devices,) whether each device of the mesh is in `devices`."""
    position = {device: at for at, device in enumerate(mesh.devices)}
    absent = [device for device in devices if device not in position]
    if absent:
        raise InvalidInput(
            f"device is {shown(absent[0])}, but the mesh has {mesh.size} devices, "
            f"{mesh.devices[0]} to {mesh.devices[-1]}"
        )
    if not devices:
        raise InvalidInput("devices is empty, but must name at least one device")
    chosen = np.zeros(mesh.size, bool)
    chosen[[position[device] for device in devices]] = True
    return chosen


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = list(numbers)
    return None if any(number is None for number in known) else sum(known)
