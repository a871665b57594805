"""Programs by name: titles, the program of a step, and the order of programs."""

from __future__ import annotations

from inspector.core.snapshot import Program, Snapshot
from inspector.core.step_program import step_program

TITLES = {"init": "Initialization", "train_step": "Train step", "apply": "Inference"}
RUNS = {"init": "Initialization", "train_step": "A train step", "apply": "An inference"}

BEFORE_COMPILE = (
    "Partitioned by XLA without a compile; for TPUs and GPUs, passes of XLA follow. "
    "A TPU sends float32 operands of matrix products as bfloat16, unless their precision is higher. "
    "The compiler can also combine, split or replace these collectives."
)


def title(name: str) -> str:
    """Return the title of a program."""
    return TITLES.get(name, name)


def run_of(name: str) -> str:
    """Return one execution of the program as figures name it: `one step` or `one run`."""
    return "one step" if name == "train_step" else "one run"


def main_first(snapshot: Snapshot) -> list[Program]:
    """Return all programs, the one of a step first."""
    main = step_program(snapshot)
    return sorted(snapshot.programs, key=lambda program: program is not main)
