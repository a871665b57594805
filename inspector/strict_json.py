"""JSON as the standard has it, read from files that nobody vouches for."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from inspector.errors import Refused, shown

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse(text: str | bytes, what: str) -> Any:
    """Parse strict JSON: no NaN or Infinity, no repeated key, valid UTF-8, whole characters.

    Raises:
      Refused: `what` is not such JSON; the sentence says where it stops being so.
    """

    def refuse_constant(name: str) -> None:
        raise Refused(f"{what} holds {name}, which JSON does not know")

    def finite(number: str) -> float:
        value = float(number)
        if not math.isfinite(value):
            raise Refused(f"{what} holds {shown(number)}, which is too large a number")
        return value

    def refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        plain = dict(pairs)
        if len(plain) != len(pairs):
            seen: set[str] = set()
            repeated = next(key for key, _ in pairs if key in seen or seen.add(key))
            raise Refused(f"{what} has the key {shown(repeated)} twice in one object")
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
        return value
    except Refused:
        raise
    except UnicodeDecodeError as error:
        raise Refused(f"{what} is not UTF-8 text (byte {error.start})") from None
    except UnicodeEncodeError:
        raise Refused(f"{what} holds half of a character (a lone surrogate)") from None
    except json.JSONDecodeError as error:
        raise Refused(
            f"{what} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise Refused(f"{what} is nested too deeply to be read") from None
    except ValueError as error:  # an integer with more digits than Python converts
        raise Refused(f"{what} holds a number that cannot be read: {error}") from None
