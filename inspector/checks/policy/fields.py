"""Reading one table of a policy file: every field by its kind, with a sentence for what is wrong."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any

from inspector.core.errors import InvalidInput, shown

# Units of bytes: decimal ones as the SI has them, binary ones as IEC 80000-13 has them.
_DECIMAL = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_BINARY = {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
UNITS = {"b": 1, **_DECIMAL, **_BINARY}
_SIZE = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)\s*([A-Za-z]+)", re.ASCII)
_LARGEST = 2**63 - 1  # bytes; more than that no Snapshot can have

_SIZE_WORDS = (
    'an integer of bytes or a size such as "16 GiB" (B, kB, MB, GB, TB, KiB, MiB, GiB, TiB)'
)


class Fields:
    """One table, read field by field; `finish` refuses what no one asked for."""

    def __init__(self, table: Mapping[str, Any], where: str) -> None:
        self._table = table
        self._asked: list[str] = []
        self.where = where

    def size(self, field: str) -> int | None:
        """Bytes; part of a byte is dropped."""
        value = self._value(field)
        if value is None:
            return None
        if type(value) is int and 0 <= value <= _LARGEST:
            return value
        parts = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
        if parts and parts[2].lower() in UNITS:
            # `Decimal`, because a float cannot hold 0.1 GiB exactly.
            count = int(Decimal(parts[1]) * UNITS[parts[2].lower()])
            if count <= _LARGEST:
                return count
        raise InvalidInput(f"{self._of(field, value)}, but must be {_SIZE_WORDS}")

    def percent(self, field: str) -> Decimal | None:
        value = self._value(field)
        if value is None:
            return None
        if type(value) in (int, Decimal) and Decimal(value).is_finite() and 0 <= value <= 100:
            return Decimal(value)
        raise InvalidInput(f"{self._of(field, value)}, but must be a number from 0 to 100")

    def text(self, field: str) -> str | None:
        value = self._value(field)
        if value is not None and not (isinstance(value, str) and value):
            raise InvalidInput(f"{self._of(field, value)}, but must be text")
        return value

    def texts(self, field: str) -> tuple[str, ...] | None:
        """A list of texts, or one text."""
        value = self._value(field)
        if value is None:
            return None
        listed = [value] if isinstance(value, str) else value
        if (
            isinstance(listed, list)
            and listed
            and all(one and isinstance(one, str) for one in listed)
        ):
            return tuple(listed)
        raise InvalidInput(f"{self._of(field, value)}, but must be a list of texts, one at least")

    def choice(self, field: str, allowed: Collection[str]) -> str | None:
        value = self.text(field)
        if value is not None:
            refuse_unknown(value, allowed, f"{self.where} {field}")
        return value

    def choices(self, field: str, allowed: Collection[str]) -> tuple[str, ...] | None:
        values = self.texts(field)
        for value in values or ():
            refuse_unknown(value, allowed, f"{self.where} {field}")
        return values

    def require(self, *fields: str) -> None:
        """Refuse the table if it has none of these."""
        if not any(field in self._table for field in fields):
            raise InvalidInput(f"{self.where} lacks {' or '.join(fields)}")

    def finish(self) -> None:
        """Refuse a field that nobody asked for."""
        for field in self._table:
            if field not in self._asked:
                raise InvalidInput(
                    f"{self.where} has the field {shown(field)}, but only knows "
                    f"{', '.join(self._asked)}{nearest(field, self._asked)}"
                )

    def _value(self, field: str) -> Any:
        self._asked.append(field)
        return self._table.get(field)

    def _of(self, field: str, value: Any) -> str:
        return f"{self.where} {field} is {_shown(value)}"


def refuse_unknown(value: str, allowed: Collection[str], what: str) -> None:
    """Refuse a name that is not allowed, with the nearest that is.

    Raises:
      InvalidInput: it is not allowed.
    """
    if value not in allowed:
        known = [shown(one) for one in list(allowed)[:20]]
        more = ", …" if len(allowed) > 20 else ""
        raise InvalidInput(
            f"{what} is {shown(value)}, but must be one of {', '.join(known)}{more}"
            f"{nearest(value, allowed)}"
        )


def nearest(value: str, allowed: Collection[str]) -> str:
    """`; the nearest is 'x'`, or nothing where nothing is near."""
    found = difflib.get_close_matches(value, allowed, n=1, cutoff=0.5)
    return f"; the nearest is {shown(found[0], 200)}" if found else ""


def _shown(value: Any) -> str:
    """TOML has values that JSON does not: dates, and decimals as they were written."""
    return shown(value if isinstance(value, (str, int, list, dict)) else str(value))
