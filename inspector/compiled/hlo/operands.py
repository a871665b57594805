"""Names, shapes and bytes of the operands of an instruction."""

from __future__ import annotations

import re
from collections.abc import Mapping

from inspector.compiled.hlo import shapes
from inspector.compiled.hlo.module import Computation, Instruction
from inspector.compiled.hlo.shapes import Shape
from inspector.core.statistics import sum_known

_NOT_PLAIN = re.compile(r'[\[({"/]')
_PLAIN_NAME = re.compile(r"[^\s,%][^\s,]*+")


def operand_names(instruction: Instruction) -> list[str | None]:
    """Return the operands' names in order; None for an operand without a name."""
    names = _plain_names(instruction.operands_text)
    return [operand.name for operand in instruction.operands] if names is None else list(names)


def operand_shapes(computation: Computation, instruction: Instruction) -> list[Shape | None]:
    """Return the operands' shapes in order; None for an unknown one."""
    names = _plain_names(instruction.operands_text)
    if names is None:
        return [computation.shape_of(operand) for operand in instruction.operands]
    sources = map(computation.by_name.get, names)
    return [source.shape if source is not None else None for source in sources]


def result_sizes(computation: Computation) -> dict[str, int | None]:
    """Return the bytes of each instruction's result by its name."""
    return {
        instruction.name: shapes.bytes_of(instruction.shape_text)
        for instruction in computation.instructions
    }


def operands_size(results: Mapping[str, int | None], instruction: Instruction) -> int | None:
    """Return the bytes of all operands; None if one is unknown.

    results: the bytes of each result of the computation by name, from `result_sizes`.
    """
    # Fast path for operands as compilers write them, names separated by commas.
    names = instruction.operands_text[1:-1].replace("%", "").split(", ")
    sizes = [results.get(name) for name in names]
    if None in sizes:
        sizes = [
            operand.shape.bytes if operand.shape is not None else results.get(operand.name or "")
            for operand in instruction.operands
        ]
    return sum_known(sizes)


def _plain_names(written: str) -> list[str] | None:
    """Return the names of operands written as names alone, as compilers do; None for other operands."""
    return (
        None if _NOT_PLAIN.search(written, 1) else _PLAIN_NAME.findall(written, 1, len(written) - 1)
    )
