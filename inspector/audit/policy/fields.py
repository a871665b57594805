"""Read one table of a policy file field by field, and the outcome of a rule."""

import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from inspector.records.snapshot import Snapshot
from inspector.text import formatting
from inspector.text.errors import InvalidInput, shown

_MAX_NAME = 300  # characters


@dataclass(frozen=True)
class Violation:
    """One violation, as one line with the figure and its limit."""

    sentence: str
    array: str | None = None


@dataclass(frozen=True)
class RuleOutcome:
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


_MAX_DIGITS = 50  # of a percentage
_MAX_CHOICES = 20

_SIZE_ALLOWED = f"an integer of bytes or {formatting.ALLOWED}"


class PolicyTable:
    """One table of a policy file.

    where: the file and the table, for errors. folder: the folder of files that the table names.
    """

    def __init__(self, table: Mapping[str, Any], where: str, folder: Path = Path()) -> None:
        self._table = table
        self._known: list[str] = []
        self.where = where
        self.folder = folder

    def size(self, field: str, required: bool = False) -> int | None:
        """Return bytes, rounded down to an integer."""
        value = self._value(field, required)
        if value is None:
            return None
        if type(value) is int and 0 <= value <= formatting.MOST:
            return value
        count = formatting.parse(value) if isinstance(value, str) else None
        if count is not None:
            return count
        raise self._invalid(field, value, _SIZE_ALLOWED)

    def percent(self, field: str, required: bool = False) -> Decimal | None:
        value = self._value(field, required)
        if value is None:
            return None
        # A tiny number such as 1e-999999999 has too many digits to print.
        if type(value) in (int, Decimal) and 0 <= _finite(value) <= 100:
            number = Decimal(value)
            exponent = number.as_tuple().exponent
            if isinstance(exponent, int) and -_MAX_DIGITS <= exponent <= 2:
                return number
        allowed = f"a number from 0 to 100 with at most {_MAX_DIGITS} digits after the point"
        raise self._invalid(field, value, allowed)

    def text(self, field: str, required: bool = False) -> str | None:
        value = self._value(field, required)
        if value is not None and not (isinstance(value, str) and value):
            raise self._invalid(field, value, "text")
        return value

    def texts(self, field: str) -> tuple[str, ...] | None:
        """Return a list of strings; one string is a list of one."""
        value = self._value(field)
        if value is None:
            return None
        listed = [value] if isinstance(value, str) else value
        if listed and isinstance(listed, list) and all(isinstance(o, str) and o for o in listed):
            return tuple(listed)
        raise self._invalid(field, value, "text or a list of one or more texts")

    def choice(self, field: str, allowed: Collection[str], required: bool = False) -> str | None:
        value = self.text(field, required)
        if value is not None:
            check_known(value, allowed, f"{self.where} {field}")
        return value

    def choices(self, field: str, allowed: Collection[str]) -> tuple[str, ...] | None:
        values = self.texts(field)
        for value in values or ():
            check_known(value, allowed, f"{self.where} {field}")
        return values

    def finish(self) -> None:
        """Raise InvalidInput if the table has a field that was not read."""
        for field in self._table:
            if field not in self._known:
                raise InvalidInput(
                    f"{self.where} has the field {shown(field)}, but must only have "
                    f"{', '.join(self._known)}{nearest(field, self._known)}"
                )

    def _value(self, field: str, required: bool = False) -> Any:
        self._known.append(field)
        if required and field not in self._table:
            raise InvalidInput(f"{self.where} has no field {field}")
        return self._table.get(field)

    def _invalid(self, field: str, value: Any, allowed: str) -> InvalidInput:
        return InvalidInput(f"{self.where} {field} is {shown(value)}, but must be {allowed}")


def check_known(value: str, allowed: Collection[str], what: str) -> None:
    """Raise InvalidInput, with the nearest name, if a name is not allowed."""
    if value not in allowed:
        known = [shown(choice) for choice in list(allowed)[:_MAX_CHOICES]]
        more = ", …" if len(allowed) > _MAX_CHOICES else ""
        raise InvalidInput(
            f"{what} is {shown(value)}, but must be one of {', '.join(known)}{more}{nearest(value, allowed)}"
        )


def nearest(value: str, allowed: Collection[str]) -> str:
    """Return `; the nearest is 'x'`, or an empty string if no name is similar."""
    matches = difflib.get_close_matches(value, allowed, n=1, cutoff=0.5)
    return f"; the nearest is {shown(matches[0], 200)}" if matches else ""


def _finite(value: int | Decimal) -> int | Decimal:
    return value if isinstance(value, int) or value.is_finite() else -1
