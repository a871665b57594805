"""What the text of one program says of it, in the terms of a Snapshot: its collectives, and its work."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from inspector.compiled import hlo
from inspector.compiled.hlo.calls import runs
from inspector.compiled.hlo.moved_arrays import moved_arrays
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Collective, Mesh, ProgramArray, Work

# Inputs and outputs of programs that are none of a Snapshot's arrays.
_NO_ARRAYS = frozenset({"key", "loss"})


@dataclass(frozen=True)
class Read:
    """What was read; None each where the text is not there or not understood."""

    collectives: tuple[Collective, ...] | None = None
    work: Work | None = None


def read(text: str | None, mesh: Mesh, shardings: Iterable[ProgramArray] = ()) -> Read:
    """Read a compiled program's text. With its inputs and outputs, each collective tells what it moves.

    XLA may write in a later version what this one does not, and the rest of a run is worth showing.
    """
    module = _module(text)
    if module is None:
        return Read()
    used = [one for one in shardings if one.used]
    inputs, outputs = (
        [one.path for one in used if one.role == role] for role in ("input", "output")
    )
    try:
        moved = moved_arrays(module, inputs, outputs) or {}
        known = runs(module)
        found = tuple(
            replace(one, arrays=_arrays(moved.get((one.computation, one.name))))
            for one in hlo.collectives(module, mesh, known)
        )
        return Read(found, hlo.work(module, known))
    except InvalidInput:
        return Read()


def ideal_work(text: str | None) -> Work | None:
    """The work of a program as it was written, before it was partitioned or optimized.

    Its bytes are left out: until instructions are fused, each would go through memory.
    """
    module = _module(text)
    try:
        return None if module is None else replace(hlo.work(module), bytes_accessed=None)
    except InvalidInput:
        return None


def _module(text: str | None) -> hlo.Module | None:
    if not text:
        return None
    try:
        modules = hlo.parse(text)
    except InvalidInput:
        return None
    return modules[0] if len(modules) == 1 else None


def _arrays(paths: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if paths is None else tuple(path for path in paths if path not in _NO_ARRAYS)
