"""What a worker tells of a train state that it saved or restored."""

from __future__ import annotations

from dataclasses import dataclass

from inspector.core.snapshot import Snapshot
from inspector.core.typed_json import FiniteFloat, NonNegativeInt, Record


@dataclass(frozen=True)
class Saved(Record):
    """What was saved: where each array lay, bytes of Orbax's files, seconds that Orbax took."""

    snapshot: Snapshot
    file_bytes: NonNegativeInt
    seconds: FiniteFloat


@dataclass(frozen=True)
class Compared(Record):
    """One array after it was restored: how many of its elements have other bits, and the first of them."""

    path: str
    elements: NonNegativeInt
    unequal: NonNegativeInt
    first_unequal: tuple[NonNegativeInt, ...] | None


@dataclass(frozen=True)
class Restored(Record):
    """What was restored: where each array lies, how its values compare, seconds that Orbax took."""

    snapshot: Snapshot
    compared: tuple[Compared, ...]
    seconds: FiniteFloat
