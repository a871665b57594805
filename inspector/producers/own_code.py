"""A person's own code, whose failures are told in its own words and with the line that they come from."""

from __future__ import annotations

import contextlib
import os
import site
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

from inspector.core.errors import InvalidInput
from inspector.layout import Layout

_PACKAGE = Path(__file__).resolve().parents[1]
_LONGEST = 200  # characters of what an exception says; a worker's answer has room for 300


@contextlib.contextmanager
def own_code(name: str) -> Iterator[None]:
    """Within it, an exception that goes through code of the model `name` becomes one sentence.

    Raises:
      InvalidInput: the exception's own words, and the file and line of the person's code.
    """
    try:
        yield
    except InvalidInput:
        raise
    except (Exception, SystemExit) as error:
        raise InvalidInput(f"{name} fails{_place(error)}: {_words(error)}") from error


@contextlib.contextmanager
def code_of(layout: Layout) -> Iterator[None]:
    """The same for a layout's model, if it is not one of this project."""
    try:
        yield
    except InvalidInput:
        raise
    except (Exception, SystemExit) as error:
        # What no line of theirs has caused is no fault of their code.
        if not layout.entry.own or not _place(error):
            raise
        raise InvalidInput(f"{layout.model} fails{_place(error)}: {_words(error)}") from error


def _words(error: BaseException) -> str:
    said = " ".join(str(error).split())
    if isinstance(error, SyntaxError):
        said = error.msg or said
    cut = said if len(said) <= _LONGEST else said[: _LONGEST - 1].rstrip() + "…"
    return f"{type(error).__name__}: {cut}" if cut else type(error).__name__


def _place(error: BaseException) -> str:
    """` at file.py:31`, the innermost line of the person's own; nothing where none is known."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" at {_short(error.filename)}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if _is_own(frame.filename)]
    return f" at {_short(own[-1].filename)}:{own[-1].lineno}" if own else ""


def _is_own(file: str) -> bool:
    path = os.path.realpath(file)
    if not os.path.isfile(path):
        return False
    installed = (*sysconfig.get_paths().values(), *site.getsitepackages())
    if any(path.startswith(os.path.realpath(folder) + os.sep) for folder in installed):
        return False
    ours = (_PACKAGE, (_PACKAGE / "models").resolve())
    return not any(path.startswith(str(folder) + os.sep) for folder in ours)


def _short(file: str) -> str:
    """The file as seen from where the program was started, or its name."""
    path = Path(os.path.realpath(file))
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return path.name
