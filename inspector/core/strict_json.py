"""Parse JSON files that may be broken or hostile. Only strict JSON is accepted."""

from __future__ import annotations

import codecs
import json
import math
import os
import re
from pathlib import Path
from typing import Any

from inspector.core.errors import InvalidInput, shown

# Lists and objects inside each other. A mesh of 64 axes is written as 64 lists.
DEEPEST = 96

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
# UTF-32 comes first because the mark of UTF-16 is a prefix of its mark.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
    (codecs.BOM_UTF8, "UTF-8 with a byte order mark"),
)


def encoding_of(content: bytes) -> str | None:
    """Return the encoding that the byte order mark names. Return None if there is no mark."""
    return next((name for mark, name in _BYTE_ORDER_MARKS if content.startswith(mark)), None)


def read(path: str | os.PathLike[str], most_bytes: int | None = None) -> Any:
    """Read and parse a JSON file of at most `most_bytes` bytes.

    Raises:
      InvalidInput: the file cannot be read, is too large, or is not strict JSON.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read() if most_bytes is None else file.read(most_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        reason = getattr(error, "strerror", None) or str(error)
        name = str(path) if str(path).isprintable() else shown(str(path))
        raise InvalidInput(f"{name} cannot be read: {reason}") from None
    if most_bytes is not None and len(content) > most_bytes:
        raise InvalidInput(f"{path} has more than {most_bytes:,} bytes, which is the limit")
    return parse(content, str(path))


def parse(text: str | bytes, what: str) -> Any:
    """Parse strict JSON: no NaN or Infinity, no duplicate key, valid UTF-8, no lone surrogate.

    `what` names the input in errors.

    Raises:
      InvalidInput: `text` is not strict JSON.
    """

    def refuse_constant(name: str) -> None:
        raise InvalidInput(f"{what} contains {name}, which JSON does not allow")

    def finite(number: str) -> float:
        value = float(number)
        if not math.isfinite(value):
            raise InvalidInput(f"{what} contains {shown(number)}, which is too large a number")
        return value

    def refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        plain = dict(pairs)
        if len(plain) != len(pairs):
            keys = [key for key, _ in pairs]
            duplicate = next(key for i, key in enumerate(keys) if key in keys[:i])
            raise InvalidInput(f"{what} has the key {shown(duplicate)} twice in one object")
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
            object_pairs_hook=refuse_duplicates,
        )
        if _SURROGATE.search(text):
            # Python accepts a lone surrogate, but cannot encode it.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except InvalidInput:
        raise
    except UnicodeDecodeError as error:
        other = encoding_of(text) if isinstance(text, bytes) else None
        hint = f": it has the byte order mark of {other}" if other else ""
        raise InvalidInput(f"{what} is not UTF-8 text (byte {error.start}){hint}") from None
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} contains a lone surrogate (half of a character)") from None
    except json.JSONDecodeError as error:
        if isinstance(text, str) and text.startswith("\ufeff"):
            raise InvalidInput(f"{what} is not JSON: it begins with a byte order mark") from None
        raise InvalidInput(
            f"{what} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise InvalidInput(f"{what} is nested too deeply") from None
    except ValueError as error:  # an integer with more digits than Python converts
        raise InvalidInput(f"{what} contains a number that cannot be read: {error}") from None
    _refuse_deep(value, what)
    return value


def _refuse_deep(value: Any, what: str) -> None:
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(DEEPEST):
        parts = (outer.values() if isinstance(outer, dict) else outer for outer in level)
        level = [item for part in parts for item in part if isinstance(item, (dict, list))]
    if level:
        raise InvalidInput(f"{what} is nested too deeply: at most {DEEPEST} levels are allowed")
