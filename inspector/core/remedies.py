"""Records of the changes that were tried to make a layout fit into the memory of a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from inspector.core.assessment import MemoryNeed
from inspector.core.typed_json import Record

RemedyKind = Literal["sharding", "rematerialization", "offload", "chips"]


@dataclass(frozen=True)
class Remedy(Record):
    """A change of a layout, and the memory that the changed layout needs.

    Attributes:
      kind: What it changes.
      label: The change in words.
      layout: The changed layout.
      need: Memory of one device of the changed layout. None if it is not valid.
      reason: Why it is not valid.
    """

    kind: RemedyKind
    label: str
    layout: dict[str, Any]
    need: MemoryNeed | None
    reason: str | None = None


@dataclass(frozen=True)
class Remedies(Record):
    """The changes that were tried until one made the layout fit, the smallest first.

    Attributes:
      chip: Name of the chip.
      tried: The changes. All of them are here if none makes the layout fit.
    """

    chip: str
    tried: tuple[Remedy, ...]

    @property
    def best(self) -> Remedy | None:
        """The smallest change with which the layout fits; None if no change was enough."""
        return next((remedy for remedy in self.tried if remedy.need is not None and remedy.need.fits), None)

    @property
    def closest(self) -> Remedy | None:
        """The change with which the layout needs the least memory; None if no change is valid."""
        known = [remedy for remedy in self.tried if remedy.need is not None]
        return min(known, key=lambda remedy: remedy.need.peak_bytes if remedy.need else 0, default=None)
