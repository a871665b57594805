"""The rows of ragged operations, whose number is known only when a program runs.

`ragged-dot` and `ragged-all-to-all` have arrays with room for the most rows, and another array has the number
of rows that they use. A program can state the rows that it expects on the busiest device, with the attribute
`expected_rows`: `jax.experimental.xla_metadata.set_xla_metadata(expected_rows="4096")` around the operation.
Work, transfers and bytes are those of these rows. Without a statement they are those of all rows, an upper
bound.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from inspector.hlo.module import Computation, Instruction, Module, operand_shapes
from inspector.hlo.shapes import Shape

EXPECTED_ROWS = "expected_rows"
_EXPECTED = re.compile(rf'\b{EXPECTED_ROWS}\s*+=\s*+"(\d{{1,15}})"')
# The dimension of the rows in the first operand. With `jax.vmap`, that of the batch comes before it.
_DIMENSION = re.compile(r"\blhs_ragged_dims=\{(\d{1,2})\}")
_RAGGED = re.compile(r"ragged-(?:dot|all-to-all)(?:-start)?\Z")
# The compiler for TPUs makes a kernel of a ragged-dot. Another one computes the positions of its groups.
_KERNEL = re.compile(r"\bragged-dot\b(?!-metadata)")

_MOST_CLAUSES = 8


class Rows(NamedTuple):
    """Rows of a ragged operation.

    Attributes:
      room: rows of its first array.
      expected: rows that the busiest device is expected to use. Of an exchange this can be more than `room`,
        because a device can receive more rows than it sends.
    """

    room: int
    expected: int


def rows(computation: Computation, instruction: Instruction) -> Rows | None:
    """Return the rows of a ragged operation; None for others, and if it states no expected rows."""
    stated = _EXPECTED.search(instruction.attributes_text) if is_ragged(instruction) else None
    room = None if stated is None else _room(computation, instruction)
    if stated is None or not room:
        return None
    most = room
    if instruction.opcode.startswith("ragged-all-to-all"):
        arrays = filter(_has_rows, _arrays(computation, instruction))
        most = max(array.dimensions[0] or 0 for array in arrays)
    return Rows(room, min(int(stated[1]), most))


def is_ragged(instruction: Instruction) -> bool:
    """Return whether an instruction uses only some of its rows."""
    if instruction.opcode != "custom-call":
        return _RAGGED.match(instruction.opcode) is not None
    if instruction.target != "tpu_custom_call":
        return False
    return _KERNEL.search(instruction.metadata.get("op_name", "").rpartition("/")[2]) is not None


def used(amount: int | None, computation: Computation, instruction: Instruction) -> int | None:
    """Return the part of an amount, which is that of all rows, that the expected rows have."""
    known = None if amount is None else rows(computation, instruction)
    return amount if amount is None or known is None else amount * known.expected // known.room


def unused_bytes(computation: Computation, instruction: Instruction) -> int:
    """Return the bytes of rows of a product that are expected to be neither read nor written."""
    known = rows(computation, instruction)
    if known is None:
        return 0
    place = _dimension(instruction)
    whole = sum(
        array.bytes or 0
        for array in _arrays(computation, instruction)
        if array.dimensions[place : place + 1] == (known.room,)
    )
    return max(0, whole - whole * known.expected // known.room)


def assumptions(module: Module) -> tuple[str, ...]:
    """Return the assumptions of a module's work about its ragged operations, one clause for each number."""
    clauses = dict[str, None]()
    for computation in module.computations:
        for instruction in filter(is_ragged, computation.instructions):
            known = rows(computation, instruction)
            if known is not None:
                name = instruction.opcode.removesuffix("-start").replace("custom-call", "ragged-dot")
                clauses[f"{name} is expected to use {known.expected:,} rows of the busiest device"] = None
            elif room := _room(computation, instruction):
                clauses[f"ragged operations use all of their {room:,} rows, which is the most"] = None
    return tuple(sorted(clauses)[:_MOST_CLAUSES])


def with_stated_rows(module: Module) -> Module:
    """Return a module in which each kernel that the compiler made of a ragged product has its statement.

    The compiler drops it when it makes a new product, such as that of a transposed matrix. Products with as
    many rows have the same.
    """
    stated = {
        known.room: known.expected
        for computation in module.computations
        for instruction in computation.instructions
        if (known := rows(computation, instruction)) is not None
    }
    if not stated:
        return module
    return replace(
        module,
        computations=tuple(
            replace(computation, instructions=tuple(_with_statements(computation, stated)))
            for computation in module.computations
        ),
    )


def _with_statements(computation: Computation, stated: dict[int, int]) -> Iterator[Instruction]:
    for instruction in computation.instructions:
        if is_ragged(instruction) and rows(computation, instruction) is None:
            expected = stated.get(_room(computation, instruction) or 0)
            if expected is not None:
                added = f'{instruction.attributes_text}, frontend_attributes={{{EXPECTED_ROWS}="{expected}"}}'
                instruction = instruction._replace(attributes_text=added)
        yield instruction


def _arrays(computation: Computation, instruction: Instruction) -> list[Shape]:
    return [array for array in (*operand_shapes(computation, instruction), instruction.shape) if array]


def _room(computation: Computation, instruction: Instruction) -> int | None:
    """Return the rows of the first operand of floating-point numbers, behind the positions of a kernel."""
    first = next((array for array in operand_shapes(computation, instruction) if _has_rows(array)), None)
    return None if first is None else next(iter(first.dimensions[_dimension(instruction) :]), None)


def _dimension(instruction: Instruction) -> int:
    stated = _DIMENSION.search(instruction.attributes_text)
    return int(stated[1]) if stated else 0


def _has_rows(array: Shape | None) -> bool:
    return array is not None and array.parts is None and len(array.dimensions) > 1
