"""Describe the error that ended a program: its line, its arrays, and a size that does not fit."""

import ast
import contextlib
import linecache
import re
import traceback
from types import FrameType
from typing import Any

import jax

from inspector.core.source_files import is_library

_LONGEST = 400  # characters of a message
_MOST_ARRAYS = 4
# JAX's words for a dimension that mesh axes do not divide.
_UNEVEN = re.compile(
    r"implies that array axis (?P<dimension>\d+) is partitioned (?P<parts>\d+) times, "
    r"but (?:does not evenly divide )?the dimension size (?:is )?(?P<size>\d+)"
)
_SPEC = re.compile(r"spec=P(\((?:[^()]|\([^()]*\))*\))")


def last_error(error: BaseException) -> dict[str, Any]:
    """Return the error as JSON, in the form of a `RunError`."""
    message = " ".join(str(error).split())
    plain: dict[str, Any] = {
        "kind": type(error).__name__,
        "message": message if len(message) <= _LONGEST else f"{message[: _LONGEST - 1]}…",
    }
    own = [
        (frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not is_library(frame.f_code.co_filename) and not frame.f_code.co_filename.startswith("<")
    ]
    if not own:
        return plain
    frame, line = own[-1]
    plain["line"] = f"{frame.f_code.co_filename.rpartition('/')[2]}:{line}"
    names, target = _names_at(frame, line)
    plain["arrays"] = _arrays(frame, names, message)
    if (match := _UNEVEN.search(message)) is not None:
        dimension, parts, size = map(int, match.groups())
        plain["uneven"] = {
            "array": target if target is not None else next(iter(plain["arrays"]), None),
            "dimension": dimension,
            "size": size,
            "parts": parts,
            "axes": _axes(message, dimension),
        }
    return plain


def _axes(message: str, dimension: int) -> list[str]:
    """Return the mesh axes of a dimension in the PartitionSpec that a message has."""
    match = _SPEC.search(message)
    try:
        entries = ast.literal_eval(match[1]) if match is not None else ()
        entry = (entries if isinstance(entries, tuple) else (entries,))[dimension]
    except (ValueError, SyntaxError, IndexError):
        return []
    return [entry] if isinstance(entry, str) else [*map(str, entry or ())]


def _names_at(frame: FrameType, line: int) -> tuple[set[str], str | None]:
    """Return the names in a line, and the variable that it assigns."""
    text = linecache.getline(frame.f_code.co_filename, line).strip()
    names, target = set(re.findall(r"[A-Za-z_]\w*", text)), None
    with contextlib.suppress(SyntaxError, ValueError):
        (statement,) = ast.parse(text).body
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            target = statement.targets[0].id
    return names, target


def _arrays(frame: FrameType, names: set[str], message: str) -> dict[str, str]:
    """Return the types of the arrays in a line, by their names. Those that the message names come first."""
    known: dict[str, str] = {}
    for name, value in {**frame.f_globals, **frame.f_locals}.items():
        if name in names and isinstance(value, (jax.Array, jax.core.Tracer)):
            with contextlib.suppress(TypeError):
                known[name] = str(jax.typeof(value))
    ranked = sorted(known, key=lambda name: known[name] not in message)
    return {name: known[name] for name in ranked[:_MOST_ARRAYS]}
