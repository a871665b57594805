"""Compute the shard of each device from a shape, a PartitionSpec and a mesh.

The results equal those of `jax.sharding.NamedSharding`, but need only NumPy. A *block* is one distinct
part of an array. Devices that hold the same block hold replicas of it. Results per device are in
row-major mesh order, like `Mesh.devices`.
"""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from inspector.records.snapshot import Array, Mesh, Shard, Spec
from inspector.text.formatting import mesh_axes_text


@dataclass(frozen=True)
class Indivisible:
    """A dimension that is not divisible by the size of its mesh axes. JAX rejects such an array."""

    dimension: int
    size: int
    axes: tuple[str, ...]
    ways: int

    def text(self, subject: str | None = None) -> str:
        """Return `hidden of size 10 is not divisible by 4 (data × model)`, by default of the dimension."""
        subject = subject or f"dimension {self.dimension}"
        return f"{subject} of size {self.size} is not divisible by {self.ways} ({mesh_axes_text(self.axes)})"


@dataclass(frozen=True)
class Placement:
    """The shard of each device, in mesh order. Do not modify the arrays: callers share them.

    Attributes:
      starts, stops: (devices, rank) half-open index ranges.
      block: (devices,) number of the device's block. Blocks are numbered in row-major order.
      replica: (devices,) which copy of its block a device holds, counted from 0 in mesh order.
    """

    starts: np.ndarray
    stops: np.ndarray
    block: np.ndarray
    replica: np.ndarray

    @property
    def blocks(self) -> int:
        """Return the number of distinct blocks."""
        return int(self.block.max()) + 1 if self.block.size else 0


def jax_entry(axes: tuple[str, ...] | None) -> str | tuple[str, ...] | None:
    """Return one entry of a Spec in JAX's form: None, one name, or a tuple of names."""
    if not axes:
        return None
    return axes[0] if len(axes) == 1 else axes


def ways_per_dimension(spec: Spec, mesh: Mesh) -> tuple[int, ...]:
    """Return the number of parts of each dimension."""
    return tuple(mesh.ways(axes) for axes in spec)


def indivisible(shape: Sequence[int], spec: Spec, mesh: Mesh) -> Iterator[Indivisible]:
    """Yield each dimension that is not divisible by the size of its mesh axes."""
    for dimension, (size, axes) in enumerate(zip(shape, spec, strict=True)):
        ways = mesh.ways(axes)
        if size % ways:
            yield Indivisible(dimension, size, axes or (), ways)


def shard_shape(shape: Sequence[int], spec: Spec, mesh: Mesh) -> tuple[int, ...]:
    """Return the shape of one shard.

    Raises:
      ValueError: a dimension is not divisible by the size of its mesh axes.
    """
    for uneven in indivisible(shape, spec, mesh):
        raise ValueError(uneven.text())
    return tuple(size // ways for size, ways in zip(shape, ways_per_dimension(spec, mesh), strict=True))


def replicas(spec: Spec, mesh: Mesh) -> int:
    """Return the number of devices that hold each element."""
    return mesh.size // math.prod(ways_per_dimension(spec, mesh))


def place(shape: Sequence[int], spec: Spec, mesh: Mesh) -> Placement:
    """Return the placement of an array of `shape` that is sharded by `spec`.

    Raises:
      ValueError: a dimension is not divisible by the size of its mesh axes.
    """
    place_once = _place_and_keep if mesh.size <= _MAX_DEVICES_TO_KEEP else _place
    return place_once(tuple(shape), spec, mesh)


def _place(shape: tuple[int, ...], spec: Spec, mesh: Mesh) -> Placement:
    piece = np.array(shard_shape(shape, spec, mesh), dtype=np.int64)
    coordinates = _block_coordinates(spec, mesh)
    starts = coordinates * piece
    ways = ways_per_dimension(spec, mesh)
    # Row-major number of the block; a rank-0 array is one block, number 0.
    block = np.zeros(mesh.size, dtype=np.int64)
    for dimension, count in enumerate(ways):
        if shape[dimension]:  # JAX counts all parts of an empty dimension as one
            block = block * count + coordinates[:, dimension]
    return Placement(starts, starts + piece, block, _running_count(block))


# One redraw of a page needs the placement of one array in several figures.
_MAX_DEVICES_TO_KEEP = 16_384
_place_and_keep = functools.lru_cache(maxsize=32)(_place)


def place_array(array: Array, mesh: Mesh) -> Placement | None:
    """Return the placement of an array, from its explicit shards if there are any, or from its spec.

    Return None if the shape or the sharding is unknown, or if a device of the mesh has no shard.
    """
    if array.shape is None:
        return None
    if array.shards is not None:
        placement = place_shards(array, mesh)
        return None if placement is None or placement.block.min() < 0 else placement
    if array.spec is None or any(indivisible(array.shape, array.spec, mesh)):
        return None
    placement = place(array.shape, array.spec, mesh)
    unreduced = tuple(unreduced_axes(array, mesh))
    if not unreduced:
        return placement
    # Devices that differ on unreduced axes hold different partial sums of a block.
    part = _block_coordinates((unreduced,), mesh)[:, 0]
    replica = _running_count(placement.block * mesh.ways(unreduced) + part)
    return replace(placement, replica=replica)


def unreduced_axes(array: Array, mesh: Mesh) -> list[str]:
    """Return the mesh axes on which devices hold partial sums of the array, not copies."""
    return [name for name in mesh.axis_names if name in array.unreduced]


def place_shards(array: Array, mesh: Mesh) -> Placement | None:
    """Return the placement of an array with explicit shards. A device without a shard has block -1.

    Return None if no shard is on the mesh, if a device has two shards, or if the shape is unknown.
    """
    if array.shape is None:
        return None
    position = {device: at for at, device in enumerate(mesh.devices)}
    here = [shard for shard in array.shards or () if shard.device in position]
    at = [position[shard.device] for shard in here]
    rank = len(array.shape)
    if len(set(at)) != len(at) or any(len(shard.index) != rank for shard in here):
        return None
    block, replica = np.full((2, mesh.size), -1, np.int64)
    bounds = np.zeros((mesh.size, 2 * rank), np.int64)
    if here:
        ranges = np.array([shard.index for shard in here], np.int64)
        bounds[at] = ranges.reshape(len(here), 2 * rank)
        block[at] = np.unique(bounds[at], axis=0, return_inverse=True)[1].reshape(-1)
        replica[at] = [shard.replica for shard in here]
    elif array.shards:
        return None
    return Placement(bounds[:, 0::2], bounds[:, 1::2], block, replica)


def shards(array: Array, mesh: Mesh) -> tuple[Shard, ...] | None:
    """Return the shard of each device, in mesh order. Return None if the placement is unknown."""
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
    """Return the ids of the devices that hold each block, in mesh order."""
    holders: list[list[int]] = [[] for _ in range(placement.blocks)]
    for device, block in zip(mesh.devices, placement.block.tolist(), strict=True):
        holders[block].append(device)
    return [tuple(held) for held in holders]


def _block_coordinates(spec: Spec, mesh: Mesh) -> np.ndarray:
    """Return (devices, rank): the part of each dimension that a device holds."""
    # np.indices supports at most 64 axes, but a file can have any number of axes of size 1.
    place_on_axis, stride = {}, mesh.size
    for axis in mesh.axes:
        stride //= axis.size
        place_on_axis[axis.name] = np.arange(mesh.size) // stride % axis.size
    sizes = dict(zip(mesh.axis_names, mesh.shape, strict=True))
    coordinates = np.zeros((mesh.size, len(spec)), dtype=np.int64)
    for dimension, axes in enumerate(spec):
        for name in axes or ():
            coordinates[:, dimension] *= sizes[name]
            coordinates[:, dimension] += place_on_axis[name]
    return coordinates


def _running_count(block: np.ndarray) -> np.ndarray:
    """Return how often each entry occurs before it: JAX's replica id."""
    order = np.argsort(block, kind="stable")
    ordered = block[order]
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    run_start = np.maximum.accumulate(np.where(first, np.arange(block.size), 0))
    count = np.empty_like(block)
    count[order] = np.arange(block.size) - run_start
    return count


def with_unreduced(array: Array, axes: Sequence[str], mesh: Mesh) -> Array:
    """Return the array with unreduced mesh axes, on which devices hold partial sums, not copies."""
    if not axes or array.replicas is None:
        return array
    return replace(array, replicas=array.replicas // mesh.ways(tuple(axes)), unreduced=tuple(axes))


def on_more_axes(shape: Sequence[int], spec: Spec, axes: Sequence[str], sizes: Mapping[str, int]) -> Spec:
    """Return the spec of an array that is sharded over more mesh axes, as ZeRO-1 does with optimizer state.

    Each axis that the spec lacks becomes the minor one of the first dimension whose shard it divides, so that
    each new shard is a part of the old one. If it divides none, it is left out.

    Args:
      sizes: the size of each mesh axis by name.
    """
    entries = list(spec)
    for axis in axes:
        if any(axis in (names or ()) for names in entries):
            continue
        for dimension, names in enumerate(entries):
            ways = math.prod(sizes[name] for name in names or ())
            if shape[dimension] and shape[dimension] % (ways * sizes[axis]) == 0:
                entries[dimension] = (*(names or ()), axis)
                break
    return tuple(entries)
