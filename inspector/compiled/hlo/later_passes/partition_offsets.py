"""Offsets of slices that depend on the number of the device's partition.

The partitioner computes them from `partition-id`, constant tables and a few integer operations.
"""

from __future__ import annotations

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


class ElidedTable(Exception):
    """The text has `{...}` for the elements of a table, as XLA writes it for more than ten."""


def offsets_by_partition(
    computation: EditedComputation, offset: Instruction, partitions: int
) -> np.ndarray | None:
    """Return the value of a scalar for each partition, (partitions,); None if other values decide it.

    Raises:
      ElidedTable: the value is in a table that the text lacks. `xla_dump_large_constants` writes it.
    """
    return _values(computation, offset, partitions, 0)


def _values(
    computation: EditedComputation, value: Instruction, partitions: int, depth: int
) -> np.ndarray | None:
    opcode = value.opcode
    if depth > _DEEPEST:
        return None
    if opcode == "partition-id":
        return np.arange(partitions)
    if opcode == "constant":
        literal = _literal(value)
        return None if len(literal) != 1 else np.full(partitions, literal[0])
    operands = computation.operands(value)
    if value.does in SAME_DATA and len(operands) == 1:
        return _values(computation, operands[0], partitions, depth + 1)
    if opcode in _COMPUTED and len(operands) == 2:
        sides = [_values(computation, side, partitions, depth + 1) for side in operands]
        if sides[0] is None or sides[1] is None:
            return None
        return np.asarray(_COMPUTED[opcode](*sides))
    if opcode == "dynamic-slice" and len(operands) == 2:
        index = _values(computation, operands[1], partitions, depth + 1)
        table = _table(operands[0])
        if table is None or index is None:
            return None
        return np.asarray(table[np.clip(index, 0, len(table) - 1)])
    return None


def _table(source: Instruction) -> np.ndarray | None:
    """Return a constant list of integers; None if the instruction is something else."""
    shape = source.shape
    if shape is None or len(shape.dimensions) != 1 or not shape.dimensions[0]:
        return None
    if source.opcode == "iota":
        return np.arange(shape.dimensions[0])
    if source.opcode != "constant":
        return None
    if "..." in source.operands_text:
        raise ElidedTable
    literal = _literal(source)
    return np.array(literal) if len(literal) == shape.dimensions[0] else None


def _literal(constant: Instruction) -> list[int]:
    if constant.shape_text is None or constant.shape_text[0] not in "su":
        return []
    return [int(number) for number in _INTEGER.findall(constant.operands_text)]
