"""Programs by name: titles, the program of a step, and the order of programs."""

from __future__ import annotations

from inspector.core.snapshot import Program, Snapshot
from inspector.machines import targets
from inspector.machines.hardware import Chip

TITLES = {"init": "Initialization", "train_step": "Train step", "apply": "Inference"}
RUNS = {"init": "Initialization", "train_step": "A train step", "apply": "An inference"}
_STEPS = ("train_step", "apply")

PROPAGATED = (
    "Propagated by Shardy without a compile; for TPUs and GPUs, passes of XLA follow. "
    "A TPU sends float32 operands of matrix products as bfloat16, unless their precision is higher. "
    "The compiler can also combine, split or replace these collectives."
)


def title(name: str) -> str:
    """Return the title of a program."""
    return TITLES.get(name, name)


def run_of(name: str) -> str:
    """Return one execution of the program as figures name it: `one step` or `one run`."""
    return "one step" if name == "train_step" else "one run"


def main_program(snapshot: Snapshot) -> Program | None:
    """Return the program of a step: the train step, else the inference, else the first program."""
    named = (snapshot.program(name) for name in _STEPS)
    return next((one for one in named if one is not None), next(iter(snapshot.programs), None))


def main_first(snapshot: Snapshot) -> list[Program]:
    """Return all programs, the one of a step first."""
    main = main_program(snapshot)
    return sorted(snapshot.programs, key=lambda program: program is not main)


def chip_of(snapshot: Snapshot, chosen: Chip | None) -> Chip | None:
    """Return the chip that the Snapshot was compiled for or ran on, otherwise the chosen chip."""
    return targets.chip_of(snapshot) or chosen
