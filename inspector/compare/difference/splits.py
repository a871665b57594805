"""How a PartitionSpec splits an array on its mesh, comparable between two meshes.

A mesh axis of size 1 splits nothing, so two specs that differ only by such axes are the same split. Two
meshes can name their axes differently and still put the same blocks on the same devices.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np

from inspector.core import sharding
from inspector.core.formatting import mesh_sizes_text
from inspector.core.snapshot import Array, Mesh

# The mesh axes that split one dimension, major axis first, each with its size.
Axes = tuple[tuple[str, int], ...]
# One entry per dimension.
Split = tuple[Axes, ...]


def split_of(array: Array, mesh: Mesh | None) -> Split | None:
    """Return the mesh axes larger than 1 that split each dimension.

    Return None without a spec, or if its axes are not in the mesh. If the shape is unknown, the split ends
    at the last dimension that is split.
    """
    if array.spec is None or mesh is None:
        return None
    sizes = {axis.name: axis.size for axis in mesh.axes}
    if any(name not in sizes for axes in array.spec for name in axes or ()):
        return None
    split = tuple(
        tuple((name, sizes[name]) for name in axes or () if sizes[name] > 1) for axes in array.spec
    )
    return trimmed(split) if array.shape is None else split


def without_idle_axes(array: Array, mesh: Mesh | None) -> Array:
    """Return the array without mesh axes of size 1 in its spec. The split is the same."""
    if array.spec is None or mesh is None:
        return array
    idle = {axis.name for axis in mesh.axes if axis.size == 1}
    spec = tuple(
        tuple(name for name in axes or () if name not in idle) or None for axes in array.spec
    )
    return array if spec == array.spec else replace(array, spec=spec)


def trimmed(split: Split) -> Split:
    """Return the split without unsharded dimensions at its end, which a spec may omit."""
    return split[: max((place + 1 for place, axes in enumerate(split) if axes), default=0)]


def parts(axes: Axes) -> int:
    """Return the number of parts of a dimension that these axes split."""
    return math.prod(size for _, size in axes)


def axes_text(axes: Axes) -> str:
    """Return mesh axes with their sizes: `fsdp 4 × expert 2`, or `unsharded`."""
    return mesh_sizes_text(*zip(*axes, strict=True)) if axes else "unsharded"


def elements_per_device(array: Array, mesh: Mesh | None) -> int | None:
    """Return the number of elements on one device, or None if the shards are uneven or unknown."""
    if array.shard_shape is not None:
        return math.prod(array.shard_shape)
    split = split_of(array, mesh)
    if array.shape is None or split is None:
        return None
    ways = [parts(axes) for axes in split]
    if any(size % way for size, way in zip(array.shape, ways, strict=True)):
        return None
    return math.prod(array.shape) // math.prod(ways)


class Places:
    """Compare placements of arrays on two meshes, device by device.

    Devices are paired by id, or by position if the meshes number them differently. Arrays on meshes of
    different sizes are never placed the same.
    """

    def __init__(self, before: Mesh | None, after: Mesh | None) -> None:
        self._meshes = (before, after)
        self._known: dict[Hashable, bool | None] = {}
        self._order = _order(before, after)

    def same(self, before: Array, after: Array) -> bool | None:
        """Return whether each device holds the same index ranges of both arrays, or None if unknown."""
        if before.shape is None or before.shape != after.shape:
            return None
        pairs = tuple(zip((before, after), self._meshes, strict=True))
        splits = [split_of(array, mesh) for array, mesh in pairs]
        for (array, mesh), split in zip(pairs, splits, strict=True):
            if mesh is None or (array.shards is None and split is None):
                return None
        if before.shards is not None or after.shards is not None:
            return self._compare(pairs)
        key = (before.shape, *splits)
        if key not in self._known:
            self._known[key] = self._compare(pairs)
        return self._known[key]

    def _compare(self, pairs: Sequence[tuple[Array, Mesh | None]]) -> bool | None:
        placed = [sharding.place_array(array, mesh) for array, mesh in pairs if mesh]
        was, now = placed
        if was is None or now is None or self._order is None:
            return None if was is None or now is None else False
        return np.array_equal(was.starts, now.starts[self._order]) and np.array_equal(
            was.stops, now.stops[self._order]
        )


def _order(before: Mesh | None, after: Mesh | None) -> np.ndarray | None:
    """Return the position in `after` of each device of `before`, or None if they cannot be paired."""
    if before is None or after is None or before.size != after.size:
        return None
    position = {device: place for place, device in enumerate(after.devices)}
    if position.keys() == set(before.devices):
        return np.array([position[device] for device in before.devices])
    return np.arange(before.size)
