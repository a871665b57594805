"""Errors of MLIR as sentences: what it refuses, without the dump of the program that its errors contain."""

import contextlib
import re
from collections.abc import Iterator

from jax.extend.mlir import ir

from inspector.core.errors import InvalidInput

_MOST = 300  # characters


@contextlib.contextmanager
def refusals(sentence: str) -> Iterator[None]:
    """Raise InvalidInput for an MLIR error: the sentence, a colon, and the reason."""
    try:
        yield
    except ir.MLIRError as error:
        raise InvalidInput(f"{sentence}: {reason(str(error))}") from None


def reason(text: str) -> str:
    """Return the sentence of an MLIR error with the operation, without its location.

    >>> reason('Unable to parse:\\nerror: "1": unknown axis: "x"\\n note: see current operation: "f"')
    'unknown axis: "x" (f)'
    """
    match = re.search(r"error: (?:loc\()?.*?\)*: ([^:\n\"][^\n]{0,300})", text)
    words = match[1] if match else text.partition("note: ")[0][:_MOST]
    operation = re.search(r'see current operation: (?:%[^=]*= )?\s*"?([\w.]+)', text)
    target = re.search(r'call_target_name = "([^"]{1,100})"', text)
    named = " ".join(name[1] for name in (operation, target) if name and name[1] not in words)
    return f"{' '.join(words.split())}{f' ({named})' if named else ''}"
