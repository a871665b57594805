"""Worker job: the effect of each rule, sharding constraint and mesh axis of a layout, without a compile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from cachetools import LRUCache, cached

from inspector.compare.search.bounds import Amounts, alike_key, least_seconds
from inspector.compare.search.evaluated import wire_bytes_of
from inspector.core import typed_json
from inspector.core.errors import InvalidInput, shown
from inspector.core.sharding_errors import sentence
from inspector.core.snapshot import Program
from inspector.core.snapshot.effects import (
    UNKNOWN_AXES,
    ChangeKind,
    Effect,
    Effects,
    LayoutCost,
    by_effect,
)
from inspector.core.totals import state_totals
from inspector.layout import Layout, from_json
from inspector.layout.changes import changes
from inspector.layout.plan import INDIVISIBLE, plan, programs_key
from inspector.machines import hardware
from inspector.machines.hardware import Chip
from inspector.machines.prediction.predicted import predicted
from inspector.producers.abstract import cached_state
from inspector.producers.propagation.amounts import amounts_of
from inspector.producers.propagation.locations import named_at
from inspector.producers.propagation.propagate import Setting, partitioned_totals
from inspector.producers.propagation.template import (
    Lowered,
    Template,
    template_key,
    template_of,
    template_of_program,
)
from inspector.producers.propagation.walk import operations

_CONSTRAINT = "sdy.sharding_constraint"


def effects(payload: dict[str, Any], report: Callable[..., None]) -> dict[str, Any]:
    """Worker job: a layout as JSON in, its `Effects` as JSON out. Needs no particular devices.

    The payload has the `program` and the name of the `chip`, which may be None. Progress has the effects
    `found` so far.
    """
    layout = from_json(payload["layout"])
    chip = None if payload["chip"] is None else hardware.chip(payload["chip"])
    return typed_json.encode(layout_effects(layout, payload["program"], chip, report))


@dataclass(frozen=True)
class _Variant:
    """A changed layout, or a change of the lowered program if `layout` is None."""

    kind: ChangeKind
    label: str
    layout: Layout | None
    without: str = ""  # the place of the removed constraint


def layout_effects(layout: Layout, program: str, chip: Chip | None, report: Callable[..., None]) -> Effects:
    """Partition the program under the layout and under each change of it.

    The changes with the largest effect on the bounds of the step come first. A change that shards no array in
    another way, or all of them as another change does, is not partitioned again.

    Raises:
      InvalidInput: the layout itself is not valid, or it has no such program.
    """
    report("lower")
    template = template_of(layout)
    names = [lowered.name for lowered in template.programs]
    names += [refused.name for refused in template.refused]
    if program not in names:
        raise InvalidInput(f"program is {shown(program)}, but must be one of {', '.join(names)}")
    current = _cost(_Variant("rule", "", layout), layout, program, chip)
    proposed, left_out = changes(layout)
    variants = [_Variant(change.kind, change.label, change.layout) for change in proposed]
    variants += _constraints_in_code(layout, program)
    amounts = amounts_of(template, layout, program)
    # Constraints come last, because each removed one of a named model needs a trace.
    variants.sort(
        key=lambda variant: (
            variant.kind == "constraint",
            -_least_effect(variant.layout or layout, layout, amounts, chip),
        )
    )
    name = None if chip is None else chip.name
    tried: list[Effect] = []

    def known_effects() -> Effects:
        return Effects(program, name, current, by_effect(current, tried), left_out)

    for number, variant in enumerate(variants):
        report("effects", done=number, of=len(variants), found=typed_json.encode(known_effects()))
        cost, reason = None, None
        try:
            cost = _cost(variant, layout, program, chip)
        except InvalidInput as error:
            reason = str(error)
        changed = None if variant.layout is None else variant.layout.to_json()
        tried.append(Effect(variant.kind, variant.label, changed, cost, reason))
    return known_effects()


def _constraints_in_code(layout: Layout, program: str) -> list[_Variant]:
    """Return a variant for each line with a sharding constraint, if the layout names no constraints."""
    if layout.entry.constraints:
        return []
    module = _named(template_of(layout), program).module
    places = dict.fromkeys(named_at(constraint.location)[1] for constraint in _constraints(module))
    return [_Variant("constraint", f"Remove constraint {place}", None, place) for place in places if place]


def _cost(variant: _Variant, current: Layout, program: str, chip: Chip | None) -> LayoutCost:
    layout = variant.layout or current
    planned = plan(layout, cached_state(layout))
    uneven = next((finding for finding in planned.findings if finding.code == INDIVISIBLE), None)
    if uneven is not None:
        raise InvalidInput(uneven.message)
    propagated = _propagated(variant, current, program)
    wire = wire_bytes_of(propagated)
    products = propagated.work.matmul if propagated.work else None
    return LayoutCost(
        state_totals(planned).per_device,
        {UNKNOWN_AXES: None} if wire is None else wire,
        None if products is None else sum(product.flops for product in products),
        None if chip is None else predicted(propagated, layout.mesh(), chip).seconds,
    )


def _least_effect(changed: Layout, layout: Layout, amounts: Amounts | None, chip: Chip | None) -> float:
    """Return the share by which a change moves the bound of the step or the state of a device."""
    before, after = (_least(each, amounts, chip) for each in (layout, changed))
    return max((abs(new - old) / old for old, new in zip(before, after, strict=True) if old), default=0.0)


def _least(layout: Layout, amounts: Amounts | None, chip: Chip | None) -> tuple[float, float]:
    state = state_totals(plan(layout, cached_state(layout))).per_device
    return least_seconds(amounts, layout, chip, state), float(state or 0)


def _key(variant: _Variant, current: Layout, program: str) -> tuple[str, str, str]:
    """Return a key that variants share if their programs are equal, with the names of mesh axes."""
    layout = variant.layout or current
    alike = None
    if template_key(layout) == template_key(current):
        alike = alike_key(amounts_of(template_of(current), current, program), layout)
    if alike is not None:
        sizes = zip(layout.axis_names, layout.mesh_shape, strict=True)
        alike += repr([name for name, size in sizes if size > 1])
    return alike or programs_key(layout), variant.without, program


@cached(LRUCache(128), key=_key)
def _propagated(variant: _Variant, current: Layout, program: str) -> Program:
    """Return the propagated program, from the cache if only the chip changed."""
    layout = variant.layout or current
    template = template_of_program(current, layout, program)
    lowered = _named(template, program)
    if variant.without:
        lowered = replace(lowered, module=_without_constraint(lowered.module, variant.without))
    return partitioned_totals(lowered, Setting.of(layout), template.logical, peak=False)[0]


def forget() -> None:
    """Empty the caches of propagated programs and abstract arrays."""
    _propagated.cache_clear()
    cached_state.cache_clear()


def _named(template: Template, program: str) -> Lowered:
    for refused in template.refused:
        if refused.sharding_error is not None and refused.name in (program, "init"):
            raise InvalidInput(sentence(refused.sharding_error))
    return next(lowered for lowered in template.programs if lowered.name == program)


def _constraints(module: Any) -> list[Any]:
    return [op for op in operations(module.operation, inner_first=True) if op.name == _CONSTRAINT]


def _without_constraint(module: Any, place: str) -> Any:
    """Return a copy of a module without the sharding constraints of one source line."""
    with module.context:
        copy = module.operation.clone()
        for operation in _constraints(copy):
            if named_at(operation.location)[1] == place:
                operation.results[0].replace_all_uses_with(operation.operands[0])
                operation.erase()
        return copy
