"""Read names and source lines from MLIR locations."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

from jax.extend.mlir import ir

from inspector.producers.propagation.attribute_cache import cached_by_attribute

_PACKAGE = f"{Path(__file__).resolve().parents[2]}{os.sep}"
_MODELS = os.path.join(_PACKAGE, "model", "built_in", "")


def described(location: Any) -> tuple[str, str, int]:
    """Return the name stack, and the innermost source line outside installed packages."""
    # Equal attributes have equal hashes, and equal locations do not.
    return _described(location.attr)


def named_at(location: Any) -> tuple[str | None, str | None]:
    """Return the name stack, and the source line as `layer.py:60`; None for what is unknown."""
    name, file, line = described(location)
    return name or None, f"{file.rpartition('/')[2]}:{line}" if file else None


@cached_by_attribute(8192)
def _described(attribute: Any) -> tuple[str, str, int]:
    names: list[str] = []
    frames: list[tuple[str, int]] = []
    _collect(ir.Location.from_attr(attribute, attribute.context), names, frames)
    written = [frame for frame in frames if not _installed(frame[0])]
    file, line = (written or frames or [("", 0)])[0]
    return _joined_names(names), file, line


def called_at(location: Any) -> str | None:
    """Return the line of an operation and of the call around it: `layer.py:60, called at moe.py:88`."""
    return _called_at(location.attr)


@cached_by_attribute(1024)
def _called_at(attribute: Any) -> str | None:
    frames: list[tuple[str, int]] = []
    _collect(ir.Location.from_attr(attribute, attribute.context), [], frames)
    lines = [f"{file.rpartition('/')[2]}:{line}" for file, line in frames if not _installed(file)]
    return ", called at ".join(dict.fromkeys(lines[:2])) or None


def _collect(location: Any, names: list[str], frames: list[tuple[str, int]]) -> None:
    """Collect the names of an operation and of the calls around it, and its frames, the innermost first."""
    if isinstance(location, ir.NameLoc):
        names.append(location.name_str)
        _collect_frames(location.child_loc, frames)
    elif isinstance(location, ir.CallSiteLoc):  # an operation of an inlined function, and its call
        _collect(location.callee, names, frames)
        _collect(location.caller, names, frames)
    elif isinstance(location, ir.FusedLoc):
        for fused in list(location.locations)[:1]:
            _collect(fused, names, frames)
    else:
        _collect_frames(location, frames)


def _collect_frames(location: Any, frames: list[tuple[str, int]]) -> None:
    if isinstance(location, ir.NameLoc):  # the name of the frame's function
        _collect_frames(location.child_loc, frames)
    elif isinstance(location, ir.CallSiteLoc):
        _collect_frames(location.callee, frames)
        _collect_frames(location.caller, frames)
    elif isinstance(location, ir.FileLineColLoc):
        frames.append((location.filename, location.start_line))


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
        "/site-packages/" in file
        or "/dist-packages/" in file
        or not file.endswith(".py")
        or (file.startswith(_PACKAGE) and not file.startswith(_MODELS))
    )
