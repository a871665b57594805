"""What a Snapshot says to one rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from inspector.core.errors import shown
from inspector.core.snapshot import Snapshot

_LONGEST = 300  # characters of a name in a line


@dataclass(frozen=True)
class Violation:
    """One thing that a rule forbids: a sentence on one line with the figure and the limit."""

    sentence: str
    array: str | None = None


@dataclass(frozen=True)
class Outcome:
    """Of one rule: what violates it, and what keeps it from being checked (None where it was)."""

    rule: str
    violations: tuple[Violation, ...] = ()
    unknown: str | None = None

    @property
    def holds(self) -> bool:
        return not self.violations and self.unknown is None


class Rule(Protocol):
    """One demand of a policy; `title` names it in every sentence about it."""

    title: str

    def outcome(self, found: Snapshot) -> Outcome:
        """What this Snapshot says to it.

        Raises:
          InvalidInput: it names a mesh axis, program or array that this Snapshot lacks.
        """
        ...


def name(text: str) -> str:
    """A name from a file on one line: as it is where that is harmless, else quoted and escaped."""
    harmless = text and text.isprintable() and len(text) <= _LONGEST
    return text if harmless else shown(text, _LONGEST)
