"""The loops and conditionals of a program whose trip count or branch depends on data."""

from inspector.compiled.hlo.analysis import Analysis
from inspector.compiled.hlo.module import Computation, Instruction
from inspector.core.snapshot import OpenChoice


def open_choices(analysis: Analysis) -> tuple[OpenChoice, ...]:
    """Return what `Runs.within` names, in the order of the text, with the lines of the program."""
    module = analysis.module
    names = {
        name.partition(":")[0].removesuffix("+1")
        for runs in analysis.runs.values()
        if runs.count != 0
        for name in runs.within or ()
    }
    if not names:
        return ()
    return tuple(
        _choice(analysis, computation, instruction)
        for computation, instruction in module.instructions
        if instruction.name in names and instruction.opcode in ("while", "conditional")
    )


def _choice(analysis: Analysis, computation: Computation, instruction: Instruction) -> OpenChoice:
    branches = sum(call.role == "branch" for call in instruction.called)
    # With a predicate, the first branch is the one for true. With an index, JAX's `cond` puts it last.
    by_predicate = "true_computation" in instruction.attributes
    return OpenChoice(
        instruction.name,
        "loop" if instruction.opcode == "while" else "conditional",
        branches,
        0 if by_predicate else max(branches - 1, 0),
        instruction.metadata.get("op_name") or None,
        analysis.module.source(instruction.metadata),
        None if branches else analysis.loops.most_trips(computation, instruction),
    )
