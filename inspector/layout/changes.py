"""Changes of a layout: of one rule, constraint, mesh axis, size or option, as changed layouts.

All that proposes changes takes them from here: *Improve*, effects, fixes of findings, changes that make a
layout fit, and the search.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from inspector.core.errors import InvalidInput
from inspector.core.formatting import mesh_sizes_text
from inspector.core.rules import Rule
from inspector.core.rules.rule import rule_text
from inspector.core.snapshot import Change, ChangeKind, Spec
from inspector.core.state_specs import Fsdp, SpecRow
from inspector.layout import presets
from inspector.layout.layout import Layout
from inspector.machines import slices, targets
from inspector.model import SizeValue
from inspector.model.built_in import remat_names

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
    label = f"{first.label}, and {second.label[0].lower()}{second.label[1:]}"
    return Change(second.kind, label, second.layout)


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


def _without_rules(layout: Layout) -> Iterator[Proposed]:
    for number, (name, axes) in enumerate(layout.rules):
        rest = layout.rules[number + 1 :]
        label = f"Remove {rule_text((name, axes))}"
        if layout.entry.rules_semantics == "nnx":
            # Without a rule, nnx takes the logical axis for a mesh axis.
            rest = ((name, ()), *rest)
            label = f"Change {rule_text((name, axes))} to none"
        yield "rule", label, replace(layout, rules=(*layout.rules[:number], *rest))


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
        changed = replace(
            layout,
            rules=_rules_without(layout, axis),
            specs={place: _spec_without(spec, axis) for place, spec in layout.specs.items()},
            state_specs=tuple(_row_without(row, axis) for row in layout.state_specs),
            optimizer_axes=tuple(name for name in layout.optimizer_axes if name != axis),
        )
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


def _rules_without(layout: Layout, axis: str) -> tuple[Rule, ...]:
    """Return the rules without a mesh axis. Linen loses a rule that had no other axis."""
    kept = []
    for name, axes in layout.rules:
        rest = tuple(name for name in axes if name != axis)
        if rest or not axes or layout.entry.rules_semantics == "nnx":
            kept.append((name, rest))
    return tuple(kept)


def _spec_without(spec: Spec, axis: str) -> Spec:
    return tuple(tuple(name for name in axes or () if name != axis) or None for axes in spec)


def _row_without(row: SpecRow, axis: str) -> SpecRow:
    if not isinstance(row.spec, Fsdp):
        return SpecRow(row.pattern, _spec_without(row.spec, axis))
    rest = tuple(name for name in row.spec.axes if name != axis)
    return SpecRow(row.pattern, replace(row.spec, axes=rest) if rest else ())


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
