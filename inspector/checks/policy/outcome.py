"""The result of checking one rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from inspector.core.errors import shown
from inspector.core.snapshot import Snapshot

_MAX_NAME = 300  # characters


@dataclass(frozen=True)
class Violation:
    """One violation, as one line with the figure and its limit."""

    sentence: str
    array: str | None = None


@dataclass(frozen=True)
class Outcome:
    """The violations of one rule. `unknown` says why it could not be fully checked; None if it was."""

    rule: str
    violations: tuple[Violation, ...] = ()
    unknown: str | None = None

    @property
    def holds(self) -> bool:
        return not self.violations and self.unknown is None


class Rule(Protocol):
    """One rule of a policy. `title` is the name of its table."""

    title: str

    def outcome(self, snapshot: Snapshot) -> Outcome:
        """Check a Snapshot.

        Raises:
          InvalidInput: if the Snapshot lacks a mesh axis, program or array that the rule names.
        """
        ...


def name(text: str) -> str:
    """Return a name from a file on one line, quoted and escaped if needed."""
    harmless = text and text.isprintable() and len(text) <= _MAX_NAME
    return text if harmless else shown(text, _MAX_NAME)


def first_and_more(names: list[str]) -> str:
    """Return the first name and the number of the others: `params/w and 3 more`."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return name(names[0]) + more
