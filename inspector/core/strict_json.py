"""JSON as the standard has it, read from files that nobody vouches for."""

from __future__ import annotations

import codecs
import json
import math
import re
from typing import Any

from inspector.core.errors import InvalidInput, shown

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
# How a text begins that is marked as another encoding; UTF-32 first, for UTF-16 begins like it.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
    (codecs.BOM_UTF8, "UTF-8 with a byte order mark"),
)


def encoding_of(content: bytes) -> str | None:
    """The encoding that a byte order mark at the beginning names; None where there is none."""
    return next((name for mark, name in _BYTE_ORDER_MARKS if content.startswith(mark)), None)


def parse(text: str | bytes, what: str, *, deepest: int | None = None) -> Any:
    """Parse strict JSON: no NaN or Infinity, no repeated key, valid UTF-8, whole characters.

    `deepest` is how many lists and objects may be inside each other; None for as many as can be read.

    Raises:
      InvalidInput: `what` is not such JSON; the sentence says where it stops being so.
    """

    def refuse_constant(name: str) -> None:
        raise InvalidInput(f"{what} holds {name}, which JSON does not know")

    def finite(number: str) -> float:
        value = float(number)
        if not math.isfinite(value):
            raise InvalidInput(f"{what} holds {shown(number)}, which is too large a number")
        return value

    def refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        plain = dict(pairs)
        if len(plain) != len(pairs):
            seen: set[str] = set()
            repeated = next(key for key, _ in pairs if key in seen or seen.add(key))
            raise InvalidInput(f"{what} has the key {shown(repeated)} twice in one object")
        return plain

    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        else:
            text.encode("utf-8")
        value = json.loads(
            text,
            parse_constant=refuse_constant,
            parse_float=finite,
            object_pairs_hook=refuse_repeats,
        )
        if _SURROGATE.search(text):
            # A lone half of a surrogate pair is text to Python, but cannot be printed or sent.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        if deepest is not None:
            _refuse_deep(value, deepest, what)
        return value
    except InvalidInput:
        raise
    except UnicodeDecodeError as error:
        other = encoding_of(text) if isinstance(text, bytes) else None
        hint = f": it begins as {other} does" if other else ""
        raise InvalidInput(f"{what} is not UTF-8 text (byte {error.start}){hint}") from None
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} holds half of a character (a lone surrogate)") from None
    except json.JSONDecodeError as error:
        if isinstance(text, str) and text.startswith("\ufeff"):
            raise InvalidInput(f"{what} is not JSON: it begins with a byte order mark") from None
        raise InvalidInput(
            f"{what} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise InvalidInput(f"{what} is nested too deeply to be read") from None
    except ValueError as error:  # an integer with more digits than Python converts
        raise InvalidInput(f"{what} holds a number that cannot be read: {error}") from None


def _refuse_deep(value: Any, deepest: int, what: str) -> None:
    level, depth = [value], 0
    while level := [
        item
        for outer in level
        if isinstance(outer, (dict, list))
        for item in (outer.values() if isinstance(outer, dict) else outer)
        if isinstance(item, (dict, list))
    ]:
        depth += 1
        if depth >= deepest:
            raise InvalidInput(
                f"{what} is nested more than {deepest} levels deep, which is too deep"
            )
