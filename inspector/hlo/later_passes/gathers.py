"""All-gathers that the compilers move, merge or repeat."""

import itertools
import re
from collections.abc import Sequence

from inspector.hlo.later_passes.passes import (
    MOVES,
    SAME_ELEMENTS,
    Passes,
    array_of,
    bits_of,
    dimensions_of,
    dtype_of,
    metadata,
    product_of_groups,
    with_dimension,
    with_groups,
    with_metadata,
    with_type,
)
from inspector.hlo.module import Instruction
from inspector.hlo.opcodes import SAME_DATA

_HIGHER = re.compile(r"high|packed", re.I)
# Through these, the compiler for TPUs moves the conversion of an operand of a product: their results are
# exact in the precision of the operand. XLA's BFloat16Propagation asks
# FloatSupport::EffectiveOperandPrecisionIsOutputPrecision (xla/service/float_support.cc).
_MOVED_THROUGH = SAME_ELEMENTS | {
    *MOVES, "abs", "broadcast", "clamp", "concatenate", "dynamic-slice", "dynamic-update-slice", "gather",
    "maximum", "minimum", "pad", "reverse", "select", "sort",
}  # fmt: skip


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
            step.opcode,
            with_type(step.shape_text, dtype),
            [value.name],
            step.attributes_text,
            step,
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
            or (
                (user.opcode in _MOVED_THROUGH or user.name in passes.merged)
                and not (user.opcode in MOVES and passes.crosses_slices(user))
                and _only_in_products(passes, user)
            )
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


# If more instructions of the partitioned program are between two users of an all-gather, the compiler for
# TPUs gathers again. Measured with libtpu 0.0.42: it does at 212 and more, and in one case at 196. It does
# not at 168 and fewer, and in five cases at 219 to 278.
_FAR_APART = 200
# Attributes that do not change the result of an instruction.
_OTHER_ATTRIBUTES = frozenset({
    "metadata", "channel_id", "frontend_attributes", "backend_config", "sharding",
})  # fmt: skip


def fold_gathers(passes: Passes, outer: Instruction) -> None:
    """Make one all-gather of an all-gather of an all-gather along another dimension.

    XLA's partitioner gathers one dimension after the other, that of the compiler for TPUs all at once. Two
    all-gathers along one dimension stay apart.
    """
    edited = passes.edited
    inner = passes.only_inner(outer)
    if inner is None or dimensions_of(inner) == dimensions_of(outer):
        return
    groups, outer_groups = passes.groups(inner), passes.groups(outer)
    product = product_of_groups(groups, outer_groups)
    value = edited.operand(inner)
    array = array_of(value)
    if product is None or not groups or not outer_groups or array is None:
        return
    (first,), (second,) = dimensions_of(inner), dimensions_of(outer)
    counts = len(outer_groups[0]), len(groups[0])
    own = metadata(outer)
    before = edited.insert("reshape", array.resized([1, *array.sizes]).text, [value.name], own, outer)
    gathered = edited.insert(
        "all-gather",
        array.resized([counts[0] * counts[1], *array.sizes]).text,
        [before.name],
        with_dimension(with_groups(outer.attributes_text, product), 0),
        outer,
    )
    # The positions in both groups come before the dimensions along which they were gathered.
    order = list(range(2, len(array.sizes) + 2))
    order.insert(order.index(second + 2), 0)
    order.insert(order.index(first + 2), 1)
    result = passes.transposed(gathered, [*counts, *array.sizes], order, outer.shape_text, outer)
    edited.replace(outer, result)
    edited.rename(gathered, outer.name)


def gather_again(passes: Passes) -> None:
    """Gather an array again for users that follow much later, such as those of the backward pass."""
    edited = passes.edited
    places = {name: number for number, name in enumerate(edited.instructions)}
    gathers = [
        instruction for instruction in edited.instructions.values() if instruction.opcode == "all-gather"
    ]
    for collective in gathers:
        chain = [collective]  # up to the value that several instructions use
        while (user := edited.only_user(chain[-1])) is not None and (
            user.opcode in SAME_ELEMENTS or user.opcode == "dynamic-slice"
        ):
            chain.append(user)
        users = sorted(edited.users(chain[-1]), key=lambda user: places[user.name])
        for number, (user, following) in enumerate(itertools.pairwise(users), 1):
            if places[following.name] - places[user.name] > _FAR_APART:
                copies = _repeated(passes, chain, following)
                places |= dict.fromkeys((copy.name for copy in copies), places[following.name])
                edited.replace(chain[-1], copies[-1], users[number:])
                passes.repeated |= {copy.name for copy in copies}
                break


def _repeated(passes: Passes, chain: Sequence[Instruction], at: Instruction) -> list[Instruction]:
    """Repeat instructions, each of which uses the one before as its first operand, for the user `at`.

    They have the name of the operation that needs them, as in a compiled program.
    """
    edited = passes.edited
    reader = at
    while reader.does in SAME_DATA and (users := edited.users(reader)):
        reader = users[0]
    copies: list[Instruction] = []
    for instruction in chain:
        operands = [operand.name for operand in edited.operands(instruction)]
        if copies:
            operands[0] = copies[-1].name
        copy = edited.insert(
            instruction.opcode,
            instruction.shape_text or "",
            operands,
            with_metadata(instruction.attributes_text, reader),
            at,
            f"{instruction.name}.again",
        )
        copies.append(copy)
    return copies


def gather_before_broadcast(passes: Passes, collective: Instruction) -> None:
    """Broadcast a gathered array instead of gathering a broadcast one: `AllGatherBroadcastReorder`."""
    edited = passes.edited
    if not passes.has_one_operand(collective):
        return
    broadcast = edited.operand(collective)
    array = array_of(collective)
    if broadcast.opcode != "broadcast" or array is None:
        return
    value, (at,) = edited.operand(broadcast), dimensions_of(collective)
    small, kept = array_of(value), dimensions_of(broadcast)
    if small is None or at not in kept:
        return
    place = kept.index(at)
    sizes = list(small.sizes)
    sizes[place] = array.sizes[at]
    gathered = edited.insert(
        "all-gather",
        small.resized(sizes).text,
        [value.name],
        with_dimension(collective.attributes_text, place),
        collective,
    )
    after = edited.insert(
        "broadcast", collective.shape_text or "", [gathered.name], broadcast.attributes_text, collective
    )
    edited.replace(collective, after)
    edited.rename(gathered, collective.name)


def merge_equal(passes: Passes) -> None:
    """Keep one of equal collectives of the same value, which narrower types can make equal: `HloCSE`."""
    edited = passes.edited
    known: dict[object, Instruction] = {}
    compared = {*MOVES, "convert", "transpose", "reshape"}
    for name in [name for name, op in edited.instructions.items() if op.opcode in compared]:
        instruction = edited.instructions.get(name)
        if instruction is None or name in passes.repeated:
            continue
        key = (
            instruction.opcode,
            instruction.shape_text,
            tuple(operand.name for operand in edited.operands(instruction)),
            tuple(
                (attribute, value)
                for attribute, value in instruction.attributes.items()
                if attribute not in _OTHER_ATTRIBUTES
            ),
        )
        first = known.setdefault(key, instruction)
        if first is instruction:
            continue
        edited.replace(instruction, first)
