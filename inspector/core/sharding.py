"""From (shape, spec, mesh) to shards: which block of an array each device holds.

Integer arithmetic on NumPy arrays, the same answers as `jax.sharding.NamedSharding` without JAX. A
*block* is one distinct piece of an array; devices that hold the same block hold replicas of it. All
per-device results are in row-major mesh order, like `Mesh.devices`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from inspector.core.formatting import mesh_axes_text
from inspector.core.snapshot import Array, Mesh, Shard, Spec


@dataclass(frozen=True)
class Indivisible:
    """A dimension that its mesh axes do not divide, which JAX refuses for arrays."""

    dimension: int
    size: int
    axes: tuple[str, ...]
    ways: int

    def text(self, subject: str | None = None) -> str:
        """Return `hidden of size 10 is not divisible by 4 (data × model)`, by default of the dimension."""
        subject = subject or f"dimension {self.dimension}"
        return (
            f"{subject} of size {self.size} is not divisible by "
            f"{self.ways} ({mesh_axes_text(self.axes)})"
        )


@dataclass(frozen=True)
class Placement:
    """Where an array lies, device by device in mesh order.

    starts, stops: (devices, rank) half-open index ranges.
    block: (devices,) number of the block held; blocks are numbered in row-major order of their place.
    replica: (devices,) which copy of its block a device holds, counted in mesh order from 0.
    """

    starts: np.ndarray
    stops: np.ndarray
    block: np.ndarray
    replica: np.ndarray

    @property
    def blocks(self) -> int:
        """The number of distinct blocks."""
        return int(self.block.max()) + 1 if self.block.size else 0


def ways_per_dimension(spec: Spec, mesh: Mesh) -> tuple[int, ...]:
    """How many parts each dimension is cut into."""
    return tuple(mesh.ways(axes) for axes in spec)


def indivisible(shape: Sequence[int], spec: Spec, mesh: Mesh) -> Iterator[Indivisible]:
    """Every dimension that its mesh axes do not divide."""
    for dimension, (size, axes) in enumerate(zip(shape, spec, strict=True)):
        ways = mesh.ways(axes)
        if size % ways:
            yield Indivisible(dimension, size, axes or (), ways)


def shard_shape(shape: Sequence[int], spec: Spec, mesh: Mesh) -> tuple[int, ...]:
    """The shape of one device's piece.

    Raises:
      ValueError: a dimension is not divided by its mesh axes.
    """
    for uneven in indivisible(shape, spec, mesh):
        raise ValueError(uneven.text())
    return tuple(
        size // ways for size, ways in zip(shape, ways_per_dimension(spec, mesh), strict=True)
    )


def replicas(spec: Spec, mesh: Mesh) -> int:
    """The number of devices that hold each element."""
    return mesh.size // math.prod(ways_per_dimension(spec, mesh))


def place(shape: Sequence[int], spec: Spec, mesh: Mesh) -> Placement:
    """Place an array of `shape`, split by `spec`, on every device of the mesh.

    Raises:
      ValueError: a dimension is not divided by its mesh axes.
    """
    piece = np.array(shard_shape(shape, spec, mesh), dtype=np.int64)
    coordinates = _block_coordinates(spec, mesh)
    starts = coordinates * piece
    ways = ways_per_dimension(spec, mesh)
    # Row-major number of the block; a rank-0 array is one block, number 0.
    block = np.zeros(mesh.size, dtype=np.int64)
    for dimension, count in enumerate(ways):
        if shape[dimension]:  # every part of an empty dimension is the same part, as JAX counts
            block = block * count + coordinates[:, dimension]
    return Placement(starts, starts + piece, block, _running_count(block))


def place_array(array: Array, mesh: Mesh) -> Placement | None:
    """Place a Snapshot's array by its explicit shards if it has them, else by its spec.

    None where neither is known or the shape is not, or where the shards leave a device of the mesh out.
    """
    if array.shape is None:
        return None
    if array.shards is not None:
        return _place_shards(array.shards, len(array.shape), mesh)
    if array.spec is None or any(indivisible(array.shape, array.spec, mesh)):
        return None
    return place(array.shape, array.spec, mesh)


def shards(array: Array, mesh: Mesh) -> tuple[Shard, ...] | None:
    """Every device's shard, in mesh order; None where the placement is not known."""
    if array.shards is not None:
        return array.shards
    placement = place_array(array, mesh)
    if placement is None:
        return None
    processes = mesh.processes or (None,) * mesh.size
    ranges = np.stack([placement.starts, placement.stops], axis=-1).tolist()
    return tuple(
        Shard(device, tuple((start, stop) for start, stop in index), replica, process)
        for device, index, replica, process in zip(
            mesh.devices, ranges, placement.replica.tolist(), processes, strict=True
        )
    )


def devices_by_block(placement: Placement, mesh: Mesh) -> list[tuple[int, ...]]:
    """For each block, the ids of the devices that hold it, in mesh order."""
    holders: list[list[int]] = [[] for _ in range(placement.blocks)]
    for device, block in zip(mesh.devices, placement.block.tolist(), strict=True):
        holders[block].append(device)
    return [tuple(held) for held in holders]


def _block_coordinates(spec: Spec, mesh: Mesh) -> np.ndarray:
    """(devices, rank): which part of each dimension a device holds."""
    # Not np.indices, which knows at most 64 axes, and a file may give any number of size 1.
    place_on_axis, stride = {}, mesh.size
    for axis in mesh.axes:
        stride //= axis.size
        place_on_axis[axis.name] = np.arange(mesh.size) // stride % axis.size
    sizes = dict(zip(mesh.axis_names, mesh.shape, strict=True))
    coordinates = np.zeros((mesh.size, len(spec)), dtype=np.int64)
    for dimension, axes in enumerate(spec):
        for axis in axes or ():
            coordinates[:, dimension] *= sizes[axis]
            coordinates[:, dimension] += place_on_axis[axis]
    return coordinates


def _running_count(block: np.ndarray) -> np.ndarray:
    """How often each entry has occurred before it: the replica number that JAX gives."""
    order = np.argsort(block, kind="stable")
    ordered = block[order]
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    run_start = np.maximum.accumulate(np.where(first, np.arange(block.size), 0))
    count = np.empty_like(block)
    count[order] = np.arange(block.size) - run_start
    return count


def _place_shards(explicit: tuple[Shard, ...], rank: int, mesh: Mesh) -> Placement | None:
    by_device = {shard.device: shard for shard in explicit}
    if any(device not in by_device for device in mesh.devices):
        return None
    ordered = [by_device[device] for device in mesh.devices]
    if any(len(shard.index) != rank for shard in ordered):
        return None
    ranges = np.array([shard.index for shard in ordered], dtype=np.int64)
    ranges = ranges.reshape(len(ordered), rank, 2)
    _, block = np.unique(ranges.reshape(len(ordered), 2 * rank), axis=0, return_inverse=True)
    return Placement(
        ranges[..., 0],
        ranges[..., 1],
        block.reshape(-1).astype(np.int64),
        np.array([shard.replica for shard in ordered], dtype=np.int64),
    )
