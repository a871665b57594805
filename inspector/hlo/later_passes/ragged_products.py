"""Products of groups of rows, which JAX expands for all platforms but TPUs.

`jax.lax.ragged_dot` multiplies each row with the matrix of its group. Lowered for another platform, it
copies the rows once for each group, sets those of other groups to 0, and multiplies all. Lowered for a TPU,
it is one operation that computes nothing more than it must. A program that is partitioned here was lowered
for CPUs.
Source: `_ragged_dot_general_impl` in jax/_src/lax/lax.py.
"""

from typing import NamedTuple

from inspector.hlo.flops import listed
from inspector.hlo.later_passes.edited import EditedComputation
from inspector.hlo.later_passes.passes import Passes, dimensions_of, metadata
from inspector.hlo.module import Computation, Instruction


class _Expanded(NamedTuple):
    """Rows that are repeated for each group, without those of other groups.

    Attributes:
      rows: the instruction with the rows.
      dimensions: of the expanded array, for each of the rows.
      group: the dimension with the groups.
    """

    rows: Instruction
    dimensions: tuple[int, ...]
    group: int


def may_have(computation: Computation) -> bool:
    """Return whether a product of a computation has selected elements of an array as its first operand."""
    return any(
        instruction.opcode == "dot"
        and (first := computation.operand(instruction)) is not None
        and first.opcode == "select"
        for instruction in computation.instructions
    )


def restore(passes: Passes, dot: Instruction) -> None:
    """Replace a product of expanded rows by the operation that JAX lowers for TPUs."""
    edited = passes.edited
    left, right = (_expanded(edited, operand) for operand in edited.operands(dot))
    if left is None:
        return
    contracted, batches, right_contracted, right_batches = (
        listed(dot, f"{side}_{name}_dims") or []
        for side in ("lhs", "rhs")
        for name in ("contracting", "batch")
    )
    other = edited.operand(dot, 1)
    if left.group in contracted and right is None:
        # Each row is multiplied with the matrix of its group.
        at = contracted.index(left.group)
        group = right_contracted.pop(at)
        contracted.pop(at)
        ragged = next((d for d in left.dimensions if d not in (*contracted, *batches)), None)
        operands, groups = (left.rows, other), f", rhs_group_dims={{{group}}}"
    elif batches == [left.group] and right is not None and right.group in right_batches:
        # The products of the rows of each group are summed.
        batches, ragged = [], next(iter(contracted), None)
        right_contracted = [right.dimensions.index(d) for d in right_contracted]
        operands, groups = (left.rows, right.rows), ""
    else:
        return
    if ragged is None or batches or not all(d in left.dimensions for d in contracted):
        return
    left_places = ",".join(str(left.dimensions.index(d)) for d in contracted)
    right_places = ",".join(map(str, right_contracted))
    attributes = (
        f", lhs_contracting_dims={{{left_places}}}, rhs_contracting_dims={{{right_places}}}"
        f", lhs_ragged_dims={{{left.dimensions.index(ragged)}}}{groups}{metadata(dot)}"
        f"{_stated(edited.operands(dot)[0])}"
    )
    names = [operand.name for operand in operands]
    product = edited.insert("ragged-dot", dot.shape_text or "", names, attributes, dot)
    edited.replace(dot, product)
    edited.rename(product, dot.name)


def _stated(rows: Instruction) -> str:
    """Return the attributes by which a program states the expected rows, as text of attributes.

    The expanded rows have them. XLA makes new products, without attributes.
    """
    written = rows.attributes.get("frontend_attributes")
    return f", frontend_attributes={written}" if written else ""


def _expanded(edited: EditedComputation, array: Instruction) -> _Expanded | None:
    """Return the rows of an expanded array; None for any other array."""
    if array.opcode != "select" or array.shape is None:
        return None
    mask, rows, zeros = edited.operands(array)
    if mask.opcode != "and" or any(part.opcode != "compare" for part in edited.operands(mask)):
        return None
    if rows.opcode != "broadcast" or zeros.opcode != "broadcast":
        return None
    zero, dimensions = edited.operand(zeros), tuple(dimensions_of(rows) or ())
    added = set(range(len(array.shape.dimensions))) - set(dimensions)
    if zero.opcode != "constant" or zero.operands_text.strip("() ") != "0" or len(added) != 1:
        return None
    return _Expanded(edited.operand(rows), dimensions, added.pop())
