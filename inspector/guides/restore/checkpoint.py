"""Results of saving and restoring a train state in a worker process."""

from __future__ import annotations

from dataclasses import dataclass

from inspector.core.snapshot import Snapshot
from inspector.core.typed_json import FiniteFloat, NonNegativeInt, Record


@dataclass(frozen=True)
class Saved(Record):
    """A saved state: the sharding of each array, bytes of the files, seconds that Orbax took."""

    snapshot: Snapshot
    file_bytes: NonNegativeInt
    seconds: FiniteFloat


@dataclass(frozen=True)
class Compared(Record):
    """One restored array: the number of elements whose bits changed, and the index of the first."""

    path: str
    elements: NonNegativeInt
    unequal: NonNegativeInt
    first_unequal: tuple[NonNegativeInt, ...] | None


@dataclass(frozen=True)
class Restored(Record):
    """A restored state: the sharding and the comparison of each array, seconds that Orbax took."""

    snapshot: Snapshot
    compared: tuple[Compared, ...]
    seconds: FiniteFloat
