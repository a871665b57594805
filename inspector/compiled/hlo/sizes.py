"""How many elements and bytes results and operands have, whatever a text says of their shapes."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping

from inspector.compiled.hlo import shapes
from inspector.compiled.hlo.module import Computation, Instruction
from inspector.compiled.hlo.shapes import Shape

# No count is above this: garbage multiplies to anything, and a float still holds sums of such numbers.
MOST = 10**300
# No program has arrays of more dimensions, and a text that says so must not make counting slow.
_HIGHEST_RANK = 100
_NOT_PLAIN = re.compile(r'[\[({"/]')
_PLAIN_NAME = re.compile(r"[^\s,%][^\s,]*+")


def elements(shape: Shape | None) -> int | None:
    """Elements of one array; None for a tuple, and where a dimension is not known.

    A bounded dynamic dimension counts as its bound.
    """
    if shape is None or shape.parts is not None or len(shape.dimensions) > _HIGHEST_RANK:
        return None
    if None in shape.dimensions:
        return None
    count = math.prod(shape.dimensions)
    return count if count <= MOST else None


def size(shape: Shape | None) -> int | None:
    """Bytes of an array, or of all arrays of a tuple; None where one is not known."""
    if shape is None:
        return None
    if shape.parts is not None:
        each = [size(part) for part in shape.parts]
        return None if None in each else sum(each)
    count = elements(shape)
    if count is None or shape.element_bits is None:
        return None
    return -(-count * shape.element_bits // 8)


# A long tuple may be an operand of many instructions, and is counted once.
@functools.lru_cache(maxsize=4096)
def size_of_text(text: str | None) -> int | None:
    """Bytes of the shape that a text says; None where it says none."""
    return size(shapes.parse(text)) if text else None


@functools.lru_cache(maxsize=4096)
def elements_of_text(text: str | None) -> int | None:
    """Elements of the array whose shape a text says; None where it says none."""
    return elements(shapes.parse(text)) if text else None


def operand_names(instruction: Instruction) -> list[str | None]:
    """The operands' names in their order; None for one that has none."""
    names = _plain_names(instruction.operands_text)
    return [operand.name for operand in instruction.operands] if names is None else list(names)


def operand_shapes(computation: Computation, instruction: Instruction) -> list[Shape | None]:
    """The operands' shapes in their order; None for one that is not known."""
    names = _plain_names(instruction.operands_text)
    if names is None:
        return [computation.shape_of(operand) for operand in instruction.operands]
    sources = map(computation.by_name.get, names)
    return [source.shape if source is not None else None for source in sources]


def result_sizes(computation: Computation) -> dict[str, int | None]:
    """Bytes of each instruction's result, by its name."""
    return {
        instruction.name: size_of_text(instruction.shape_text)
        for instruction in computation.instructions
    }


def operands_size(results: Mapping[str, int | None], instruction: Instruction) -> int | None:
    """Bytes of all operands together; None where one is not known.

    results: the bytes of each result of the computation, by name.
    """
    # As compilers write them. What is found under a name with no space or bracket in it is that operand.
    names = instruction.operands_text[1:-1].replace("%", "").split(", ")
    each = [results.get(name) for name in names]
    if None in each:
        each = [
            size(operand.shape) if operand.shape is not None else results.get(operand.name or "")
            for operand in instruction.operands
        ]
    return None if None in each else sum(each)


def _plain_names(written: str) -> list[str] | None:
    """The names of operands that are written as names alone, as compilers do; None where they are not."""
    return (
        None if _NOT_PLAIN.search(written, 1) else _PLAIN_NAME.findall(written, 1, len(written) - 1)
    )
