"""Worker job: the cost of search candidates after XLA's partitioner, without a compile."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from inspector.compare.search.evaluated import Evaluated, evaluated, rejected
from inspector.core import typed_json
from inspector.core.errors import InvalidInput
from inspector.core.formatting import bytes_text
from inspector.core.snapshot import Snapshot, Spec
from inspector.core.totals import totals
from inspector.layout import Layout, from_json
from inspector.layout.plan import INDIVISIBLE, plan
from inspector.machines import hardware
from inspector.machines.hardware import Chip
from inspector.machines.prediction.memory import STATE_AND_BATCH, fit
from inspector.producers.abstract import cached_state
from inspector.producers.propagation import collector
from inspector.producers.propagation.propagate import Setting
from inspector.producers.propagation.scaled import ScaledProgram, scaled_program
from inspector.producers.propagation.template import template_of


def evaluate(payload: dict[str, Any], report: Callable[..., None]) -> dict[str, Any]:
    """Worker job: `layouts` that differ only in the sizes of their mesh axes in, `Evaluated` of each out.

    The payload has the name of the `chip`, None for emulated devices. One layout is partitioned, from which
    the others are scaled: with `first` the first one, otherwise one in the middle. Needs no particular
    devices.
    """
    report("propagate")
    layouts = [from_json(layout) for layout in payload["layouts"]]
    name = payload["chip"]
    chip = None if name is None else hardware.chip(name)
    with collector.paused():
        candidates = costs(layouts, chip, payload["first"])
    return {"evaluated": [typed_json.encode(candidate) for candidate in candidates]}


def costs(layouts: Sequence[Layout], chip: Chip | None, first: bool) -> list[Evaluated]:
    """Return the cost of each layout, in order.

    One layout is partitioned, the `first` or one in the middle. If it can be scaled, the others with the same
    PartitionSpecs are scaled from it. `optimizer_axes` and `state_specs` give an array another PartitionSpec
    if the sizes of mesh axes do not divide it. Then the next one is partitioned. A layout with a mesh axis of
    one device comes last, because nothing can be scaled from it.
    """
    cost: dict[int, Evaluated] = {}
    planned: dict[int, _Planned] = {}
    for number, layout in enumerate(layouts):
        try:
            planned[number] = _Planned(plan(layout, cached_state(layout)))
        except InvalidInput as error:
            cost[number] = rejected(str(error))
            continue
        reason = _impossible(planned[number], chip)
        if reason is not None:
            cost[number] = rejected(reason, state_bytes=planned[number].state_bytes)
            del planned[number]
    rest = list(planned)
    while rest:
        whole = [n for n in rest if min(layouts[n].mesh_shape) > 1] or rest
        own = rest[0] if first else whole[len(whole) // 2]
        rest.remove(own)
        alike = [n for n in rest if planned[n].specs == planned[own].specs]
        try:
            program = _scaled(layouts[own], len(alike) >= _FEW)
        except InvalidInput as error:
            cost[own] = rejected(str(error))
            continue
        cost[own] = _cost(program, layouts[own], planned[own], chip)
        if program.scalable:
            cost |= {n: _cost(program, layouts[n], planned[n], chip, planned[own]) for n in alike}
            rest = [n for n in rest if n not in alike]
    return [cost[number] for number in range(len(layouts))]


# So many other layouts are scaled from one. Fewer are partitioned, which takes no longer.
_FEW = 2


@dataclass(frozen=True)
class _Planned:
    """The plan of a layout, and what is read from it more than once."""

    snapshot: Snapshot

    @functools.cached_property
    def specs(self) -> list[Spec | None]:
        """The PartitionSpec of each array."""
        return [array.spec for array in self.snapshot.arrays]

    @functools.cached_property
    def state_bytes(self) -> int | None:
        """Bytes of the train state and the batch on one device; None if unknown."""
        return totals(self.snapshot, STATE_AND_BATCH).per_device


def _impossible(planned: _Planned, chip: Chip | None) -> str | None:
    """Return why a layout cannot run: a dimension is not divisible, or its train state is too large."""
    uneven = next(
        (finding for finding in planned.snapshot.findings if finding.code == INDIVISIBLE), None
    )
    if uneven is not None:
        return uneven.message
    if chip is None:
        return None
    memory = fit(planned.snapshot, chip)
    if memory.fits is False and memory.needed is not None:
        return (
            f"the train state and the batch need {bytes_text(memory.needed)} on one device, "
            f"which has {bytes_text(memory.capacity)}"
        )
    return None


def _cost(
    program: ScaledProgram,
    layout: Layout,
    planned: _Planned,
    chip: Chip | None,
    scaled_from: _Planned | None = None,
) -> Evaluated:
    """Return the cost of a layout, from its own program, or from that of another plan."""
    mesh = layout.mesh()
    state, peak = planned.state_bytes, program.peak(mesh.sizes)
    if peak is not None:
        peak = max(peak, state or 0)
    own = program.program
    if scaled_from is not None:
        before = scaled_from.state_bytes
        own = program.on(mesh.sizes, state / before if state and before else 1.0)
    return evaluated(own, mesh, chip, state, peak, scaled=scaled_from is not None)


def _scaled(layout: Layout, scalable: bool) -> ScaledProgram:
    template = template_of(layout)
    name = layout.entry.watched_program
    lowered = next((program for program in template.programs if program.name == name), None)
    if lowered is None:
        reasons = [text for failed, text in template.failed if failed == name]
        raise InvalidInput(reasons[0] if reasons else f"JAX refuses to trace {name}")
    setting = replace(Setting.of(layout), watched=None)
    return scaled_program(lowered, setting, template.logical, scalable)
