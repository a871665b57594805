"""The mesh axes that form groups of devices, and the groups of a program that runs on several TPU slices.

Groups contain positions in the device assignment, which is the row-major order of the mesh's devices.
"""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from inspector.compiled.hlo.replica_groups import Groups
from inspector.core.snapshot import Mesh
from inspector.core.tpu_slices import slices_of


def in_each_slice(groups: Groups, devices: int, mesh: Mesh) -> Groups:
    """Return the groups of all slices, if the program is that of one slice; else the groups unchanged.

    XLA compiles one program for all slices. Its positions number the devices of a slice in mesh order.

    Args:
      groups: groups or pairs with positions below `devices`.
      devices: the number of devices of the program.
    """
    slices = slices_of(mesh)
    if slices is None or devices * (int(slices.max()) + 1) != mesh.size:
        return groups
    return _in_each_slice(groups, tuple(slices.tolist()))


@functools.lru_cache(maxsize=64)
def _in_each_slice(groups: Groups, slices: tuple[int, ...]) -> Groups:
    order = np.argsort(np.array(slices), kind="stable").reshape(max(slices) + 1, -1).tolist()
    if max((max(group, default=0) for group in groups), default=0) >= len(order[0]):
        return groups
    return tuple(tuple(own[position] for position in group) for own in order for group in groups)


def axes_of_groups(groups: Groups, mesh: Mesh) -> tuple[str, ...] | None:
    """Return the mesh axes, in mesh order, whose product forms exactly these groups; None if there are none.

    Axes of size 1 are omitted. Groups of one device are formed by no axes: ().
    """
    numbers = numbers_of_groups(groups, mesh.shape)
    return None if numbers is None else tuple(mesh.axis_names[number] for number in numbers)


def axes_of_pairs(pairs: Groups, mesh: Mesh) -> tuple[str, ...] | None:
    """Return the mesh axes along which a source and its target differ; None if one is not on the mesh."""
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    if ends.size and ends.max() >= mesh.size:
        return None
    source, target = (np.array(np.unravel_index(side, mesh.shape)) for side in ends.T)
    differs = (source != target).any(axis=1)
    return tuple(name for name, moved in zip(mesh.axis_names, differs, strict=True) if moved)


def parts_of_axes(groups: Groups, mesh: Mesh) -> tuple[str, ...] | None:
    """Return the parts of mesh axes that form exactly these groups, as Shardy writes them; None without any.

    `data:(2)4` are the four parts of each half of `data`. Whole axes are names.
    """
    factors = [(name, factor) for name in mesh.axis_names for factor in primes_of(mesh.sizes[name])]
    numbers = numbers_of_groups(groups, tuple(factor for _, factor in factors))
    if not numbers:
        return None
    parts: list[str] = []
    for name in mesh.axis_names:
        own = [number for number, (axis, _) in enumerate(factors) if axis == name]
        for first, count in _runs([number in numbers for number in own]):
            before = math.prod(factors[number][1] for number in own[:first])
            size = math.prod(factors[number][1] for number in own[first : first + count])
            parts.append(name if size == mesh.sizes[name] else f"{name}:({before}){size}")
    return tuple(parts)


def primes_of(size: int) -> list[int]:
    """Return the prime factors of a number, the smallest first."""
    primes, factor = [], 2
    while factor * factor <= size:
        while size % factor == 0:
            primes.append(factor)
            size //= factor
        factor += 1
    return [*primes, size] if size > 1 else primes


def _runs(chosen: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Yield the first place and the number of neighbors that are chosen."""
    for is_chosen, places in itertools.groupby(range(len(chosen)), key=chosen.__getitem__):
        if is_chosen:
            listed = list(places)
            yield listed[0], len(listed)


@functools.lru_cache(maxsize=64)
def numbers_of_groups(groups: Groups, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the axes of a mesh of this shape that form exactly these groups, by number; None without any."""
    positions = np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape)
    named = np.array([position for group in groups for position in group], dtype=np.int64)
    if not np.array_equal(np.sort(named), positions.reshape(-1)):
        return None
    first = np.empty(named.size, dtype=np.int64)  # lowest position in the group of each position
    sizes = [len(group) for group in groups]
    first[named] = np.repeat([min(group) for group in groups if group], [n for n in sizes if n])
    with_zero = np.flatnonzero(first == first[0])
    coordinates = np.array(np.unravel_index(with_zero, shape)).reshape(len(shape), -1)
    axes = tuple(np.flatnonzero((coordinates > 0).any(axis=1)).tolist())
    # In groups along these axes, the lowest position is that with index 0 along all of them.
    at_zero = tuple(slice(0, 1) if axis in axes else slice(None) for axis in range(len(shape)))
    expected = np.broadcast_to(positions[at_zero], shape).reshape(-1)
    return axes if np.array_equal(first, expected) else None


def axes_of_parts(groups: Groups, mesh: Mesh) -> tuple[str, ...] | None:
    """Return the mesh axes along which the devices of a group differ, if an axis crosses TPU slices.

    The compiler splits the groups of such an axis into parts inside of each slice, and parts between slices.
    Return None for one slice, for groups that do not contain every device once, or if several groups of the
    same slice are along the same part of the axes.
    """
    slices = slices_of(mesh)
    members = _members(groups)
    if slices is None or members is None:
        return None
    if not np.array_equal(np.sort(members, axis=None), np.arange(mesh.size)):
        return None
    indices = np.array(np.unravel_index(members, mesh.shape))  # (axes, groups, members)
    varies = (indices != indices[:, :, :1]).any(axis=(1, 2))
    if (slices[members] == slices[members[:, :1]]).all():
        keys = np.vstack((indices[~varies][:, :, 0], slices[members[:, 0]]))
        if len(np.unique(keys, axis=1).T) != len(groups):
            return None
    return tuple(name for name, moved in zip(mesh.axis_names, varies, strict=True) if moved)


def _members(groups: Sequence[Sequence[int]]) -> np.ndarray | None:
    """Return (groups, members), or None if groups differ in size."""
    if not groups or len({len(group) for group in groups}) != 1 or not groups[0]:
        return None
    return np.array(groups, dtype=np.int64)
