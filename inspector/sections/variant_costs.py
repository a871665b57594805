"""The costs of the programs of two variants of a layout, side by side."""

from collections.abc import Callable
from typing import Any

from inspector.core.formatting import bytes_text, seconds_text
from inspector.core.program_names import title
from inspector.core.snapshot import Program, Snapshot
from inspector.core.statistics import statistics


def rows(left: Snapshot, right: Snapshot) -> list[tuple[str, str, str, str]]:
    """Return the compared figure, both values and their ratio, for each program in both Snapshots."""
    found = []
    for name in ("train_step", "apply"):
        mine, theirs = left.program(name), right.program(name)
        if mine is None or theirs is None:
            continue
        for what, (read, say) in _MEASURES.items():
            a, b = read(mine), read(theirs)
            ratio = f"{b / a:.2f}" if a and b is not None else "unknown"
            found.append((f"{title(name)}: {what}", say(a), say(b), ratio))
    return found


def _median(program: Program) -> float | None:
    found = statistics(program.seconds.steps if program.seconds else ())
    return None if found is None else found.median


_MEASURES: dict[str, tuple[Callable[[Program], Any], Callable[[Any], str]]] = {
    "lower": (lambda program: program.seconds and program.seconds.lower, seconds_text),
    "compile": (lambda program: program.seconds and program.seconds.compile, seconds_text),
    "median of measured": (_median, seconds_text),
    "temporaries per device": (lambda program: program.memory and program.memory.temporaries, bytes_text),
}
