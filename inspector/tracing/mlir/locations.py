"""Read names and source lines from MLIR locations."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from jax.extend.mlir import ir

from inspector.files.source_files import is_library

# Caches of facts from MLIR attributes.
#
# An attribute keeps its context alive, with all types, locations and constants of every module that was
# parsed in it: at least 1.2 MB, and all weights that a file has in its text. So the caches keep the
# attributes of one context only, the one that was used last. A worker reads many modules, each in a separate
# context.


_Function = TypeVar("_Function", bound=Callable[..., Any])

_caches: list[Any] = []
_context: ir.Context | None = None


def cached_by_attribute(most: int) -> Callable[[_Function], _Function]:
    """Keep the last `most` results of a function whose first argument is an attribute."""

    def decorate(function: _Function) -> _Function:
        cache = functools.lru_cache(most)(function)
        _caches.append(cache)

        @functools.wraps(function)
        def cached(attribute: ir.Attribute, *others: Any) -> Any:
            if attribute.context is not _context:
                _begin(attribute.context)
            return cache(attribute, *others)

        return cast("_Function", cached)

    return decorate


def _begin(context: ir.Context) -> None:
    global _context
    for cache in _caches:
        cache.cache_clear()
    _context = context


_PACKAGE = f"{Path(__file__).resolve().parents[2]}{os.sep}"
_MODELS = os.path.join(_PACKAGE, "model", "built_in", "")


class SourceLine(NamedTuple):
    """A line of a source file, and the column of the expression in it, from 0."""

    file: str
    line: int
    column: int


class DescribedOperation(NamedTuple):
    """The name stack of an operation, the line of the program that runs it, and of a library inside of it.

    If no file of the program is known, `line` is of a library.
    """

    name: str
    line: SourceLine | None
    library: SourceLine | None


def described(location: ir.Location) -> DescribedOperation:
    """Return the facts of a location of an operation."""
    # Equal attributes have equal hashes, and equal locations do not.
    return _described(location.attr)


def named_at(location: ir.Location) -> tuple[str | None, str | None]:
    """Return the name stack, and the source line as `layer.py:60`; None for unknown ones."""
    name, line, _ = described(location)
    return name or None, line and _place(line)


@cached_by_attribute(8192)
def _described(attribute: ir.Attribute) -> DescribedOperation:
    names: list[str] = []
    frames: list[SourceLine] = []
    _collect(ir.Location.from_attr(attribute, attribute.context), names, frames)
    written = next((frame for frame in frames if not _installed(frame.file)), None)
    library = frames[0] if written is not None and frames[0] is not written else None
    return DescribedOperation(_joined_names(names), written or next(iter(frames), None), library)


def _place(line: SourceLine) -> str:
    return f"{line.file.rpartition('/')[2]}:{line.line}"


def called_at(location: ir.Location) -> str | None:
    """Return the line of an operation and of the call around it: `layer.py:60, called at moe.py:88`."""
    return _called_at(location.attr)


@cached_by_attribute(1024)
def _called_at(attribute: ir.Attribute) -> str | None:
    lines = [_place(line) for line in _lines_at(attribute)]
    return ", called at ".join(dict.fromkeys(lines[:2])) or None


def lines_at(location: ir.Location) -> tuple[SourceLine, ...]:
    """Return the lines of the program that run an operation, the innermost first, without libraries."""
    return _lines_at(location.attr)


@cached_by_attribute(1024)
def _lines_at(attribute: ir.Attribute) -> tuple[SourceLine, ...]:
    frames: list[SourceLine] = []
    _collect(ir.Location.from_attr(attribute, attribute.context), [], frames)
    return tuple(frame for frame in frames if not _installed(frame.file))


def _collect(location: ir.Location, names: list[str], frames: list[SourceLine]) -> None:
    """Collect the names of an operation and of the calls around it, and its frames, the innermost first."""
    if isinstance(location, ir.NameLoc):
        names.append(location.name_str)
        _collect_frames(location.child_loc, frames)
    elif isinstance(location, ir.CallSiteLoc):  # an operation of an inlined function, and its call
        _collect(location.callee, names, frames)
        _collect(location.caller, names, frames)
    elif isinstance(location, ir.FusedLoc):
        for inner in list(cast(list[ir.Location], location.locations))[:1]:
            _collect(inner, names, frames)
    else:
        _collect_frames(location, frames)


def _collect_frames(location: ir.Location, frames: list[SourceLine]) -> None:
    if isinstance(location, ir.NameLoc):  # the name of the frame's function
        _collect_frames(location.child_loc, frames)
    elif isinstance(location, ir.CallSiteLoc):
        _collect_frames(location.callee, frames)
        _collect_frames(location.caller, frames)
    elif isinstance(location, ir.FileLineColLoc):
        frames.append(SourceLine(location.filename, location.start_line, location.start_col))


def _joined_names(names: list[str]) -> str:
    """Join the names of an operation, given the innermost first, to one name stack.

    A name that starts with `jit(` is a whole stack; those before it are inside it.
    """
    stack: list[str] = []
    for name in names:
        stack.insert(0, name)
        if name.startswith(("jit(", "pjit(")):
            break
    return "/".join(stack)


@functools.lru_cache(maxsize=1024)
def _installed(file: str) -> bool:
    """Return whether a file is of an installed package, or of the code of this project around a model."""
    return (
        is_library(file)
        or not file.endswith(".py")
        or (file.startswith(_PACKAGE) and not file.startswith(_MODELS))
    )
