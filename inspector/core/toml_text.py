"""Parse TOML files that may be broken or hostile."""

import tomllib
from collections.abc import Callable
from decimal import InvalidOperation
from typing import Any

from inspector.core.errors import InvalidInput, shown

# The time and memory of `tomllib` for one key are quadratic in its parts: a key of 50,000 parts, 100 kB,
# takes 10 GB. A key is on one line, and has a dot between its parts.
_MOST_DOTS = 100  # in one line
_MOST_BITS = 64  # of an integer, as in TOML; one in hexadecimal can have more digits than Python prints


def parse(text: str, what: str, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Return the tables in a text. `what` names it in errors.

    Raises:
      InvalidInput: the text is not TOML, is nested too deeply, or has a line with too many dots or an
        integer of more than 64 bits.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > _MOST_DOTS:
            raise InvalidInput(
                f"{what} has more than {_MOST_DOTS} dots in line {number}: write it in several lines"
            )
    try:
        tables = tomllib.loads(text, parse_float=parse_float)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{what} is not TOML: {error}") from None
    except (RecursionError, InvalidOperation, ValueError):
        raise InvalidInput(f"{what} is nested too deeply, or has a number with too many digits") from None
    _refuse_long_integers(tables, what)
    return tables


def _refuse_long_integers(tables: dict[str, Any], what: str) -> None:
    waiting: list[tuple[str, Any]] = list(tables.items())
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.items()
        elif isinstance(value, list):
            waiting += [(key, item) for item in value]
        elif isinstance(value, int) and value.bit_length() > _MOST_BITS:
            raise InvalidInput(
                f"{what}: {shown(key)} is {shown(value)}, but integers of TOML have at most {_MOST_BITS} bits"
            )
