"""Shapes of meshes with a given number of devices."""

from collections.abc import Iterator
from functools import lru_cache

LARGE_AXES = 4  # the most axes above 1 of a default mesh, and of a search


@lru_cache
def mesh_shape(devices: int, axes: int) -> tuple[int, ...]:
    """Return the most even mesh with this number of axes, smaller axes first.

    Axes after `LARGE_AXES` have size 1.
    """
    return (*mesh_shapes(devices, min(axes, LARGE_AXES))[0], *(1,) * (axes - LARGE_AXES))


def mesh_shapes(devices: int, axes: int) -> list[tuple[int, ...]]:
    """Return every mesh with these numbers of devices and axes, the most even first."""
    return sorted(factorings(devices, axes), key=lambda shape: (sum(shape), shape))


def factorings(number: int, factors: int, least: int = 1) -> Iterator[tuple[int, ...]]:
    """Yield every ordered factorization of `number` into `factors` whole numbers from `least` up."""
    if factors == 1:
        if number >= least:
            yield (number,)
        return
    for first in range(least, number + 1):
        if number % first == 0:
            for rest in factorings(number // first, factors - 1, least):
                yield (first, *rest)
