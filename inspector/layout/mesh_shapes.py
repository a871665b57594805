"""Shapes of meshes with a given number of devices, and the fields of a mesh."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

SPARE_NAMES = ("x", "y", "z")


def fitted_names(names: str, rank: int, spare: Iterable[str] = SPARE_NAMES) -> list[str]:
    """Return `rank` different axis names: the first ones of the field, then spare ones."""
    typed = (name.strip() for name in names.split(","))
    return list(dict.fromkeys([*typed, *spare]))[:rank]


def fit_axis_names(fields: Any, most: int) -> list[str] | None:
    """Give the field `axes` one name for each axis of the field `mesh`, which may have `most` axes.

    Return the names, or None if nothing changed.
    """
    rank = len(fields["mesh"].replace("×", "x").split("x"))
    if rank > most or rank == len(fields["axes"].split(",")):
        return None
    names = fitted_names(fields["axes"], rank)
    fields["axes"] = ", ".join(names)
    return names


def fitted_spec(spec: str, names: Sequence[str]) -> str:
    """Return the PartitionSpec with None for every entry that has an axis which the mesh lacks."""
    entries = (entry.strip() for entry in spec.split(","))
    return ", ".join(
        entry if all(axis.strip() in names for axis in entry.split("+")) else "None" for entry in entries
    )


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
