"""Collectives in a loop that give the same result in each iteration, which compilers move out of the loop.

XLA's pass `while-loop-invariant-code-motion` follows the partitioner on every platform. It moves each
instruction whose operands do not change in the loop.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from inspector.compiled.hlo.analysis import Analysis
from inspector.compiled.hlo.module import Computation, Module, operand_names
from inspector.compiled.hlo.needed_values import needed
from inspector.compiled.hlo.opcodes import RUNS
from inspector.core.snapshot import Collective

# They run computations, order others, or do not give the same result again.
_STAY = RUNS | {"parameter", "custom", "random", "generate", "receive", "send", "token"}


def simplified(collectives: Iterable[Collective], analysis: Analysis) -> tuple[Collective, ...]:
    """Return the collectives of a partitioned program that every compiler keeps, outside of loops if it can.

    Those on which no result depends are left out.
    """
    kept = needed(analysis.module)
    outside = {key: analysis.runs[name] for key, name in _outside(analysis.module).items()}
    return tuple(
        collective
        if (runs := outside.get((collective.computation, collective.name))) is None
        else replace(
            collective,
            executions=runs.count,
            executions_per_iteration=runs.per_iteration if runs.count is None else None,
            within=runs.within or (),
        )
        for collective in collectives
        if (collective.computation, collective.name) in kept
    )


def _outside(module: Module) -> Mapping[tuple[str, str], str]:
    """Return the computation to which each collective of a loop is moved, by its computation and name."""
    outside: dict[tuple[str, str], str] = {}
    for computation, instruction in module.instructions:
        if instruction.opcode != "while":
            continue
        body = module.callee(instruction, "body")
        if body is not None:
            outside |= dict.fromkeys(((body.name, name) for name in _unchanging(body)), computation.name)
    return outside


def _unchanging(body: Computation) -> list[str]:
    """Return the names of the collectives of a loop body whose operands are the same in each iteration."""
    same = {part.name for part in body.unchanged.values()}
    collectives = []
    for instruction in body.instructions:
        does = instruction.does
        if does in _STAY or instruction.name in same or not same.issuperset(operand_names(instruction)):
            continue
        same.add(instruction.name)
        if does == "collective":
            collectives.append(instruction.name)
    return collectives
