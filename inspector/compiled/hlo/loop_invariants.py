"""Collectives in a loop that give the same result in each iteration, which compilers move out of the loop.

XLA's pass `while-loop-invariant-code-motion` follows the partitioner on every platform. It moves each
instruction whose operands do not change in the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from inspector.compiled.hlo.analysis import Analysis
from inspector.compiled.hlo.module import Computation, Module, operand_names
from inspector.compiled.hlo.needed_values import needed
from inspector.core.collectives import BY_OPCODE
from inspector.core.snapshot import Collective

# They call computations, or do something else than return a result.
_STAY = frozenset({
    "parameter", "while", "conditional", "call", "custom-call", "rng", "rng-bit-generator", "infeed",
    "outfeed", "send", "recv", "rng-get-and-update-state", "after-all",
})  # fmt: skip


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
        body = next((call.computation for call in instruction.called if call.role == "body"), None)
        inside = module.by_name.get(body or "")
        if inside is None:
            continue
        for name in _unchanging(inside):
            outside[inside.name, name] = computation.name
    return outside


def _unchanging(body: Computation) -> list[str]:
    """Return the names of the collectives of a loop body whose operands are the same in each iteration."""
    root = body.root
    if root is None or root.opcode != "tuple":
        return []
    returned = operand_names(root)
    same: set[str] = set()
    collectives = []
    for instruction in body.instructions:
        names = operand_names(instruction)
        if instruction.opcode == "get-tuple-element":
            number = instruction.tuple_index
            source = body.operand(instruction)
            if source is not None and source.opcode == "parameter":
                kept = number is not None and number < len(returned)
                if kept and returned[number or 0] == instruction.name:
                    same.add(instruction.name)
                continue
        if instruction.opcode in _STAY or not all(name in same for name in names):
            continue
        same.add(instruction.name)
        if instruction.opcode in BY_OPCODE:
            collectives.append(instruction.name)
    return collectives
