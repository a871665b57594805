"""Instructions of a partitioned program that contribute to its results.

The partitioner keeps instructions that nothing uses, also inside of loops: the forward pass of an
initialization. Compilers remove them (`dce` and `while-loop-simplifier`).
"""

from __future__ import annotations

from collections.abc import Iterator

from inspector.compiled.hlo.module import Computation, Instruction, Module, Path, operand_names
from inspector.compiled.hlo.opcodes import RUNS, TABLE

# They run computations on arrays. Those of a reduction work on scalars.
_CALLS = RUNS | {"custom"}

Key = tuple[str, str]  # (computation, instruction)
_Value = tuple[Computation, Instruction, Path]


def needed(module: Module) -> frozenset[Key]:
    """Return the computation and the name of each instruction on which a result depends.

    A loop needs only those elements of its tuple that are used after it, that its condition reads, or from
    which its body computes these.
    """
    # The loop of which a computation is the body or the condition.
    loops = {
        called.name: (computation, instruction)
        for computation, instruction in module.instructions
        if instruction.does == "while"
        for called in module.callees(instruction)
    }
    waiting: list[_Value] = [
        (computation, instruction, ())
        for computation, instruction in module.instructions
        if (computation.entry and instruction is computation.root) or _has_effect(instruction)
    ]
    seen: set[tuple[str, str, Path]] = set()
    while waiting:
        computation, instruction, path = waiting.pop()
        key = (computation.name, instruction.name, path)
        if key in seen:
            continue
        seen.add(key)
        if instruction.does != "parameter":
            waiting += _sources(module, computation, instruction, path)
        elif computation.name in loops:
            waiting.append((*loops[computation.name], path))
    return frozenset((computation, instruction) for computation, instruction, _ in seen)


def _sources(
    module: Module, computation: Computation, instruction: Instruction, path: Path
) -> Iterator[_Value]:
    """Yield the values that this part of an instruction's result needs."""
    does = instruction.does
    names = operand_names(instruction) if does != "constant" else ()
    if does == "tuple" and path:
        names, path = names[path[0] : path[0] + 1], path[1:]
    elif does == "element" and instruction.tuple_index is not None:
        path = (instruction.tuple_index, *path)
    elif does != "while":
        path = ()
    for name in names:
        operand = computation.by_name.get(name or "")
        if operand is not None:
            yield computation, operand, path
    for called in instruction.called if does in _CALLS else ():
        callee = module.by_name.get(called.computation)
        if callee is not None and callee.root is not None:
            yield callee, callee.root, path if called.role == "body" else ()


def _has_effect(instruction: Instruction) -> bool:
    if instruction.does != "custom":
        return TABLE[instruction.opcode].effect
    return instruction.attributes.get("custom_call_has_side_effect") == "true"
