"""The order of programs, and texts about them."""

from inspector.answers.section import Code, Inline
from inspector.prediction.step_program import step_program
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


def main_first(snapshot: Snapshot) -> list[Program]:
    """Return all programs, the one of a step first."""
    main = step_program(snapshot)
    return sorted(snapshot.programs, key=lambda program: program is not main)


def once(snapshot: Snapshot) -> list[Program]:
    """Return the programs as `main_first`, and of those with equal instructions only the first."""
    return [alike[0] for alike in _alike(snapshot)]


def heading(program: Program, snapshot: Snapshot) -> str:
    """Return the title of a program of `once`, with the number of its compiles: `step, 4 compiles`."""
    compiles = next((len(alike) for alike in _alike(snapshot) if alike[0] is program), 1)
    return title(program.name) + (f", {compiles} compiles" if compiles > 1 else "")


def _alike(snapshot: Snapshot) -> list[list[Program]]:
    alike: dict[object, list[Program]] = {}
    for program in main_first(snapshot):
        same = (program.fingerprint, program.platform, program.mesh, program.devices, program.memory)
        alike.setdefault(program.name if program.fingerprint is None else same, []).append(program)
    return [*alike.values()]
