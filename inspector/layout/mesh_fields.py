"""Text fields for a mesh: its axis names and PartitionSpecs follow a change of the mesh's rank."""

from collections.abc import Iterable, Sequence
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
