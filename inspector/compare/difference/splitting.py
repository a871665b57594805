"""How a spec splits an array in effect, so that two layouts can be held against each other.

A mesh axis of size 1 splits nothing, so that specs that differ by such axes alone are the same split. Two
meshes may name their axes differently and still put the same blocks on the same devices.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace

import numpy as np

from inspector.core import sharding
from inspector.core.sharding import Placement
from inspector.core.snapshot import Array, Mesh

# Of each dimension the mesh axes that split it, major first, each with its size; all larger than 1.
Split = tuple[tuple[tuple[str, int], ...], ...]


def split_of(array: Array, mesh: Mesh | None) -> Split | None:
    """What the array's spec does on this mesh; None where it has none, or its axes are not of the mesh.

    An entry a dimension; where the shape is not known, up to the last dimension that is split.
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
    """The array with a spec that names only mesh axes larger than 1, which split as the whole spec does."""
    if array.spec is None or mesh is None:
        return array
    idle = {axis.name for axis in mesh.axes if axis.size == 1}
    spec = tuple(
        tuple(name for name in axes or () if name not in idle) or None for axes in array.spec
    )
    return array if spec == array.spec else replace(array, spec=spec)


def trimmed(split: Split) -> Split:
    """The split without the whole dimensions at its end, which a spec may leave out."""
    kept = len(split)
    while kept and not split[kept - 1]:
        kept -= 1
    return split[:kept]


def parts(axes: tuple[tuple[str, int], ...]) -> int:
    """Into how many parts these axes cut a dimension."""
    return math.prod(size for _, size in axes)


def elements_per_device(array: Array, mesh: Mesh | None) -> int | None:
    """Elements of the array that one device holds; None where its shards are uneven or not known."""
    if array.shard_shape is not None:
        return math.prod(array.shard_shape)
    split = split_of(array, mesh)
    if (
        array.shape is None
        or split is None
        or any(size % parts(axes) for size, axes in zip(array.shape, split, strict=True))
    ):
        return None
    return math.prod(size // parts(axes) for size, axes in zip(array.shape, split, strict=True))


class Places:
    """Where arrays of two meshes lie, compared device by device; equal questions are answered once."""

    def __init__(self, before: Mesh | None, after: Mesh | None) -> None:
        self._meshes = (before, after)
        self._known: dict[Hashable, bool | None] = {}
        self._order = _order(before, after)

    def same(self, before: Array, after: Array) -> bool | None:
        """Whether each device holds the same index ranges of both; None where that is not known.

        Devices are the same by their numbers, or by their position where the two meshes number them
        differently. Meshes of different size never hold the same.
        """
        old, new = self._meshes
        if before.shape is None or before.shape != after.shape or old is None or new is None:
            return None
        if before.shards is not None or after.shards is not None:
            return self._compare(before, after)
        splits = split_of(before, old), split_of(after, new)
        if None in splits:
            return None
        key = (before.shape, *splits)
        if key not in self._known:
            self._known[key] = self._compare(before, after)
        return self._known[key]

    def _compare(self, before: Array, after: Array) -> bool | None:
        old, new = self._meshes
        assert old is not None and new is not None
        was, becomes = _place(before, old), _place(after, new)
        if was is None or becomes is None:
            return None
        if self._order is None:
            return False
        return bool(
            (was.starts == becomes.starts[self._order]).all()
            and (was.stops == becomes.stops[self._order]).all()
        )


def _order(before: Mesh | None, after: Mesh | None) -> np.ndarray | None:
    """For each device of the first mesh its position in the second; None if they cannot be paired."""
    if before is None or after is None or before.size != after.size:
        return None
    position = {device: place for place, device in enumerate(after.devices)}
    if position.keys() == set(before.devices):
        return np.array([position[device] for device in before.devices])
    return np.arange(before.size)


def _place(array: Array, mesh: Mesh) -> Placement | None:
    if array.shards is None and split_of(array, mesh) is None:
        return None
    return sharding.place_array(array, mesh)
