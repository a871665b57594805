"""The order of programs, and texts about them."""

from inspector.answers.section import Code, Inline
from inspector.prediction.step_program import equal_programs
from inspector.records.snapshot import Program, Snapshot
from inspector.text.program_names import noun, subject, title

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


def once(snapshot: Snapshot) -> list[Program]:
    """Return the programs as `main_first`, and of those with equal instructions only the first."""
    return [first for first, *_ in equal_programs(snapshot)]


def heading(program: Program, snapshot: Snapshot) -> str:
    """Return the title of a program of `once`, with the number of its compiles: `step, 4 compiles`."""
    compiles = next((len(equal) for equal in equal_programs(snapshot) if equal[0] is program), 1)
    return title(program.name) + (f", {compiles} compiles" if compiles > 1 else "")
