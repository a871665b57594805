"""The result of checking one rule."""

from collections.abc import Callable
from dataclasses import dataclass

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


# Returns the violations in a Snapshot, and why the rule could not be fully checked, or None. Raises
# InvalidInput if the Snapshot lacks a mesh axis, program or array that the rule names.
Check = Callable[[Snapshot], tuple[list[Violation], str | None]]


def name(text: str) -> str:
    """Return a name from a file on one line, quoted and escaped if needed."""
    harmless = text and text.isprintable() and len(text) <= _MAX_NAME
    return text if harmless else shown(text, _MAX_NAME)


def unknown_text(what: str, names: list[str]) -> str | None:
    """Return `unknown size of params/w and 3 more`; None if there are no names."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"unknown {what} of {name(names[0])}{more}" if names else None
