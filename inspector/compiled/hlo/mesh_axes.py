"""Which axes of a mesh a collective runs along."""

from __future__ import annotations

import functools

import numpy as np

from inspector.compiled.hlo.replica_groups import Groups
from inspector.core.snapshot import Mesh


def axes_of_groups(groups: Groups, mesh: Mesh) -> tuple[str, ...] | None:
    """The mesh axes, in the mesh's order, whose product makes exactly these groups; None if none do.

    Axes of size 1 are left out. Groups of one device each are those of no axes at all: ().
    """
    numbers = _axes_of_groups(groups, mesh.shape)
    return None if numbers is None else tuple(mesh.axis_names[number] for number in numbers)


def axes_of_moves(moves: tuple[tuple[int, int], ...], mesh: Mesh) -> tuple[str, ...] | None:
    """The mesh axes along which a source and its target differ; None where one is not on the mesh."""
    ends = np.array(moves, dtype=np.int64).reshape(-1, 2)
    if ends.size and ends.max() >= mesh.size:
        return None
    source, target = (np.array(np.unravel_index(side, mesh.shape)) for side in ends.T)
    differs = (source != target).any(axis=1)
    return tuple(
        name for name, moved in zip(mesh.axis_names, differs.tolist(), strict=True) if moved
    )


@functools.lru_cache(maxsize=64)
def _axes_of_groups(groups: Groups, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    positions = np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape)
    named = np.array([position for group in groups for position in group], dtype=np.int64)
    if not np.array_equal(np.sort(named), positions.reshape(-1)):
        return None
    first = np.empty(named.size, dtype=np.int64)  # of the group that a position is in
    sizes = [len(group) for group in groups]
    first[named] = np.repeat([min(group) for group in groups if group], [n for n in sizes if n])
    with_zero = np.flatnonzero(first == first[0])
    coordinates = np.array(np.unravel_index(with_zero, shape)).reshape(len(shape), -1)
    axes = tuple(np.flatnonzero((coordinates > 0).any(axis=1)).tolist())
    # These axes' own groups: a position is in that of the position which is 0 along all of them.
    at_zero = tuple(slice(0, 1) if axis in axes else slice(None) for axis in range(len(shape)))
    expected = np.broadcast_to(positions[at_zero], shape).reshape(-1)
    return axes if np.array_equal(first, expected) else None
