"""Parse JSON files that may be broken or hostile. Only strict JSON is accepted."""

import codecs
import json
import math
import os
import re
from typing import Any

from inspector.files import input_file
from inspector.text.errors import InvalidInput, shown

# Lists and objects inside each other. A mesh of 64 axes is written as 64 lists.
DEEPEST = 96
# JSON text needs as many bytes in memory, but empty lists need 25 times as many. So values are counted too:
# every list, object and comma, because each can begin a value. A Snapshot can list every shard, with 9 values
# in 80 bytes. Different keys are counted, because each needs 200 bytes while its object is read; records have
# a few hundred, and an object with a key for each array 100,000. Measured: the worst text takes 0.7 GB.
MOST_BYTES = 64 * 1024**2
MOST_VALUES = 6_000_000
MOST_KEYS = 500_000

# A string, and a colon if it is a key.
_STRINGS = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"\s*+(:?)', re.S)
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


def read(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> Any:
    """Read and parse a JSON file of at most `most_bytes` bytes and `MOST_VALUES` values.

    Raises:
      InvalidInput: the file cannot be read, is too large, or is not strict JSON.
    """
    return parse(input_file.read_bytes(path, most_bytes), str(path))


def parse(text: str | bytes, what: str, most_values: int = MOST_VALUES) -> Any:
    """Parse strict JSON: no NaN or Infinity, no duplicate key, valid UTF-8, no lone surrogate.

    Values and different keys are counted before parsing. `what` names the input in errors.

    Raises:
      InvalidInput: `text` is not strict JSON, or has more than `most_values` values or `MOST_KEYS` keys.
    """
    _refuse_many(text, what, most_values)

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
            known: set[str] = set()
            for key, _ in pairs:
                if key in known:
                    raise InvalidInput(f"{what} has the key {shown(key)} twice in one object")
                known.add(key)
        return plain

    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        else:
            text.encode("utf-8")
        value = json.loads(
            text, parse_constant=refuse_constant, parse_float=finite, object_pairs_hook=refuse_duplicates
        )
        if _SURROGATE.search(text):
            # Python accepts a lone surrogate, but cannot encode it.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except InvalidInput:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{what} {_fault(error, text)}") from None
    _refuse_deep(value, what)
    return value


def _fault(error: ValueError | RecursionError, text: str | bytes) -> str:
    """Return why Python cannot parse a text, as the end of a sentence."""
    match error:
        case UnicodeDecodeError():
            other = encoding_of(text) if isinstance(text, bytes) else None
            hint = f": it has the byte order mark of {other}" if other else ""
            if isinstance(text, bytes) and text.startswith(input_file.ZIP):
                return "is a zip file, but must be JSON: give the file in it"
            return f"is not UTF-8 text (byte {error.start}){hint}"
        case UnicodeEncodeError():
            return "contains a lone surrogate (half of a character)"
        case json.JSONDecodeError() if isinstance(text, str) and text.startswith("\ufeff"):
            return "is not JSON: it begins with a byte order mark"
        case json.JSONDecodeError():
            return f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        case RecursionError():
            return "is nested too deeply"
    return f"contains a number that cannot be read: {error}"  # with more digits than Python converts


def _refuse_many(text: str | bytes, what: str, most_values: int) -> None:
    """Refuse a text with too many different keys, or lists, objects and commas outside of strings."""
    if len(text) <= min(most_values, MOST_KEYS):
        return
    raw = text.encode("utf-8", "replace") if isinstance(text, str) else text
    if _values(raw, 0, len(raw)) > most_values and _values_outside(raw, most_values) > most_values:
        raise InvalidInput(f"{what} has more than {most_values:,} values, the most that are read")
    if raw.count(b":") > MOST_KEYS:
        keys: set[bytes] = set()
        for string in _STRINGS.finditer(raw):
            if string[2]:
                keys.add(string[1])
                if len(keys) > MOST_KEYS:
                    raise InvalidInput(
                        f"{what} has more than {MOST_KEYS:,} different keys, the most that are read"
                    )


def _values_outside(raw: bytes, most: int) -> int:
    """Return the number of lists, objects and commas outside of strings; any number above `most` if more."""
    seen = at = 0
    for string in _STRINGS.finditer(raw):
        seen += 1 + _values(raw, at, string.start())
        at = string.end()
        if seen > most:
            return seen
    return seen + _values(raw, at, len(raw))


def _values(raw: bytes, start: int, end: int) -> int:
    return sum(raw.count(mark, start, end) for mark in (b"[", b"{", b","))


def _refuse_deep(value: Any, what: str) -> None:
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(DEEPEST):
        parts = (outer.values() if isinstance(outer, dict) else outer for outer in level)
        level = [item for part in parts for item in part if isinstance(item, (dict, list))]
    if level:
        raise InvalidInput(f"{what} is nested too deeply: at most {DEEPEST} levels are allowed")
