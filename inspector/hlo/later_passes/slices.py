"""Collectives over several TPU slices. The compiler does them in two levels: inside of slices and between."""

from typing import NamedTuple

from inspector.hlo.later_passes.passes import (
    Passes,
    array_of,
    dimensions_of,
    gathered_attributes,
    metadata,
    renamed,
    scattered_attributes,
    with_groups,
    with_pairs,
)
from inspector.hlo.later_passes.reductions import scatter
from inspector.hlo.module import Instruction
from inspector.hlo.replica_groups import Groups

# A tile of 8 × 128 float32. The compiler does not scatter arrays with less for each device of a slice.
_TILE_BYTES = 4096


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
    """Reduce-scatter inside of slices, all-reduce the parts between them, and all-gather inside."""
    edited = passes.edited
    levels, array = _levels(passes, collective), array_of(collective)
    if levels is None or array is None or collective.shape is None:
        return
    name, attributes = collective.name, collective.attributes_text
    inside = with_groups(attributes, levels.inside)
    between = with_groups(attributes, levels.between)
    value, elements = edited.operand(collective), collective.shape.elements or 0
    count = len(levels.inside[0])
    if (collective.shape.bytes or 0) < count * _TILE_BYTES or elements % count:
        reduced = edited.insert("all-reduce", array.text, [value.name], inside, collective, f"{name}.inside")
        edited.set_operands(edited.set_attributes(collective, between), [reduced.name])
        return
    flat, part = array.resized([elements]).text, array.resized([elements // count]).text
    own = metadata(collective)
    before = edited.insert("reshape", flat, [value.name], own, collective)
    scattered = edited.insert(
        "reduce-scatter", part, [before.name], scattered_attributes(inside, 0), collective,
        renamed(name, "reduce-scatter"),
    )  # fmt: skip
    reduced = edited.insert("all-reduce", part, [scattered.name], between, collective)
    gathered = edited.insert(
        "all-gather", flat, [reduced.name], gathered_attributes(inside, 0), collective,
        renamed(name, "all-gather"),
    )  # fmt: skip
    after = edited.insert("reshape", collective.shape_text or "", [gathered.name], own, collective)
    edited.replace(collective, after)
    edited.rename(reduced, name)


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
    edited.replace(collective, result)
    edited.rename(moved[0], name)
