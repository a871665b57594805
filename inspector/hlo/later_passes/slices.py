"""Collectives over several TPU slices. The compiler does them in two levels: inside of slices and between."""

import math
from typing import NamedTuple

from inspector.hlo.later_passes.passes import (
    Passes,
    array_of,
    dimensions_of,
    gathered_attributes,
    metadata,
    renamed,
    scattered_attributes,
    with_dimension,
    with_groups,
    with_pairs,
)
from inspector.hlo.later_passes.reductions import (
    LANES,
    SUBLANES,
    has_whole_tiles,
    least_padded,
    scatter,
    sliced_dimensions,
    tiled,
    tilings,
)
from inspector.hlo.module import Instruction
from inspector.hlo.replica_groups import Groups


class _Levels(NamedTuple):
    """Groups of partitions inside of slices and between slices; the product is a group of a collective.

    in_order: each group has the partitions of one slice after those of another.
    """

    inside: Groups
    between: Groups
    in_order: bool


def _levels(passes: Passes, collective: Instruction) -> _Levels | None:
    """Return the two levels of a collective.

    None if its groups are inside of slices, if they have one device of each slice, or if they have
    different numbers of devices in several slices.
    """
    groups, slices = passes.groups(collective), passes.slices
    if groups is None or slices is None or not passes.has_one_operand(collective):
        return None
    inside: list[tuple[int, ...]] = []
    between: list[tuple[int, ...]] = []
    in_order = True
    for group in groups:
        members: dict[int, list[int]] = {}
        for partition in group:
            members.setdefault(slices[partition], []).append(partition)
        parts = [tuple(part) for part in members.values()]
        if len(parts) < 2 or len(parts[0]) < 2 or len({len(part) for part in parts}) > 1:
            return None
        inside += parts
        between += zip(*parts, strict=True)
        in_order &= tuple(partition for part in parts for partition in part) == group
    return _Levels(tuple(inside), tuple(between), in_order)


def scatter_between_slices(passes: Passes, collective: Instruction) -> None:
    """Reduce-scatter partial sums of which each slice keeps its part. Inside of slices all-reduces stay."""
    if passes.crosses_slices(collective) and _levels(passes, collective) is None:
        scatter(passes, collective)


def reduce_in_slices(passes: Passes, collective: Instruction) -> None:
    """Scatter a sum inside of slices, all-reduce the parts between them, and all-gather inside.

    The parts are cut along the one dimension along which the only user slices the sum, or else along the
    first that the devices of a slice divide; vectors between tiles. Inside of a slice the sum is a
    reduce-scatter if the compiler has a fusion for it. What nothing divides is reduced whole on both levels.
    """
    edited = passes.edited
    levels, array = _levels(passes, collective), array_of(collective)
    if levels is None or array is None:
        return
    name, attributes = collective.name, collective.attributes_text
    inside, between = (with_groups(attributes, groups) for groups in (levels.inside, levels.between))
    value, user = edited.operand(collective), edited.only_user(collective)
    count, sizes = len(levels.inside[0]), list(array.sizes)
    unit = count if len(sizes) > 1 else count * SUBLANES * LANES
    sliced = sliced_dimensions(collective, user) if user is not None else []
    tried = (*(sliced if len(sliced) == 1 else ()), *range(len(sizes)))
    cut = next((at for at in tried if sizes[at] % unit == 0), None)
    if cut is None:
        collective = edited.set_attributes(collective, between)
        send_tiles(passes, collective)
        collective = edited.instructions[name]
        value, shape = edited.operand(collective), collective.shape_text or ""
        reduced = edited.insert("all-reduce", shape, [value.name], inside, collective, f"{name}.inside")
        edited.set_operands(collective, [reduced.name])
        return
    sizes[cut] //= count
    part = array.resized(sizes)
    one_ring = passes.whole_rings or len(levels.inside) > len(levels.between[0])
    pair = least_padded(sizes, tilings(passes, collective))
    if one_ring and (len(sizes) == 1 or has_whole_tiles(part, cut, pair)):
        scattered = edited.insert(
            "reduce-scatter", part.text, [value.name], scattered_attributes(inside, cut), collective,
            renamed(name, "reduce-scatter"),
        )  # fmt: skip
    else:
        whole = edited.insert("all-reduce", array.text, [value.name], inside, collective, f"{name}.inside")
        limits = ", ".join(f"[0:{size}]" for size in sizes)
        kept = f", slice={{{limits}}}{metadata(collective)}"
        scattered = edited.insert("slice", part.text, [whole.name], kept, collective)
    reduced = edited.insert("all-reduce", part.text, [scattered.name], between, collective)
    gathered = edited.insert(
        "all-gather", collective.shape_text or "", [reduced.name], gathered_attributes(inside, cut),
        collective, renamed(name, "all-gather"),
    )  # fmt: skip
    edited.replace(collective, gathered)
    edited.rename(reduced, name)


def send_tiles(passes: Passes, collective: Instruction) -> None:
    """Send a sum between slices in whole tiles, in the layout that pads least.

    Tiles have 8 rows, a power of two if the array has fewer, and one in a reduce-scatter.
    """
    array = array_of(collective)
    if array is None or not passes.crosses_slices(collective) or not passes.has_one_operand(collective):
        return
    edited, own, elements = passes.edited, metadata(collective), math.prod(array.sizes)
    sizes = array.sizes if len(array.sizes) > 1 else (-(-elements // LANES), LANES)
    most = 1 if collective.opcode == "reduce-scatter" else SUBLANES
    pairs = tilings(passes, collective) or [(1, 0)]
    sent = min(tiled(sizes, p, min(most, 1 << max(sizes[p[1]] - 1, 0).bit_length())) for p in pairs)
    if sent == elements or not elements:
        return
    value = edited.operand(collective)
    parts = ((value.shape and value.shape.elements) or elements) // elements
    before = array.resized([parts * sent // LANES, 1, LANES])
    operand = edited.insert("bitcast", before.text, [value.name], own, collective)
    changed = edited.set_operands(collective, [operand.name])
    changed = edited.set_shape(changed, array.resized([sent // LANES, 1, LANES]).text)
    changed = edited.set_attributes(changed, with_dimension(changed.attributes_text, 0))
    users = edited.users(changed)
    edited.replace(changed, edited.insert("bitcast", array.text, [changed.name], own, collective), users)


def gather_in_slices(passes: Passes, collective: Instruction) -> None:
    """All-gather between slices first, where each device sends its own shard, and then inside of them."""
    edited = passes.edited
    levels, array = _levels(passes, collective), array_of(collective)
    if levels is None or array is None:
        return
    name, attributes = collective.name, collective.attributes_text
    (at,) = dimensions_of(collective)
    devices, slices = len(levels.inside[0]), len(levels.between[0])
    before, shard, after = (
        array.sizes[:at], array.sizes[at] // (devices * slices), array.sizes[at + 1 :]
    )  # fmt: skip
    outer = edited.insert(
        "all-gather",
        array.resized([*before, slices * shard, *after]).text,
        [edited.operand(collective).name],
        with_groups(attributes, levels.between),
        collective,
        f"{name}.between",
    )
    inside = with_groups(attributes, levels.inside)
    gathered = edited.insert("all-gather", array.text, [outer.name], inside, collective)
    result = gathered
    if levels.in_order:
        apart = [*before, devices, slices, shard, *after]
        order = list(range(len(apart)))
        order[at], order[at + 1] = at + 1, at
        result = passes.transposed(gathered, apart, order, collective.shape_text, collective)
    edited.replace(collective, result)
    edited.rename(gathered, name)
    if name in passes.repeated:
        passes.repeated.add(outer.name)


def permute_in_slices(passes: Passes, collective: Instruction) -> None:
    """Send to other slices apart from the transfers inside of slices.

    All slices run one program, so the transfers inside of one slice are done in every slice. Those of two
    slices are two operations, unless they are equal.
    """
    edited, slices, pairs = passes.edited, passes.slices, passes.pairs(collective)
    if pairs is None or slices is None or not passes.has_one_operand(collective):
        return
    between = tuple(pair for pair in pairs if len({slices[end] for end in pair}) > 1)
    members: dict[int, list[int]] = {}
    for partition, number in enumerate(slices):
        members.setdefault(number, []).append(partition)
    place = {member: at for part in members.values() for at, member in enumerate(part)}
    inside: dict[tuple[tuple[int, int], ...], None] = {}
    for number in members:
        own = [pair for pair in pairs if {slices[end] for end in pair} == {number}]
        if any(sender != receiver for sender, receiver in own):
            inside.setdefault(tuple((place[sender], place[receiver]) for sender, receiver in own))
    if not between or not inside or len({len(part) for part in members.values()}) > 1:
        return
    name, attributes, shape = (
        collective.name, collective.attributes_text, collective.shape_text or "",
    )  # fmt: skip
    value = edited.operand(collective).name

    def permute(transfers: Groups, title: str) -> Instruction:
        written = with_pairs(attributes, transfers)
        return edited.insert("collective-permute", shape, [value], written, collective, title)

    moved = [permute(between, f"{name}.between")]
    for transfers in inside:
        every = [(part[a], part[b]) for part in members.values() for a, b in transfers]
        moved.append(permute(tuple(every), f"{name}.inside"))
    # A device that receives nothing has zeros.
    result = moved[0]
    for other in moved[1:]:
        result = edited.insert("add", shape, [result.name, other.name], metadata(collective), collective)
        passes.merged.add(result.name)
    edited.replace(collective, result)
    edited.rename(moved[0], name)
