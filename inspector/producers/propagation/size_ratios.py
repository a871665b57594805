"""Which mesh axes shard an amount, from the amounts on two meshes that differ in the sizes of their axes.

The size of each axis differs by a power of two, and no two sums of these powers are equal. So the ratio of
two amounts says by which axes they are divided.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from inspector.core.snapshot import Mesh
from inspector.producers.propagation.shardings import Axes


def axes_of(first: float, second: float, powers: Mapping[str, int]) -> Axes | None:
    """Return the axes that divide an amount; None if its ratio is not that of some of them.

    Args:
      first, second: the amount on both meshes.
      powers: the power of two by which each axis of the second mesh is larger.

    >>> sorted(axes_of(32, 8, {"data": 1, "model": 2}))
    ['model']
    """
    if first == second:
        return frozenset()
    if not first or not second:
        return None
    power = math.log2(first / second)
    return next((frozenset(axes) for axes in subsets(powers) if _sum(axes, powers) == power), None)


def subsets(names: Sequence[str] | Mapping[str, int]) -> Iterator[tuple[str, ...]]:
    """Yield all subsets, the smallest first."""
    for count in range(len(names) + 1):
        yield from itertools.combinations(names, count)


def are_distinct(powers: Mapping[str, int]) -> bool:
    """Return whether no two subsets of the axes have the same sum of powers."""
    sums = [_sum(axes, powers) for axes in subsets(powers)]
    return len(set(sums)) == len(sums)


def resized(mesh: Mesh, powers: Mapping[str, int]) -> Mesh:
    """Return a mesh with the sizes of its axes multiplied by powers of two, on devices from 0."""
    axes = tuple(replace(axis, size=int(axis.size * 2.0 ** powers.get(axis.name, 0))) for axis in mesh.axes)
    count = math.prod(axis.size for axis in axes)
    return Mesh(axes, tuple(range(count)), None, mesh.device_kind)


def _sum(axes: Sequence[str], powers: Mapping[str, int]) -> int:
    return sum(powers[axis] for axis in axes)
