"""What is raised across the whole project, and how a value stands in an error sentence."""

from __future__ import annotations

import json
from typing import Any


class InvalidInput(ValueError):
    """Input that cannot be used. Its text is one sentence: the field, the value, what is allowed."""


class Cancelled(BaseException):
    """Raised inside a job when nobody waits for its result any more.

    Not an `Exception`, so that a job's own `except Exception` does not swallow it.
    """


def shown(value: Any, limit: int = 60) -> str:
    """A value as it stands in an error sentence: quoted, on one line, cut at `limit` characters."""
    if isinstance(value, (dict, list)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    text = json.dumps(value) if not isinstance(value, str) else repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
