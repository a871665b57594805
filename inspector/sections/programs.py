"""The order of programs, and texts about them."""

from __future__ import annotations

from inspector.core.program_names import noun, subject
from inspector.core.snapshot import Program, Snapshot
from inspector.core.step_program import step_program
from inspector.sections.section import Code, Inline

BEFORE_COMPILE = (
    "Partitioned by XLA without a compile; for TPUs and GPUs, passes of XLA follow. "
    "A TPU sends float32 operands of matrix products as bfloat16, unless their precision is higher. "
    "The compiler can also combine, split or replace these collectives."
)


def named(name: str, begins: bool = False) -> Inline:
    """Return the name of a program in a sentence, the name of a function as code.

    begins: whether it begins the sentence.
    """
    words = subject(name) if begins else noun(name)
    return Code(name) if words == name else words


def main_first(snapshot: Snapshot) -> list[Program]:
    """Return all programs, the one of a step first."""
    main = step_program(snapshot)
    return sorted(snapshot.programs, key=lambda program: program is not main)
