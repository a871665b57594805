"""Changes of one rule, sharding constraint or mesh axis of a layout, and presets, as changed layouts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from inspector.core.formatting import mesh_sizes_text
from inspector.core.rules import Rule
from inspector.core.rules.rule import rule_text
from inspector.core.snapshot import ChangeKind, Spec
from inspector.core.state_specs import Fsdp, SpecRow
from inspector.layout import presets
from inspector.layout.layout import Layout

MOST_SWAPS = 40  # half a minute for a large model


@dataclass(frozen=True)
class Change:
    """A change in words, and the changed layout."""

    kind: ChangeKind
    label: str
    layout: Layout


def changes(layout: Layout) -> tuple[list[Change], int]:
    """Return distinct changes of a layout, and the number of swaps beyond `MOST_SWAPS`.

    A change removes one rule or one constraint, leaves one mesh axis unused, moves its devices to another
    axis, shards the optimizer state over one axis less, exchanges the mesh axes of two rules, or is a preset
    on the same devices. A model with device axes has PartitionSpecs of arrays instead of rules.
    """
    single = [*_without_rules(layout), *_replicated(layout), *_without_constraints(layout)]
    seen = {_identity(layout)}
    axes = (*_without_axes(layout), *_without_optimizer_axes(layout), *with_presets(layout))
    kept = [change for change in (*single, *axes) if _is_new(change, seen)]
    swaps = [change for change in _swapped(layout) if _is_new(change, seen)]
    return kept + swaps[:MOST_SWAPS], max(len(swaps) - MOST_SWAPS, 0)


def _is_new(change: Change, seen: set[str]) -> bool:
    identity = _identity(change.layout)
    is_new = identity not in seen
    seen.add(identity)
    return is_new


def _identity(layout: Layout) -> str:
    return layout.key(*("mesh", "axes", "rules", "specs", "state_specs", "unconstrained", "optimizer_axes"))


def _without_rules(layout: Layout) -> Iterator[Change]:
    for number, (name, axes) in enumerate(layout.rules):
        rest = layout.rules[number + 1 :]
        label = f"Remove {rule_text((name, axes))}"
        if layout.entry.rules_semantics == "nnx":
            # Without a rule, nnx takes the logical axis for a mesh axis.
            rest = ((name, ()), *rest)
            label = f"Change {rule_text((name, axes))} to none"
        yield Change("rule", label, replace(layout, rules=(*layout.rules[:number], *rest)))


def _replicated(layout: Layout) -> Iterator[Change]:
    for place, spec in layout.specs.items():
        whole: Spec = (None,) * len(spec)
        yield Change("spec", f"Replicate {place}", replace(layout, specs={**layout.specs, place: whole}))
    for number, row in enumerate(layout.state_specs):
        rows = list(layout.state_specs)
        rows[number] = SpecRow(row.pattern, ())
        yield Change("spec", f"Replicate {row.pattern}", replace(layout, state_specs=tuple(rows)))


def _without_constraints(layout: Layout) -> Iterator[Change]:
    for name in layout.entry.constraints:
        removed = tuple(
            constraint
            for constraint in layout.entry.constraints
            if constraint == name or constraint in layout.unconstrained
        )
        yield Change("constraint", f"Remove constraint {name}", replace(layout, unconstrained=removed))


def _without_axes(layout: Layout) -> Iterator[Change]:
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
        yield Change("axis", f"Leave axis {axis} unused", changed)
        if not others:
            continue
        largest = max(others, key=sizes.__getitem__)
        shape = tuple(sizes[name] * (size if name == largest else 1) for name in others)
        label = f"Move axis {axis} into {largest} ({mesh_sizes_text(others, shape)})"
        yield Change("axis", label, changed.on_mesh(shape, tuple(others)))


def _without_optimizer_axes(layout: Layout) -> Iterator[Change]:
    for axis in layout.optimizer_axes:
        fewer = tuple(name for name in layout.optimizer_axes if name != axis)
        label = f"Do not shard the optimizer state over {axis} as well"
        yield Change("axis", label, replace(layout, optimizer_axes=fewer))


def with_presets(layout: Layout) -> Iterator[Change]:
    """Yield the presets of the model on the same devices."""
    for preset in presets.fitting(layout.entry):
        changed = preset.applied_to(layout)
        mesh = mesh_sizes_text(changed.axis_names, changed.mesh_shape)
        yield Change("preset", f"Use the preset {preset.name} ({mesh})", changed)


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


def _swapped(layout: Layout) -> Iterator[Change]:
    """Yield the layout with exchanged mesh axes of each two rules for logical axes of the model."""
    known = layout.entry.logical_axes
    numbers = [n for n, (name, _) in enumerate(layout.rules) if not known or name in known]
    for first, second in itertools.combinations(numbers, 2):
        rules = list(layout.rules)
        (name, axes), (other, other_axes) = rules[first], rules[second]
        rules[first], rules[second] = (name, other_axes), (other, axes)
        label = f"Swap {rule_text((name, axes))}, {rule_text((other, other_axes))}"
        yield Change("swap", label, replace(layout, rules=tuple(rules)))
