"""Collectives that move elements of a narrower type."""

import re

from inspector.compiled.hlo.later_passes.passes import (
    MOVES,
    SAME_ELEMENTS,
    Passes,
    bits_of,
    dtype_of,
    with_type,
)
from inspector.compiled.hlo.module import Instruction

_HIGHER = re.compile(r"high|packed", re.I)
# Through these, the compiler for TPUs moves the conversion of an operand of a product.
_MOVED_THROUGH = SAME_ELEMENTS | {*MOVES, "dynamic-slice"}


def narrow_around_conversion(passes: Passes, collective: Instruction) -> None:
    """Move elements in the narrower type of a conversion before or after a collective.

    XLA's `CollectiveQuantizer`, for GPUs. `ConvertMover` brings conversions next to collectives.
    """
    if not passes.has_one_operand(collective) or dtype_of(collective) is None:
        return
    edited = passes.edited
    if (value := _before_widening(passes, collective)) is not None:
        _narrow(passes, collective, value)
        return
    user = edited.only_user(collective)
    while user is not None and user.opcode in SAME_ELEMENTS:
        user = edited.only_user(user)
    if user is not None and user.opcode == "convert" and bits_of(user) < bits_of(collective):
        dtype = dtype_of(user) or ""
        _narrow(passes, collective, passes.converted(edited.operand(collective), dtype, collective))


def narrow_for_products(passes: Passes, collective: Instruction) -> None:
    """Move float32 as bfloat16 if only matrix products of default precision use the result.

    TPUs multiply float32 of default precision as bfloat16, and their compiler moves the conversion before
    collectives. Between slices it sends float32.
    """
    if dtype_of(collective) != "f32" or not passes.has_one_operand(collective):
        return
    if passes.crosses_slices(collective) or not _only_in_products(passes, collective):
        return
    value = _before_widening(passes, collective)
    if value is None or dtype_of(value) != "bf16":
        value = passes.converted(passes.edited.operand(collective), "bf16", collective)
    _narrow(passes, collective, value)


def _before_widening(passes: Passes, collective: Instruction) -> Instruction | None:
    """Return the operand in the narrower type from which it was converted; None if it was not."""
    edited = passes.edited
    reordering = []
    source = edited.operand(collective)
    while source.opcode in SAME_ELEMENTS:
        reordering.append(source)
        source = edited.operand(source)
    if source.opcode != "convert" or bits_of(source) <= bits_of(edited.operand(source)):
        return None
    value = edited.operand(source)
    dtype = dtype_of(value) or ""
    for step in reversed(reordering):
        value = edited.insert(
            step.opcode, with_type(step.shape_text, dtype), [value.name], step.attributes_text, step
        )
    return value


def _only_in_products(passes: Passes, value: Instruction) -> bool:
    """Return whether all users multiply a value as bfloat16, perhaps after moves of its elements."""
    edited = passes.edited
    users = edited.users(value)
    return (
        bool(users)
        and not edited.is_root(value)
        and all(
            _multiplies_as_bfloat16(user)
            or (user.opcode in _MOVED_THROUGH and _only_in_products(passes, user))
            for user in users
        )
    )


def _multiplies_as_bfloat16(user: Instruction) -> bool:
    if user.opcode == "convert":
        return bits_of(user) <= 16
    if user.does != "product":
        return False
    attributes = user.attributes
    # An algorithm names the types of the operands.
    return "algorithm" not in attributes and not _HIGHER.search(attributes.get("operand_precision", ""))


def _narrow(passes: Passes, collective: Instruction, value: Instruction) -> None:
    """Let a collective move a value of a narrower type, and convert the result back."""
    edited = passes.edited
    wide, narrow = dtype_of(collective) or "", dtype_of(value) or ""
    moved = edited.set_shape(collective, with_type(collective.shape_text, narrow))
    moved = edited.set_operands(moved, [value.name])
    users = edited.users(moved)
    edited.replace(moved, passes.converted(moved, wide, moved), users)
