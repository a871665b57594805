"""Instructions of a partitioned program that contribute to its results.

The partitioner keeps instructions that nothing uses, also inside of loops: the forward pass of an
initialization. Compilers remove them (`dce` and `while-loop-simplifier`).
"""

from inspector.compiled.hlo.module import Computation, Instruction, Module, Path, operand_names
from inspector.compiled.hlo.opcodes import RUNS, TABLE

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
    seen: set[tuple[str, str, Path]] = set()
    while waiting:
        computation, instruction, path = value = waiting.pop()
        key = (computation.name, instruction.name, path)
        if key in seen:
            continue
        seen.add(key)
        if instruction.does != "parameter":
            waiting += _sources(module, *value)
        elif computation.name in loops:
            waiting.append((*loops[computation.name], path))
    return frozenset(key[:2] for key in seen)


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
