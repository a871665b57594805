"""The exceptions of the project, and the form of values in error messages."""

import difflib
import json
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from inspector.text.printable import one_line

Value = TypeVar("Value")

_MOST_CHOICES = 8  # names that an error lists in full
_SIMILAR = 3
_TRACEBACK = "Traceback (most recent call last):"
_MOST_OF_COMPILER = 2000  # characters: XLA names the cause in one of the first lines

LONGEST_SENTENCE = 300  # characters of an error
_MOST_SENTENCES = 5  # of an error about several fields
# Such as an unknown name or a path, but not an option of the command line.
_WORDS = re.compile(r"(?<!\S)(?!--[\w-]{1,40}(?!\S))\S{21,}")
_LONGEST_WORDS = (120, 60, 20)  # characters, tried in turn


class InvalidInput(ValueError):
    """Invalid input. The message is one sentence with the field, the value and the allowed values.

    It has at most `LONGEST_SENTENCE` characters, whatever names and values of the input are quoted in it.
    With a sentence for each of several fields, those of the first fields are kept.
    """

    def __init__(self, *sentences: str) -> None:
        first = [bounded(sentence) for sentence in sentences[:_MOST_SENTENCES]]
        more = len(sentences) - len(first)
        super().__init__("; ".join([*first, f"and {more} more"] if more else first))


class Cancelled(BaseException):
    """Raised inside a job if no caller waits for its result.

    It does not derive from `Exception`, so `except Exception` in a job does not catch it.
    """


def bounded(sentence: str) -> str:
    """Return a sentence of at most `LONGEST_SENTENCE` characters.

    A longer one loses the middle of its longest words, and then its own middle: the field is at its begin,
    and what to do at its end.

    >>> len(bounded("the model is " + "x" * 9000 + ", but must be mlp"))
    149
    """
    for longest in _LONGEST_WORDS:
        if len(sentence) <= LONGEST_SENTENCE:
            return sentence

        def shorter(word: re.Match[str], longest: int = longest) -> str:
            return _without_middle(word[0], longest)

        sentence = _WORDS.sub(shorter, sentence)
    return _without_middle(sentence, LONGEST_SENTENCE)


def _without_middle(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    end = (most - 1) // 3
    return f"{text[: most - 1 - end]}…{text[-end:]}"


def shown(value: Any, limit: int = 60) -> str:
    """Return a value for an error message: quoted, on one line, at most `limit` characters."""
    if isinstance(value, (dict, list)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    try:
        plain = isinstance(value, (int, float)) or value is None
        text = json.dumps(value) if plain else repr(str(value)[:limit])
    except ValueError:  # Python does not print an integer of thousands of digits
        if isinstance(value, int):
            return f"an integer of {value.bit_length():,} bits"
        return f"a {type(value).__name__}"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def compiler_text(error: BaseException) -> str:
    """Return the message of a compiler on one line, with its cause, which is often not in the first one.

    If the compiler calls a function that fails, the error below the lines of the traceback is kept.
    """
    message, traceback, rest = str(error).partition(_TRACEBACK)
    if traceback:
        lines = (line for line in rest.splitlines() if line and not line[0].isspace())
        message += next(lines, "")
    return one_line(message).strip()[:_MOST_OF_COMPILER]


def file_name(path: str | os.PathLike[str]) -> str:
    """Return a path for an error message; an empty one as `''`."""
    return str(path) or repr("")


def choices(value: str, names: Sequence[str]) -> str:
    """Return the allowed names for an error message, which are not empty.

    `one of a, b` lists a few. Of many, the names most like `value` are given: `one of 40, such as a, b, c`.
    """
    if len(names) <= _MOST_CHOICES:
        return f"one of {', '.join(names)}"
    near = difflib.get_close_matches(value, names, n=_SIMILAR, cutoff=0.3) or names[:_SIMILAR]
    return f"one of {len(names):,}, such as {', '.join(near)}"


def require_one_of(name: str, value: Value, allowed: Iterable[object]) -> Value:
    """Return the value of a field, which is one of those that are allowed.

    Raises:
      InvalidInput: it is another one. The sentence has the field, the value and all that are allowed.
    """
    listed = list(allowed)
    if value not in listed:
        raise InvalidInput(f"{name} is {shown(value)}, but must be one of {', '.join(map(str, listed))}")
    return value
