"""What a worker tells of a train state that it saved or restored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from inspector.core.snapshot import Snapshot


@dataclass(frozen=True)
class Saved:
    """What was saved: where each array lay, bytes of Orbax's files, seconds that Orbax took."""

    snapshot: Snapshot
    file_bytes: int
    seconds: float
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Compared:
    """One array after it was restored: how many of its elements have other bits, and the first of them."""

    path: str
    elements: int
    unequal: int
    first_unequal: tuple[int, ...] | None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Restored:
    """What was restored: where each array lies, how its values compare, seconds that Orbax took."""

    snapshot: Snapshot
    compared: tuple[Compared, ...]
    seconds: float
    extra: dict[str, Any] = field(default_factory=dict)
