"""Changes of a layout: of one rule, constraint, mesh axis, size or option, as changed layouts.

All that proposes changes takes them from here: *Improve*, effects, fixes of findings, changes that make a
layout fit, and the search.
"""

import difflib
import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from inspector.layout import presets
from inspector.layout.layout import Layout
from inspector.machines import slices, targets
from inspector.model import SizeValue
from inspector.model.built_in import remat_names
from inspector.records.snapshot import Change, ChangeKind, Spec
from inspector.sharding.rules import Rule
from inspector.sharding.rules.rule import rule_text, rule_words
from inspector.sharding.sharding_text import spec_text
from inspector.sharding.state_specs import Fsdp, SpecRow
from inspector.text.errors import InvalidInput
from inspector.text.formatting import and_text, mesh_sizes_text

MOST_SWAPS = 40  # half a minute for a large model
# Changes that keep the mesh and the sharding of the parameters: a fault there is a mistake, and its
# change is small. The earlier is the smaller change.
SMALL: tuple[ChangeKind, ...] = (
    "donation", "optimizer", "batch", "constraint", "kernel", "microbatches", "rematerialization",
)  # fmt: skip
_TIMES = (2, 4, 8)  # the devices of now
# The values of `remat`, from the least that the backward pass computes again to the most.
_REMATERIALIZED = ("none", "minimal", "full")
_OFFLOADED = f"offload:{'+'.join(('decoder_layer_input', *remat_names.MINIMAL))}"

Proposed = tuple[ChangeKind, str, Layout]


def changes(layout: Layout) -> tuple[list[Change], int]:
    """Return distinct changes of a layout on its devices, and the number of swaps beyond `MOST_SWAPS`.

    Some are not valid. A model with device axes has PartitionSpecs of arrays instead of rules.
    """
    seen = {_identity(layout)}
    sources = (
        *(_donated, on_optimizer_axes, _on_batch_axes, _with_kernels, _in_microbatches, _rematerialized),
        *(
            _without_rules,
            _replicated,
            _without_constraints,
            _without_axes,
            _without_optimizer_axes,
            _presets,
        ),
    )
    kept = _new(itertools.chain(*(source(layout) for source in sources)), seen)
    swaps = _new(_swapped(layout), seen)
    return kept + swaps[:MOST_SWAPS], max(len(swaps) - MOST_SWAPS, 0)


def offloaded(layout: Layout) -> list[Change]:
    """Return the layout whose backward pass reads activations from the host, which can only save memory."""
    now = layout.sizes.get("remat")
    if not isinstance(now, str) or now.startswith("offload"):
        return []
    label = "Keep activations in the memory of the host (remat offload)"
    return _new([("offload", label, _sized(layout, "remat", _OFFLOADED))], set())


def more_chips(layout: Layout) -> list[Change]:
    """Return the layout with more devices along each mesh axis, on the next machine with that number."""
    return _new(_on_more_chips(layout), set())


def both(first: Change, second: Change) -> Change:
    """Return a change, and another one of its layout, as one change."""
    return Change(second.kind, f"{first.label}, and {second.words}", second.layout)


def neighbors(layout: Layout, kept: Collection[str] = ()) -> Iterator[Layout]:
    """Yield the layout with each other rule for one logical axis of its model.

    The axis is then sharded over no mesh axis, over one, over one more, or over one fewer. A model without
    rules has no neighbors. Some are equal to the layout, because an array cannot use a mesh axis twice.

    Args:
      kept: logical axes whose rules must stay.
    """
    for name in layout.entry.logical_axes if layout.entry.has_rules else ():
        if name not in kept:
            own = _axes_of(layout, name)
            fewer = (tuple(one for one in own if one != axis) for axis in own)
            one = ((axis,) for axis in layout.axis_names)
            more = ((*own, axis) for axis in layout.axis_names if axis not in own)
            others = dict.fromkeys([(), *one, *more, *fewer])
            yield from (_with_rule(layout, name, axes) for axes in others if axes != own)


def _new(proposed: Iterable[Proposed], seen: set[str]) -> list[Change]:
    new = []
    for kind, label, layout in proposed:
        identity = _identity(layout)
        if identity not in seen:
            new.append(Change(kind, label, layout.to_json()))
        seen.add(identity)
    return new


def _identity(layout: Layout) -> str:
    return layout.key(
        *("mesh", "axes", "rules", "specs", "state_specs", "unconstrained", "optimizer_axes"),
        *("sizes", "donate", "target"),
    )


def _sized(layout: Layout, name: str, value: SizeValue) -> Layout:
    return replace(layout, sizes={**layout.sizes, name: value})


def _axes_of(layout: Layout, name: str) -> tuple[str, ...]:
    """Return the mesh axes of a logical axis. Its first rule counts."""
    return dict(reversed(layout.rules)).get(name, ())


def _with_rule(layout: Layout, name: str, axes: tuple[str, ...]) -> Layout:
    """Return the layout with these mesh axes for one logical axis, in the place of its first rule."""
    rules = layout.rules
    place = next((n for n, (other, _) in enumerate(rules) if other == name), len(rules))
    before, after = (tuple(r for r in part if r[0] != name) for part in (rules[:place], rules[place:]))
    return replace(layout, rules=(*before, (name, axes), *after))


def _donated(layout: Layout) -> Iterator[Proposed]:
    if not layout.donate and layout.step_program == "train_step":
        yield "donation", "Donate the train state", replace(layout, donate=True)


def on_optimizer_axes(layout: Layout) -> Iterator[Proposed]:
    sizes = dict(zip(layout.axis_names, layout.mesh_shape, strict=True))
    free = [name for name in sizes if sizes[name] > 1 and name not in layout.optimizer_axes]
    for name in sorted(free, key=lambda name: -sizes[name]):
        changed = replace(layout, optimizer_axes=(*layout.optimizer_axes, name))
        yield "optimizer", f"Shard the optimizer state over {name} as well", changed


def _on_batch_axes(layout: Layout) -> Iterator[Proposed]:
    """Yield the layout with the batch over one more mesh axis."""
    sizes = dict(zip(layout.axis_names, layout.mesh_shape, strict=True))
    for name in layout.entry.logical_axes if layout.entry.has_rules else ():
        if layout.entry.extents.get(name, name) != "batch":
            continue
        own = _axes_of(layout, name)
        for axis in sizes:
            if sizes[axis] > 1 and axis not in own:
                rule = (name, (*own, axis))
                yield (
                    "batch",
                    f"Shard the batch over {axis} as well ({rule_text(rule)})",
                    _with_rule(layout, *rule),
                )


def _with_kernels(layout: Layout) -> Iterator[Proposed]:
    if layout.sizes.get("attention") == "plain" and layout.machine is not None:
        yield "kernel", "Use a flash kernel for attention", _sized(layout, "attention", "flash")


def _in_microbatches(layout: Layout) -> Iterator[Proposed]:
    """Yield the layout with twice and half the microbatches."""
    pipeline = layout.sizes.get("stages", 1) != 1
    name = "microbatches" if pipeline else "accumulate"
    now, batch = layout.sizes.get(name), layout.sizes.get("batch")
    if not isinstance(now, int) or not isinstance(batch, int):
        return
    where = "the pipeline" if pipeline else "a train step"
    for count in (now * 2, now // 2):
        if count and batch % count == 0:
            label = f"Use {count} microbatch{'es' if count > 1 else ''} in {where}"
            yield "microbatches", label, _sized(layout, name, count)


def _rematerialized(layout: Layout) -> Iterator[Proposed]:
    now = layout.sizes.get("remat")
    if not isinstance(now, str):
        return
    place = _REMATERIALIZED.index(now) if now in _REMATERIALIZED else 0.5
    for number, value in enumerate(_REMATERIALIZED):
        words = "Keep more activations for" if number < place else "Compute activations again in"
        if value != now:
            label = f"{words} the backward pass (remat {value})"
            yield "rematerialization", label, _sized(layout, "remat", value)


def _on_more_chips(layout: Layout) -> Iterator[Proposed]:
    for times in _TIMES:
        target = _larger(layout, times)
        for axis in sorted(range(len(layout.axis_names)), key=lambda axis: -layout.mesh_shape[axis]):
            if target is None:
                continue
            shape = list(layout.mesh_shape)
            shape[axis] *= times
            changed = replace(layout.on_mesh(tuple(shape), layout.axis_names), target=target)
            mesh = mesh_sizes_text(layout.axis_names, shape)
            where = "" if changed.machine is None else f"{changed.machine.title}, "
            yield "chips", f"Use {times} times the devices ({where}{mesh})", changed


def _larger(layout: Layout, times: int) -> str | None:
    """Return the target with `times` times the devices; None if there is none."""
    machine = layout.machine
    if machine is None:
        return layout.target
    if machine.slice is None:
        text = f"{machine.kind}:{machine.chip_name}:{machine.devices * times}"
    elif machine.slices > 1:
        text = f"tpu:{machine.slice.generation}:{machine.slice.topology}*{machine.slices * times}"
    else:
        chips, generation = machine.slice.chips * times, machine.slice.generation
        fitting = (known.topology for known in slices.slices(generation) if known.chips == chips)
        text = f"tpu:{generation}:{next(fitting, '')}"
    try:
        return targets.parse(text).text
    except InvalidInput:
        return None


def _without_rules(layout: Layout, numbers: Iterable[int] | None = None) -> Iterator[Proposed]:
    """Yield the layout without each rule, or without those with these numbers."""
    for number in range(len(layout.rules)) if numbers is None else numbers:
        name, axes = layout.rules[number]
        rest = layout.rules[number + 1 :]
        label = f"Remove {rule_text((name, axes))}"
        if layout.entry.rules_semantics == "nnx":
            # Without a rule, nnx takes the logical axis for a mesh axis.
            rest = ((name, ()), *rest)
            label = f"Change {rule_text((name, axes))} to none"
        yield "rule", label, replace(layout, rules=(*layout.rules[:number], *rest))


def other_rules(
    layout: Layout, names: Collection[str], choices: Sequence[tuple[str, ...]]
) -> Iterator[Proposed]:
    """Yield the layout with one rule more, another one, one in another place, or one fewer, in this order.

    names: logical axes of the rules. choices: mesh axes for them, fewer first.
    """
    rules = layout.rules
    places = {name: [n for n, (other, _) in enumerate(rules) if other == name] for name in names}
    own = [n for mine in places.values() for n in mine]
    free = [(n, name) for name, mine in places.items() for n in {len(rules), 0, *mine[:1]}]
    for axes, (n, name) in itertools.product(choices, sorted(free, key=lambda place: -place[0])):
        before = "" if n == len(rules) else f" before {rule_words(n, rules)}"
        label = f"Add the rule `{rule_text((name, axes))}`{before}"
        yield "rule", label, replace(layout, rules=(*rules[:n], (name, axes), *rules[n:]))
    for axes in choices:
        for n in own:
            for wanted in (axes, (*rules[n][1], *axes)):
                if len(set(wanted)) == len(wanted):
                    yield _with_other_rule(layout, n, (rules[n][0], wanted))
    for n, to in itertools.product(own, range(len(rules))):
        rest = [*rules[:n], *rules[n + 1 :]]
        rest.insert(to, rules[n])
        label = f"Move {rule_words(n, rules)}, {'before' if to < n else 'after'} {rule_words(to, rules)}"
        yield "rule", label, replace(layout, rules=tuple(rest))
    yield from _without_rules(layout, own)


def other_name(layout: Layout, number: int) -> Iterator[Proposed]:
    """Yield the layout with a rule for the logical axis whose name is near, and without the rule."""
    name, axes = layout.rules[number]
    for near in difflib.get_close_matches(name, list(layout.entry.logical_axes), n=1):
        yield _with_other_rule(layout, number, (near, axes))
    yield from _without_rules(layout, [number])


def _with_other_rule(layout: Layout, number: int, rule: Rule) -> Proposed:
    """Return the layout with another rule in the place of one."""
    rules = layout.rules
    label = f"Change {rule_words(number, rules)}, to `{rule_text(rule)}`"
    return "rule", label, replace(layout, rules=(*rules[:number], rule, *rules[number + 1 :]))


def other_specs(
    layout: Layout,
    places: Collection[str],
    parameters: Collection[str],
    choices: Sequence[tuple[str, ...]],
    fewer: bool,
) -> Iterator[Proposed]:
    """Yield the layout with other mesh axes in the PartitionSpecs of a model with device axes.

    They change in one partition, in one dimension of each of two parameters, or, as a rule would, for one
    logical axis wherever it has the same mesh axes.

    Args:
      places: the partitions that may change alone. parameters: those that may change together.
      choices: the mesh axes that a dimension gets, or gets as well.
      fewer: whether a dimension may lose mesh axes.
    """

    def others(spot: tuple[str, int]) -> list[tuple[str, ...]]:
        own = axes_at(layout, spot)
        every = [axes for choice in choices for axes in (choice, (*own, *choice))]
        every += [axes for n in range(len(own) * fewer) for axes in itertools.combinations(own, n)]
        return [axes for axes in dict.fromkeys(every) if axes != own and len(set(axes)) == len(axes)]

    partitions = layout.entry.partitions
    spots = {place: [(place, n) for n in range(len(names))] for place, names in partitions.items()}
    changes: list[dict[tuple[str, int], tuple[str, ...]]] = []
    for place in places:
        every = ((axes_at(layout, spot), *others(spot)) for spot in spots[place])
        changes += [dict(zip(spots[place], axes, strict=True)) for axes in itertools.product(*every)]
    for pair in itertools.combinations(parameters, 2):
        for two in itertools.product(*(spots[place] for place in pair)):
            changes += [dict(zip(two, axes, strict=True)) for axes in itertools.product(*map(others, two))]
    for alike in alike_spots(layout):
        changes += [dict.fromkeys(alike, axes) for axes in others(alike[0])]
    seen = {tuple(layout.specs.values())}
    for change in changes:
        specs: dict[str, Spec] = {
            place: tuple(change.get(spot, axes_at(layout, spot)) or None for spot in spots[place])
            for place in layout.specs
        }
        used = ([axis for axes in spec or () for axis in axes or ()] for spec in specs.values())
        if tuple(specs.values()) not in seen and all(len(set(axes)) == len(axes) for axes in used):
            seen.add(tuple(specs.values()))
            changed = [place for place in specs if specs[place] != layout.specs[place]]
            texts = [
                f"of {place} from {spec_text(layout.specs[place] or ())} to {spec_text(specs[place] or ())}"
                for place in changed
            ]
            label = f"Change the PartitionSpec{'s' if len(texts) > 1 else ''} {and_text(texts)}"
            yield "spec", label, replace(layout, specs=specs)


def axes_at(layout: Layout, spot: tuple[str, int]) -> tuple[str, ...]:
    """Return the mesh axes of a partition's dimension."""
    place, dimension = spot
    return (layout.specs[place] or ())[dimension] or ()


def alike_spots(layout: Layout) -> list[list[tuple[str, int]]]:
    """Return the partitions and dimensions with the same logical axis and the same mesh axes, as lists."""
    alike: dict[object, list[tuple[str, int]]] = {}
    for place, names in layout.entry.partitions.items():
        for number, name in enumerate(names):
            spot = place, number
            alike.setdefault((name, axes_at(layout, spot)), []).append(spot)
    return list(alike.values())


def raised(layout: Layout, multiples: Mapping[str, int]) -> Iterator[Proposed]:
    """Yield the layout with each size raised to the next multiple.

    Yield nothing if a size would be too large, or no multiple of another one, as the model needs it.
    """
    sizes, bases = dict(layout.sizes), layout.entry.multiples
    # A size that another one must be a multiple of is raised first.
    for name in sorted(multiples, key=lambda name: name in bases):
        known, base, size = layout.entry.size(name), sizes.get(bases.get(name, ""), 1), sizes[name]
        assert isinstance(size, int)
        step = math.lcm(multiples[name], base) if isinstance(base, int) else multiples[name]
        sizes[name] = own = -(-size // step) * step
        if known is None or own > (known.most or math.inf):
            return
    for name, base_name in bases.items():
        whole, part = sizes.get(name), sizes.get(base_name)
        if isinstance(whole, int) and isinstance(part, int) and part and whole % part:
            return
    words = and_text([f"{name} from {layout.sizes[name]} to {sizes[name]}" for name in multiples])
    changed = "" if set(multiples) == {"batch"} else ", which changes the model"
    yield "size", f"Raise {words}{changed}", replace(layout, sizes=sizes)


def _replicated(layout: Layout) -> Iterator[Proposed]:
    for place, spec in layout.specs.items():
        whole: Spec = (None,) * len(spec)
        yield "spec", f"Replicate {place}", replace(layout, specs={**layout.specs, place: whole})
    for number, row in enumerate(layout.state_specs):
        rows = list(layout.state_specs)
        rows[number] = SpecRow(row.pattern, ())
        yield "spec", f"Replicate {row.pattern}", replace(layout, state_specs=tuple(rows))


def _without_constraints(layout: Layout) -> Iterator[Proposed]:
    for name in layout.entry.constraints:
        removed = tuple(
            constraint
            for constraint in layout.entry.constraints
            if constraint == name or constraint in layout.unconstrained
        )
        yield "constraint", f"Remove constraint {name}", replace(layout, unconstrained=removed)


def _without_axes(layout: Layout) -> Iterator[Proposed]:
    """Yield the layout with each mesh axis unused, and without it, on the same number of devices.

    An unused axis has no rule, so its devices repeat the work of others. The size of a removed axis moves to
    the largest other axis.
    """
    sizes = dict(zip(layout.axis_names, layout.mesh_shape, strict=True))
    for axis, size in sizes.items():
        if size == 1:
            continue
        others = [name for name in layout.axis_names if name != axis]
        changed = without_axes(layout, (axis,))
        yield "axis", f"Leave axis {axis} unused", changed
        if not others:
            continue
        largest = max(others, key=sizes.__getitem__)
        shape = tuple(sizes[name] * (size if name == largest else 1) for name in others)
        label = f"Move axis {axis} into {largest} ({mesh_sizes_text(others, shape)})"
        yield "axis", label, changed.on_mesh(shape, tuple(others))


def _without_optimizer_axes(layout: Layout) -> Iterator[Proposed]:
    for axis in layout.optimizer_axes:
        fewer = tuple(name for name in layout.optimizer_axes if name != axis)
        label = f"Do not shard the optimizer state over {axis} as well"
        yield "axis", label, replace(layout, optimizer_axes=fewer)


def _presets(layout: Layout) -> Iterator[Proposed]:
    for preset in presets.fitting(layout.entry):
        changed = preset.applied_to(layout)
        mesh = mesh_sizes_text(changed.axis_names, changed.mesh_shape)
        yield "preset", f"Use the preset {preset.name} ({mesh})", changed


def without_axes(layout: Layout, dropped: Collection[str]) -> Layout:
    """Return the layout on its mesh, with no array sharded over these mesh axes."""

    def kept(axes: tuple[str, ...] | None) -> tuple[str, ...]:
        return tuple(name for name in axes or () if name not in dropped)

    def of_row(row: SpecRow) -> SpecRow:
        if not isinstance(row.spec, Fsdp):
            return SpecRow(row.pattern, tuple(kept(axes) or None for axes in row.spec))
        rest = kept(row.spec.axes)
        return SpecRow(row.pattern, replace(row.spec, axes=rest) if rest else ())

    # In Linen a rule to no axis is final, which a rule that loses its axes was not.
    final = layout.entry.rules_semantics == "nnx"
    return replace(
        layout,
        rules=tuple((name, kept(axes)) for name, axes in layout.rules if kept(axes) or not axes or final),
        specs={
            place: tuple(kept(axes) or None for axes in spec or ()) for place, spec in layout.specs.items()
        },
        state_specs=tuple(map(of_row, layout.state_specs)),
        optimizer_axes=kept(layout.optimizer_axes),
    )


def _swapped(layout: Layout) -> Iterator[Proposed]:
    """Yield the layout with exchanged mesh axes of each two rules for logical axes of the model."""
    known = layout.entry.logical_axes
    numbers = [n for n, (name, _) in enumerate(layout.rules) if not known or name in known]
    for first, second in itertools.combinations(numbers, 2):
        rules = list(layout.rules)
        (name, axes), (other, other_axes) = rules[first], rules[second]
        rules[first], rules[second] = (name, other_axes), (other, axes)
        label = f"Swap {rule_text((name, axes))}, {rule_text((other, other_axes))}"
        yield "swap", label, replace(layout, rules=tuple(rules))
