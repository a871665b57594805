"""The exceptions of the project, and the form of values in error messages."""

from __future__ import annotations

import json
from typing import Any


class InvalidInput(ValueError):
    """Invalid input. The message is one sentence with the field, the value and the allowed values."""


class Cancelled(BaseException):
    """Raised inside a job if no caller waits for its result.

    It does not derive from `Exception`, so `except Exception` in a job does not catch it.
    """


def shown(value: Any, limit: int = 60) -> str:
    """Return a value for an error message: quoted, on one line, at most `limit` characters."""
    if isinstance(value, (dict, list)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    text = json.dumps(value) if not isinstance(value, str) else repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
