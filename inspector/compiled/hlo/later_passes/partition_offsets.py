"""Offsets of slices that depend on the number of the device's partition.

The partitioner computes them from `partition-id`, constant tables and a few integer operations.
"""

import re
from collections.abc import Callable, Mapping

import numpy as np

from inspector.compiled.hlo.later_passes.edited import EditedComputation
from inspector.compiled.hlo.module import Instruction
from inspector.compiled.hlo.opcodes import SAME_DATA

_INTEGER = re.compile(r"-?\d{1,18}")
_COMPUTED: Mapping[str, Callable[..., np.ndarray]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply,
    "maximum": np.maximum, "minimum": np.minimum,
}  # fmt: skip
_DEEPEST = 30


def offsets_by_partition(
    computation: EditedComputation, offset: Instruction, partitions: int, depth: int = 0
) -> np.ndarray | None:
    """Return the value of a scalar for each partition, (partitions,); None if other values decide it."""
    opcode = offset.opcode
    if depth > _DEEPEST:
        return None
    if opcode == "partition-id":
        return np.arange(partitions)
    if opcode == "constant":
        literal = _integers(offset)
        return np.full(partitions, literal[0]) if len(literal) == 1 else None
    operands = computation.operands(offset)
    table = None
    if opcode == "dynamic-slice" and len(operands) == 2 and operands[0].opcode == "constant":
        table = _integers(operands.pop(0))
    elif not (opcode in _COMPUTED or (offset.does in SAME_DATA and len(operands) == 1)):
        return None
    values = []
    for operand in operands:
        value = offsets_by_partition(computation, operand, partitions, depth + 1)
        if value is None:
            return None
        values.append(value)
    if table is not None:
        return table[np.clip(values[0], 0, len(table) - 1)] if len(table) else None
    return np.asarray(_COMPUTED[opcode](*values)) if opcode in _COMPUTED else values[0]


def _integers(constant: Instruction) -> np.ndarray:
    """Return the elements of a constant; none if they are not integers."""
    if constant.shape_text is None or constant.shape_text[0] not in "su":
        return np.empty(0, int)
    return np.array([int(number) for number in _INTEGER.findall(constant.operands_text)], int)
