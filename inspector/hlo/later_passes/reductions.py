"""All-reduces that the compilers merge, or replace by reduce-scatters."""

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from inspector.hlo.later_passes.edited import EditedComputation
from inspector.hlo.later_passes.passes import (
    Passes,
    SizedArray,
    array_of,
    product_of_groups,
    renamed,
    scattered_attributes,
    with_groups,
)
from inspector.hlo.module import Instruction
from inspector.hlo.opcodes import SAME_DATA
from inspector.hlo.replica_groups import Groups
from inspector.hlo.shapes import element_bits

# Offsets of slices that depend on the number of the device's partition.
#
# The partitioner computes them from `partition-id`, constant tables and a few integer operations.


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


# A tile of 32-bit elements on TPUs; one of 16-bit elements has twice as many rows or columns.
SUBLANES, LANES = 8, 128
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


def reassociate(passes: Passes, addition: Instruction) -> None:
    """Reduce the sum of two values instead of summing two all-reduces: `AllReduceReassociate`.

    Nothing else may use the all-reduces, and they are inside of TPU slices. They can have equal slices, as of
    a reduce-scatter.
    """
    edited = passes.edited
    first, second = edited.operands(addition)
    if first.name == second.name or first.opcode != second.opcode or first.shape_text != second.shape_text:
        return
    reduced = [first, second]
    if first.opcode == "dynamic-slice":
        starts = [[operand.name for operand in edited.operands(part)[1:]] for part in (first, second)]
        if starts[0] != starts[1] or any(edited.only_user(part) is None for part in reduced):
            return
        reduced = [edited.operand(part) for part in reduced]
    kept, removed = reduced
    if not _are_alike(passes, kept, removed):
        return
    total = edited.insert(
        "add",
        kept.shape_text or "",
        [edited.operand(kept).name, edited.operand(removed).name],
        addition.attributes_text,
        addition,
    )
    edited.set_operands(kept, [total.name])
    edited.replace(addition, first)


def _are_alike(passes: Passes, first: Instruction, second: Instruction) -> bool:
    """Return whether two values are sums of arrays of one shape in the same groups, with one use each."""
    if first.opcode != "all-reduce" or second.opcode != "all-reduce":
        return False
    groups = passes.groups(first)
    return (
        first.shape_text == second.shape_text
        and all(passes.edited.only_user(collective) is not None for collective in (first, second))
        and not passes.crosses_slices(first)
        and passes.has_one_operand(first)
        and passes.has_one_operand(second)
        and passes.reduction(first) == passes.reduction(second) == "add"
        and groups is not None
        and groups == passes.groups(second)
    )


def scatter(passes: Passes, collective: Instruction) -> None:
    """Make a reduce-scatter of an all-reduce of which each device keeps only its slice.

    XLA's `ReduceScatterCreator`, for slices along one dimension.
    """
    edited = passes.edited
    kept = _kept_slice(passes, collective)
    groups = passes.groups(collective)
    if kept is None or groups is None or not _is_scattered(passes, kept, groups):
        return
    scattered = edited.insert(
        "reduce-scatter",
        kept.part.text,
        [edited.operand(collective).name],
        scattered_attributes(collective.attributes_text, kept.dimension),
        collective,
        renamed(collective.name, "reduce-scatter"),
    )
    edited.replace(kept.user, scattered)


def scatter_by_fusion(passes: Passes, collective: Instruction) -> None:
    """Make a reduce-scatter of an all-reduce if the compiler for TPUs has a fusion for both.

    Measured with libtpu 0.0.42 on 180 sums: it fuses arrays whose tiles it need not cut. On a square or
    three-dimensional slice it does not if all devices reduce.
    """
    kept, groups = _kept_slice(passes, collective), passes.groups(collective)
    whole = array_of(collective)
    if kept is None or whole is None or groups is None or not (passes.whole_rings or len(groups) > 1):
        return
    minor, rows = least_padded(whole.sizes, tilings(passes, collective))
    columns = kept.part.sizes[kept.dimension]
    if len(whole.sizes) == 2 and kept.dimension == minor and columns % LANES and not columns % SUBLANES:
        minor, rows = rows, minor
    if has_whole_tiles(kept.part, kept.dimension, (minor, rows)):
        scatter(passes, collective)


def tilings(passes: Passes, value: Instruction) -> list[tuple[int, int]]:
    """Return the dimensions that can be columns and rows of the tiles of a sum, last dimensions first.

    In a sum of products they are the last dimensions of both factors. Vectors have none.
    """
    array = array_of(value)
    count = 0 if array is None else len(array.sizes)
    source = value
    while source.opcode in ("all-reduce", "reduce-scatter", "slice", "copy"):
        source = passes.edited.operand(source)
    if source.opcode == "dot":
        right = array_of(passes.edited.operand(source, 1))
        shared = (source.attributes.get(f"rhs_{kind}_dims", "") for kind in ("contracting", "batch"))
        own = (len(right.sizes) if right else 0) - sum(len(_INTEGER.findall(dims)) for dims in shared)
        last = count - 1 - own
        if 0 <= last < count - 1:
            return [(count - 1, last), (last, count - 1)]
    return list(itertools.permutations(reversed(range(count)), 2))


def least_padded(sizes: Sequence[int], pairs: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the dimensions that are columns and rows of tiles in the layout that pads least.

    >>> least_padded((16, 16, 20, 512), [(3, 2), (3, 1)])
    (3, 1)
    """
    return min(pairs, key=lambda pair: tiled(sizes, pair, SUBLANES), default=(0, 0))


def tiled(sizes: Sequence[int], pair: tuple[int, int], rows: int) -> int:
    """Return the elements of an array with its padding, in tiles of 128 columns and some rows."""
    sides = {pair[0]: LANES, pair[1]: rows}
    return math.prod(-(-size // (side := sides.get(n, 1))) * side for n, size in enumerate(sizes))


def has_whole_tiles(part: SizedArray, cut: int, pair: tuple[int, int]) -> bool:
    """Return whether a part of an array that is cut along one dimension has whole tiles.

    pair: the dimensions that are columns and rows of tiles. The others are in their order.
    """
    if len(part.sizes) < 2:
        return False
    minor, second = pair
    columns, rows = part.sizes[minor], part.sizes[second]
    outer = [number for number in range(len(part.sizes)) if number not in pair]
    if outer and cut == outer[0]:
        return True
    tiles = tiled(part.sizes, pair, SUBLANES) // (SUBLANES * LANES)
    bits = element_bits(part.dtype) or 32
    if cut == minor and columns % max(LANES * 32 // bits, LANES):
        return False
    return cut in pair and rows >= SUBLANES and columns >= _LEAST_COLUMNS and tiles >= 2


class _KeptSlice(NamedTuple):
    """The only use of an all-reduce: a slice along one dimension.

    user: the instruction that slices. part: its result.
    """

    user: Instruction
    part: SizedArray
    dimension: int


def _kept_slice(passes: Passes, collective: Instruction) -> _KeptSlice | None:
    """Return the only use of an all-reduce; None if it is not a slice along one dimension."""
    user = passes.edited.only_user(collective)
    if user is None or user.opcode != "dynamic-slice" or not passes.has_one_operand(collective):
        return None
    part, cut = array_of(user), sliced_dimensions(collective, user)
    return _KeptSlice(user, part, cut[0]) if part is not None and len(cut) == 1 else None


def sliced_dimensions(value: Instruction, user: Instruction) -> list[int]:
    """Return the dimensions along which a user slices a value; none if it is another operation."""
    whole, part = array_of(value), array_of(user)
    if user.opcode != "dynamic-slice" or whole is None or part is None:
        return []
    sizes = enumerate(zip(whole.sizes, part.sizes, strict=True))
    return [number for number, (before, after) in sizes if before != after]


def _is_scattered(passes: Passes, kept: _KeptSlice, groups: Groups) -> bool:
    """Return whether each device of a group takes the slice of its number in the group."""
    edited, size = passes.edited, kept.part.sizes[kept.dimension]
    whole, *starts = edited.operands(kept.user)
    array = array_of(whole)
    if array is None or array.sizes[kept.dimension] != size * len(groups[0]):
        return False
    offsets = offsets_by_partition(edited, starts[kept.dimension], passes.partitions)
    return offsets is not None and all(
        offsets[partition] == position * size for group in groups for position, partition in enumerate(group)
    )
