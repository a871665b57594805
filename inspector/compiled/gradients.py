"""Which results of a program are gradients: the backward pass computes them last."""

from __future__ import annotations

from collections.abc import Sequence

from inspector.compiled.hlo.analysis import Analysis
from inspector.compiled.hlo.module import SAME_DATA, Computation, Instruction
from inspector.compiled.op_name import parse_op_name
from inspector.core.collectives import BY_OPCODE

# They hold the data of an operand: its element of a tuple, another shard of it, or the sum of all shards.
_SAME_VALUE = SAME_DATA | {*BY_OPCODE, "get-tuple-element", "dynamic-slice", "slice"}
_MOST_STEPS = 32


def gradient_results(analysis: Analysis, results: Sequence[str]) -> frozenset[str]:
    """Return the paths of the results that an operation of the backward pass computes.

    An optimizer computes its results from gradients outside of the backward pass, so they are no gradients.

    Args:
      results: paths of the flattened results of the program, in order.
    """
    module = analysis.module
    entry = module.by_name.get(module.entry or "")
    if entry is None or entry.root is None or module.truncated:
        return frozenset()
    root = entry.root
    values = [root]
    if root.opcode == "tuple":
        values = [
            value
            for number in range(len(root.operands))
            if (value := entry.operand(root, number)) is not None
        ]
    if len(values) != len(results):
        return frozenset()
    found = (
        path for path, value in zip(results, values, strict=True) if _of_backward(analysis, entry, value)
    )
    return frozenset(found)


def _of_backward(analysis: Analysis, computation: Computation, value: Instruction) -> bool:
    """Return whether the operation that computes a value is one of the backward pass."""
    element = 0
    for _ in range(_MOST_STEPS):
        moved = _moved_operand(analysis, value) if value.opcode == "fusion" else None
        if value.opcode not in _SAME_VALUE and moved is None:
            break
        if moved is not None:
            operand = computation.operand(value, moved)
        elif value.opcode == "get-tuple-element":
            element, operand = value.tuple_index or 0, computation.operand(value)
        else:
            operand = computation.operand(value, element if value.opcode in BY_OPCODE else 0)
        if operand is None:
            break
        value = operand
    if value.opcode == "fusion":  # one of its results can be a gradient, and another one not
        for called in value.called:
            inside = analysis.module.by_name.get(called.computation)
            root = None if inside is None else inside.root
            if inside is not None and root is not None and root.opcode == "tuple":
                value = inside.operand(root, element) or value
    names = parse_op_name(value.metadata.get("op_name"))
    return all(name.phase == "backward" for name in names)


def _moved_operand(analysis: Analysis, fusion: Instruction) -> int | None:
    """Return the number of the operand that a fusion only copies or transposes; None if it computes."""
    for called in fusion.called:
        inside = analysis.module.by_name.get(called.computation)
        value = None if inside is None else inside.root
        while inside is not None and value is not None and value.opcode in SAME_DATA:
            value = inside.operand(value)
        if value is not None and value.opcode == "parameter":
            return value.number
    return None
