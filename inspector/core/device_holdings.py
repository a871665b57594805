"""The question the other way round: what some devices hold, and what is lost if they die.

Per array in NumPy, over all devices at once. Two devices hold the same where their index ranges of an array
are equal; ranges that overlap without being equal count as different data.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from inspector.core import sharding
from inspector.core.errors import InvalidInput, shown
from inspector.core.snapshot import Array, Mesh, Snapshot


@dataclass(frozen=True)
class Piece:
    """What the chosen devices hold of one array.

    index: the index ranges of each distinct piece, in the order of their place in the array.
    bytes: of all distinct pieces, each once; `alone` those of them that no other device holds. None where
    the array's bytes are not known.
    elsewhere: the fewest other devices that hold a piece; 0 where one would be lost.
    holders: the other devices with a copy of anything that the chosen ones hold, in mesh order.
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
        """Bytes of which another device has a copy."""
        return None if self.bytes is None or self.alone is None else self.bytes - self.alone


@dataclass(frozen=True)
class Holdings:
    """All that some devices hold.

    devices: those asked about, in mesh order. unknown: paths of arrays whose placement is not known.
    """

    devices: tuple[int, ...]
    pieces: tuple[Piece, ...]
    unknown: tuple[str, ...]

    @property
    def bytes(self) -> int | None:
        return _sum(piece.bytes for piece in self.pieces)

    @property
    def alone(self) -> int | None:
        """Bytes that nobody else holds: what is lost if all of these devices die."""
        return _sum(piece.alone for piece in self.pieces)

    @property
    def lost(self) -> tuple[Piece, ...]:
        """The pieces of which something would be lost, the largest first."""
        lost = [piece for piece in self.pieces if piece.elsewhere == 0]
        return tuple(sorted(lost, key=lambda piece: -(piece.alone or 0)))


@dataclass(frozen=True)
class Everyone:
    """(devices,) arrays in mesh order: bytes that each device holds, and bytes that it alone holds."""

    held: np.ndarray
    alone: np.ndarray


def holdings(
    found: Snapshot, devices: Sequence[int], groups: Sequence[str] | None = None
) -> Holdings:
    """What these devices hold of the arrays of these groups, of all arrays by default.

    Raises:
      InvalidInput: the Snapshot has no mesh, or one of the devices is not on it, or none is given.
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
    """For every device of the mesh, how much it holds and how much it alone holds.

    Arrays whose placement or bytes are not known count nothing.

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
    """(devices,) bytes in mesh order that each device holds of what the chosen ones hold.

    The chosen devices themselves have all that they hold of it.

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
    """The devices of one process (host), in mesh order.

    Raises:
      InvalidInput: the Snapshot does not tell processes, or has no such one.
    """
    mesh = _mesh(found)
    if mesh.processes is None:
        raise InvalidInput("this Snapshot does not tell which process has which device")
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
    """The distinct pieces of an array, and who has which.

    block: (devices,) number of the piece that a device holds, in mesh order; -1 where it holds none.
    starts, stops: (blocks, rank) index ranges. elements, holders: (blocks,) how many of each.
    """

    block: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    elements: np.ndarray
    holders: np.ndarray

    def each(self, values: np.ndarray) -> np.ndarray:
        """(devices,) the value of the block that each device holds, 0 where it holds none."""
        return np.where(self.block >= 0, values[self.block], 0)

    def has_any(self, blocks: np.ndarray) -> np.ndarray:
        """(devices,) whether each device holds one of these blocks."""
        chosen = np.zeros(len(self.holders), bool)
        chosen[blocks] = True
        return (self.block >= 0) & chosen[self.block]


class _Places:
    """The blocks of arrays, found once for all that lie alike."""

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
    """Of explicit shards, which need not be on every device, and of which a device has one at most."""
    position = {device: at for at, device in enumerate(mesh.devices)}
    here = [shard for shard in array.shards or () if shard.device in position]
    places = np.array([position[shard.device] for shard in here], np.int64)
    rank = len(array.shape)
    if not array.shards:  # in the host's memory alone
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
        # In floats no product overflows unseen, and below 2**53 elements they are exact.
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
    """(blocks,) bytes of each block of an array whose bytes are known."""
    every = math.prod(array.shape)
    if not every or array.bytes is None:
        return np.zeros(elements.shape, np.int64)
    return np.rint(elements * (array.bytes / every)).astype(np.int64)


def _mesh(found: Snapshot) -> Mesh:
    if found.mesh is None:
        raise InvalidInput("this Snapshot has no mesh, so nothing is known of its devices")
    return found.mesh


def _positions(devices: Sequence[int], mesh: Mesh) -> np.ndarray:
    """(devices,) whether each device of the mesh is one of these."""
    position = {device: at for at, device in enumerate(mesh.devices)}
    absent = [device for device in devices if device not in position]
    if absent:
        raise InvalidInput(
            f"device is {shown(absent[0])}, but the mesh has {mesh.size} devices, "
            f"{mesh.devices[0]} to {mesh.devices[-1]}"
        )
    if not devices:
        raise InvalidInput("no device is named, but at least one must be")
    chosen = np.zeros(mesh.size, bool)
    chosen[[position[device] for device in devices]] = True
    return chosen


def _sum(numbers) -> int | None:
    known = list(numbers)
    return None if any(number is None for number in known) else sum(known)
