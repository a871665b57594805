"""All-reduces that the compilers merge, or replace by reduce-scatters."""

from __future__ import annotations

import math
from collections.abc import Sequence

from inspector.compiled.hlo.later_passes.partition_offsets import ElidedTable, offsets_by_partition
from inspector.compiled.hlo.later_passes.passes import (
    Array,
    Passes,
    array_of,
    bits_of,
    dtype_of,
    metadata,
    product_of_groups,
    renamed,
    scattered_attributes,
    with_groups,
)
from inspector.compiled.hlo.module import Instruction
from inspector.compiled.hlo.replica_groups import Groups

# `AllReduceReassociate` looks through these.
_FORMATTING = frozenset({"reshape", "pad", "slice", "convert"})
# A tile of 32-bit elements on TPUs; one of 16-bit elements has twice as many rows or columns.
_SUBLANES, _LANES = 8, 128
_LEAST_COLUMNS = 32  # of rows that are scattered


def fold(passes: Passes, outer: Instruction) -> None:
    """Make one all-reduce of an all-reduce of an all-reduce: `AllReduceFolder`."""
    edited = passes.edited
    inner, reduction = passes.only_inner(outer), passes.reduction(outer)
    if inner is None or reduction is None or passes.reduction(inner) != reduction:
        return
    groups = product_of_groups(passes.groups(inner), passes.groups(outer))
    if groups is None:
        return
    folded = edited.set_attributes(outer, with_groups(outer.attributes_text, groups))
    edited.set_operands(folded, [edited.operand(inner).name])
    passes.changed("folded", (inner.name, outer.name), (outer.name,))


def reassociate(passes: Passes, operation: Instruction) -> None:
    """Reduce the sum of two values instead of summing two all-reduces: `AllReduceReassociate`.

    Nothing else may use the all-reduces, and they are inside of TPU slices. They are also found behind
    operations that only change the form, or an equal slice, as of a reduce-scatter.
    """
    edited = passes.edited
    operands = edited.operands(operation)
    if len(operands) != 2:
        return
    first, second = (_behind_formatting(passes, operand) for operand in operands)
    if first is None or second is None or first.opcode != second.opcode:
        return
    if first.opcode == "dynamic-slice":
        _reassociate_slices(passes, operation, first, second)
        return
    if any(operand.opcode == "convert" for operand in operands):
        return  # only with xla_gpu_enable_reassociation_for_converted_ar
    if not _are_alike(passes, first, second, operation.opcode):
        return
    summands = {first.name: first, second.name: second}
    if sum(_elements(summand) for summand in summands.values()) < _elements(operation):
        return
    for collective in summands.values():
        edited.replace(collective, edited.operand(collective))
    reduced = edited.insert(
        "all-reduce",
        operation.shape_text or "",
        [operation.name],
        first.attributes_text,
        operation,
        first.name,
    )
    edited.replace(operation, reduced)
    passes.changed("reassociated", tuple(summands), (reduced.name,))


def _reassociate_slices(
    passes: Passes, operation: Instruction, first: Instruction, second: Instruction
) -> None:
    """Slice one all-reduce of a sum instead of summing equal slices of two all-reduces."""
    edited = passes.edited
    if first.name == second.name or first.shape_text != second.shape_text:
        return
    starts = [[operand.name for operand in edited.operands(part)[1:]] for part in (first, second)]
    kept, removed = edited.operand(first), edited.operand(second)
    if starts[0] != starts[1] or kept.shape_text != removed.shape_text:
        return
    if not _are_alike(passes, kept, removed, operation.opcode):
        return
    total = edited.insert(
        operation.opcode,
        kept.shape_text or "",
        [edited.operand(kept).name, edited.operand(removed).name],
        operation.attributes_text,
        operation,
    )
    edited.set_operands(kept, [total.name])
    edited.replace(operation, first)
    passes.changed("reassociated", (kept.name, removed.name), (kept.name,))


def _behind_formatting(passes: Passes, value: Instruction) -> Instruction | None:
    """Return the all-reduce whose elements a value has, or its slice, if all of them have one user."""
    edited = passes.edited
    if value.opcode == "dynamic-slice":
        source = edited.operand(value)
        if source.opcode != "all-reduce" or edited.only_user(source) is None:
            return None
        return None if edited.only_user(value) is None else value
    while value.opcode != "all-reduce":
        if value.opcode not in _FORMATTING or edited.only_user(value) is None:
            return None
        value = edited.operand(value)
    return None if edited.only_user(value) is None else value


def _are_alike(passes: Passes, first: Instruction, second: Instruction, operation: str) -> bool:
    """Return whether two all-reduces apply this operation to the same type in the same groups."""
    groups = passes.groups(first)
    return (
        not passes.crosses_slices(first)
        and passes.has_one_operand(first)
        and passes.has_one_operand(second)
        and passes.reduction(first) == passes.reduction(second) == operation
        and dtype_of(first) == dtype_of(second)
        and groups is not None
        and groups == passes.groups(second)
    )


def scatter(passes: Passes, collective: Instruction) -> None:
    """Make a reduce-scatter of an all-reduce of which each device keeps only its slice.

    XLA's `ReduceScatterCreator`. A reshape that keeps the sliced dimensions may be between both.
    """
    edited = passes.edited
    user, reshaped = _kept_slice(passes, collective)
    if user is None:
        return
    groups = passes.groups(collective)
    reduced, whole, part = map(array_of, (collective, edited.operand(user), user))
    if groups is None or reduced is None or whole is None or part is None:
        return
    dimensions = _split_dimensions(whole.sizes, part.sizes)
    if not _is_scattered(passes, user, dimensions, groups):
        return
    if reshaped:
        kept = [_before_reshape(reduced.sizes, whole.sizes, number) for number in dimensions]
        dimensions = [number for number in kept if number is not None]
        if len(dimensions) < len(kept):
            return
    value, own = edited.operand(collective), metadata(collective)
    at, sizes = dimensions[0], list(reduced.sizes)
    if len(dimensions) > 1:
        # Consecutive dimensions become one, which is scattered.
        sizes[at : dimensions[-1] + 1] = [math.prod(sizes[at : dimensions[-1] + 1])]
        value = edited.insert("reshape", reduced.resized(sizes).text, [value.name], own, collective)
    sizes[at] //= len(groups[0])
    scattered = edited.insert(
        "reduce-scatter",
        reduced.resized(sizes).text,
        [value.name],
        scattered_attributes(collective.attributes_text, at),
        collective,
        renamed(collective.name, "reduce-scatter"),
    )
    result = scattered
    if tuple(sizes) != part.sizes:
        result = edited.insert("reshape", user.shape_text or "", [scattered.name], own, collective)
    edited.replace(user, result)
    passes.changed("reduce-scatter", (collective.name,), (scattered.name,))


def scatter_by_fusion(passes: Passes, collective: Instruction) -> None:
    """Make a reduce-scatter of an all-reduce where the compiler for TPUs has a fusion for both.

    Measured with libtpu 0.0.42 on 150 sums: it fuses arrays whose tiles it need not cut. On a square or
    three-dimensional slice it does not if all devices reduce.
    """
    user, _ = _kept_slice(passes, collective)
    groups = passes.groups(collective)
    if user is None or groups is None or not (passes.whole_rings or len(groups) > 1):
        return
    whole, part = array_of(passes.edited.operand(user)), array_of(user)
    if whole is None or part is None or len(part.sizes) < 2:
        return
    dimensions = _split_dimensions(whole.sizes, part.sizes)
    if len(dimensions) == 1 and _has_whole_tiles(part, dimensions[0], bits_of(user)):
        scatter(passes, collective)


def _has_whole_tiles(part: Array, cut: int, bits: int) -> bool:
    """Return whether a layout has whole tiles in a part of an array that is cut along one dimension.

    The parts are those of columns, of rows, or of rows of the transposed array.
    """
    *_, rows, columns = part.sizes
    if cut == len(part.sizes) - 1:
        if columns % _LANES == 0:
            return columns % max(_LANES * 32 // bits, _LANES) == 0
        if len(part.sizes) > 2 or columns % _SUBLANES:
            return False
        rows, columns = columns, rows
    elif cut < len(part.sizes) - 2:
        return True
    tiles = -(-rows // _SUBLANES) * -(-columns // _LANES)
    return rows >= _SUBLANES and columns >= _LEAST_COLUMNS and tiles >= 2


def _kept_slice(passes: Passes, collective: Instruction) -> tuple[Instruction | None, bool]:
    """Return the slice of an all-reduce that is its only use, and whether a reshape is between both."""
    edited = passes.edited
    user = edited.only_user(collective)
    reshaped = user is not None and user.opcode == "reshape"
    if user is not None and reshaped:
        user = edited.only_user(user)
    if user is None or user.opcode != "dynamic-slice" or not passes.has_one_operand(collective):
        return None, False
    return user, reshaped


def _is_scattered(passes: Passes, part: Instruction, dimensions: Sequence[int], groups: Groups) -> bool:
    """Return whether each device of a group takes the slice of its number in the group."""
    edited = passes.edited
    whole, own = array_of(edited.operand(part)), array_of(part)
    if whole is None or own is None or not dimensions or len(groups[0]) < 2:
        return False
    if list(dimensions) != list(range(dimensions[0], dimensions[-1] + 1)):
        return False
    counts = [whole.sizes[number] // own.sizes[number] for number in dimensions]
    if math.prod(counts) != len(groups[0]):
        return False
    starts = []
    for number in dimensions:
        offset = edited.operands(part)[1 + number]
        try:
            offsets = offsets_by_partition(edited, offset, passes.partitions)
        except ElidedTable:
            return True  # the partitioner slices into as many parts as devices that reduced
        if offsets is None:
            return False
        starts.append(offsets // own.sizes[number])
    for group in groups:
        for position, partition in enumerate(group):
            place = 0
            for start, count in zip(starts, counts, strict=True):
                place = place * count + int(start[partition])
            if place != position:
                return False
    return True


def _split_dimensions(whole: Sequence[int], part: Sequence[int]) -> list[int]:
    sizes = zip(whole, part, strict=True)
    return [number for number, (before, after) in enumerate(sizes) if before != after]


def _before_reshape(before: Sequence[int], after: Sequence[int], number: int) -> int | None:
    """Return the dimension before a reshape that it keeps as dimension `number`; None if it changes it."""
    preceding = math.prod(after[:number])
    product = 1
    for place, size in enumerate(before):
        if product == preceding and size == after[number]:
            return place
        product *= size
    return None


def _elements(instruction: Instruction) -> int:
    array = array_of(instruction)
    return 0 if array is None else math.prod(array.sizes)
