"""Collectives in a loop that give the same result in each iteration, which compilers move out of the loop.

XLA's pass `while-loop-invariant-code-motion` follows the partitioner on every platform. It moves each
instruction whose operands do not change in the loop.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from inspector.hlo.analysis import Analysis
from inspector.hlo.module import Computation, Instruction, Module, Path, operand_names, reach
from inspector.hlo.opcodes import RUNS, TABLE
from inspector.records.snapshot import Collective

# Instructions of a partitioned program that contribute to its results.
#
# The partitioner keeps instructions that nothing uses, also inside of loops: the forward pass of an
# initialization. Compilers remove them (`dce` and `while-loop-simplifier`).


# They run computations on arrays. Those of a reduction work on scalars.
_CALLS = RUNS | {"custom"}
_SIDE_EFFECT = "custom_call_has_side_effect"

Key = tuple[str, str]  # (computation, instruction)
_Value = tuple[Computation, Instruction, Path]


def needed(module: Module) -> frozenset[Key]:
    """Return the computation and the name of each instruction on which a result depends.

    A loop needs only those elements of its tuple that are used after it, that its condition reads, or from
    which its body computes these.
    """
    # The loop of which a computation is the body or the condition.
    loops: dict[str, tuple[Computation, Instruction]] = {}
    waiting: list[_Value] = []
    for computation, instruction in module.instructions:
        row = TABLE[instruction.opcode]
        if row.does == "while":
            loops |= dict.fromkeys(
                (call.computation for call in instruction.called), (computation, instruction)
            )
        if row.effect or (row.does == "custom" and instruction.attributes.get(_SIDE_EFFECT) == "true"):
            waiting.append((computation, instruction, ()))
    entry = module.by_name.get(module.entry or "")
    if entry is not None and entry.root is not None:
        waiting.append((entry, entry.root, ()))

    def sources(value: _Value) -> list[_Value]:
        if value[1].does != "parameter":
            return _sources(module, *value)
        return [(*loops[value[0].name], value[2])] if value[0].name in loops else []

    reached = reach(waiting, sources, lambda value: (value[0].name, value[1].name, value[2]))
    return frozenset((computation.name, instruction.name) for computation, instruction, _ in reached)


def _sources(module: Module, computation: Computation, instruction: Instruction, path: Path) -> list[_Value]:
    """Return the values that this part of an instruction's result needs."""
    does = instruction.does
    names = operand_names(instruction) if does != "constant" else ()
    if does == "tuple" and path:
        names, path = names[path[0] : path[0] + 1], path[1:]
    elif does == "element" and instruction.tuple_index is not None:
        path = (instruction.tuple_index, *path)
    elif does != "while":
        path = ()
    by_name = computation.by_name
    sources = [(computation, by_name[name], path) for name in names if name is not None and name in by_name]
    for called in instruction.called if does in _CALLS else ():
        callee = module.by_name.get(called.computation)
        if callee is not None and callee.root is not None:
            sources.append((callee, callee.root, path if called.role == "body" else ()))
    return sources


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
