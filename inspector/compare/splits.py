"""How a PartitionSpec splits an array on its mesh, comparable between two meshes.

A mesh axis of size 1 splits nothing, so two specs that differ only by such axes are the same split. Two
meshes can name their axes differently and still put the same blocks on the same devices.
"""

import math
from collections.abc import Callable, Hashable
from dataclasses import replace

import numpy as np

from inspector.records.snapshot import Array, Mesh
from inspector.sharding.placement import place_array
from inspector.sharding.rules.entries import without_size_1
from inspector.text.formatting import mesh_sizes_text

# The mesh axes that split one dimension, major axis first, each with its size.
Axes = tuple[tuple[str, int], ...]
# One entry per dimension.
Split = tuple[Axes, ...]


def split_of(array: Array | None, mesh: Mesh | None) -> Split | None:
    """Return the mesh axes larger than 1 that split each dimension.

    Return None without an array or a spec, or if its axes are not in the mesh. If the shape is unknown, the
    split ends at the last dimension that is split.
    """
    if array is None or array.spec is None or mesh is None:
        return None
    sizes = mesh.sizes
    if any(name not in sizes for axes in array.spec for name in axes or ()):
        return None
    split = tuple(tuple((name, sizes[name]) for name in axes or () if sizes[name] > 1) for axes in array.spec)
    return trimmed(split) if array.shape is None else split


def axes_of(array: Array, dimension: int) -> tuple[str, ...]:
    """Return the mesh axes that the spec gives a dimension, whatever their sizes."""
    spec = array.spec or ()
    return (spec[dimension] if dimension < len(spec) else None) or ()


def larger_axes(mesh: Mesh) -> Axes:
    """Return the axes of a mesh that are larger than 1."""
    return tuple((axis.name, axis.size) for axis in mesh.axes if axis.size > 1)


def without_idle_axes(array: Array, mesh: Mesh | None) -> Array:
    """Return the array without mesh axes of size 1 in its spec. The split is the same."""
    if array.spec is None or mesh is None:
        return array
    return replace(array, spec=without_size_1(array.spec, mesh))


def trimmed(split: Split) -> Split:
    """Return the split without unsharded dimensions at its end, which a spec may omit."""
    return split[: max((place + 1 for place, axes in enumerate(split) if axes), default=0)]


def parts(axes: Axes) -> int:
    """Return the number of parts of a dimension that these axes split."""
    return math.prod(size for _, size in axes)


def axes_text(axes: Axes, none: str = "unsharded") -> str:
    """Return mesh axes with their sizes: `fsdp 4 × expert 2`, or `none`."""
    return mesh_sizes_text(*zip(*axes, strict=True)) if axes else none


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


def same_placement(before: Mesh | None, after: Mesh | None) -> Callable[[Array, Array], bool | None]:
    """Return a function that compares the placements of two arrays, device by device.

    It returns whether each device holds the same index ranges of both arrays, or None if unknown. Devices
    are paired by id, or by position if the meshes number them differently. Arrays on meshes of different
    sizes are never placed the same.
    """
    if before is None or after is None:
        return lambda array, other: None
    order: np.ndarray | None = None
    if before.size == after.size:
        at = {device: place for place, device in enumerate(after.devices)}
        same_ids = at.keys() == set(before.devices)
        order = np.array([at[d] for d in before.devices] if same_ids else range(after.size))
    known: dict[Hashable, bool | None] = {}

    def compare(array: Array, other: Array) -> bool | None:
        was, now = (
            None if each.shards is None and split_of(each, mesh) is None else place_array(each, mesh)
            for each, mesh in ((array, before), (other, after))
        )
        if was is None or now is None or array.shape != other.shape:
            return None
        return order is not None and all(
            np.array_equal(old, new[order]) for old, new in ((was.starts, now.starts), (was.stops, now.stops))
        )

    def same(array: Array, other: Array) -> bool | None:
        key = (array.shape, array.spec, array.shards, other.shape, other.spec, other.shards)
        if key not in known:
            known[key] = compare(array, other)
        return known[key]

    return same
