"""Parse TOML files that may be broken or hostile."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from decimal import InvalidOperation
from typing import Any

from inspector.core.errors import InvalidInput

# The time and memory of `tomllib` for one key are quadratic in its parts: a key of 50,000 parts, 100 kB,
# takes 10 GB. A key is on one line, and has a dot between its parts.
_MOST_DOTS = 100  # in one line


def parse(text: str, what: str, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Return the tables in a text. `what` names it in errors.

    Raises:
      InvalidInput: the text is not TOML, is nested too deeply, or has a line with too many dots.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > _MOST_DOTS:
            raise InvalidInput(
                f"{what} has more than {_MOST_DOTS} dots in line {number}: write it in several lines"
            )
    try:
        return tomllib.loads(text, parse_float=parse_float)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{what} is not TOML: {error}") from None
    except (RecursionError, InvalidOperation, ValueError):
        raise InvalidInput(
            f"{what} is nested too deeply, or has a number with too many digits"
        ) from None
