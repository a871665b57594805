"""Worker job: the cost of search candidates by propagation, without a compile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from inspector.core import typed_json
from inspector.core.errors import InvalidInput
from inspector.core.formatting import bytes_text
from inspector.core.snapshot import Snapshot
from inspector.core.totals import totals
from inspector.layout import Layout, from_json
from inspector.layout.plan import INDIVISIBLE, plan
from inspector.machines import hardware
from inspector.machines.hardware import Chip
from inspector.machines.prediction.memory import STATE_AND_BATCH, fit
from inspector.producers.abstract import cached_state
from inspector.producers.propagation.propagate import Setting
from inspector.producers.propagation.scaled import ScaledProgram, scaled_program
from inspector.producers.propagation.template import template_of, watched_program
from inspector.search.evaluated import Evaluated, evaluated, rejected

# Of a group with more meshes, the one with the best figure is propagated too.
_FEW = 5


def evaluate(payload: dict[str, Any], report: Callable[..., None]) -> dict[str, Any]:
    """Worker job: `layouts` that differ only in the sizes of their mesh axes in, `Evaluated` of each out.

    The payload has the name of the `chip`, None for emulated devices. With `exact`, each layout is propagated
    by itself. Otherwise the others are scaled from one or two that are. Needs no particular devices.
    """
    report("propagate")
    layouts = [from_json(each) for each in payload["layouts"]]
    name = payload["chip"]
    chip = None if name is None else hardware.chip(name)
    found = costs(layouts, chip, payload["exact"])
    return {"evaluated": [typed_json.encode(each) for each in found]}


def costs(layouts: Sequence[Layout], chip: Chip | None, exact: bool) -> list[Evaluated]:
    """Return the cost of each layout, in order. Without `exact`, most are scaled from another one."""
    found: dict[int, Evaluated] = {}
    planned: dict[int, Snapshot] = {}
    for number, layout in enumerate(layouts):
        try:
            planned[number] = plan(layout, cached_state(layout))
        except InvalidInput as error:
            found[number] = rejected(str(error))
            continue
        reason = _impossible(planned[number], chip)
        if reason is not None:
            found[number] = rejected(reason, state_bytes=_state_bytes(planned[number]))
            del planned[number]
    rest = list(planned)
    while rest:
        first = rest[len(rest) // 2]
        try:
            program = _scaled(layouts[first])
        except InvalidInput as error:
            found[first] = rejected(str(error))
            rest.remove(first)
            continue
        found[first] = _cost(program, layouts[first], planned[first], chip, first=True)
        rest.remove(first)
        if exact or not program.scalable:
            continue
        found |= {n: _cost(program, layouts[n], planned[n], chip) for n in rest}
        if len(rest) > _FEW:
            _check_best(rest, layouts, planned, chip, found)
        break
    return [found[number] for number in range(len(layouts))]


def _check_best(
    rest: list[int],
    layouts: Sequence[Layout],
    planned: dict[int, Snapshot],
    chip: Chip | None,
    found: dict[int, Evaluated],
) -> None:
    """Propagate the best of the scaled candidates. Each other one keeps the better of the two figures.

    On some sizes the partitioner chooses other transfers. A candidate must not be lost because the first mesh
    of its group was such a case; the best ones are propagated by themselves later.
    """
    best = min(rest, key=lambda n: found[n].seconds or float("inf"))
    try:
        program = _scaled(layouts[best])
    except InvalidInput as error:
        found[best] = rejected(str(error))
        return
    found[best] = _cost(program, layouts[best], planned[best], chip, first=True)
    if not program.scalable:
        return
    for number in rest:
        if number == best:
            continue
        other = _cost(program, layouts[number], planned[number], chip)
        if (other.seconds or float("inf")) < (found[number].seconds or float("inf")):
            found[number] = other


def _impossible(planned: Snapshot, chip: Chip | None) -> str | None:
    """Return why a layout cannot run: a dimension is not divisible, or its train state is too large."""
    uneven = next((one for one in planned.findings if one.code == INDIVISIBLE), None)
    if uneven is not None:
        return uneven.message
    if chip is None:
        return None
    memory = fit(planned, chip)
    if memory.fits is False and memory.needed is not None:
        return (
            f"the train state and the batch need {bytes_text(memory.needed)} on one device, "
            f"which has {bytes_text(memory.capacity)}"
        )
    return None


def _cost(
    program: ScaledProgram,
    layout: Layout,
    planned: Snapshot,
    chip: Chip | None,
    first: bool = False,
) -> Evaluated:
    mesh = layout.mesh()
    own = program.program if first else program.on(mesh.sizes)
    state, peak = _state_bytes(planned), program.peak(mesh.sizes)
    if peak is not None:
        peak = max(peak, state or 0)
    return evaluated(own, mesh, chip, "propagated", None, state, peak, scaled=not first)


def _state_bytes(planned: Snapshot) -> int | None:
    return totals(planned, STATE_AND_BATCH).per_device


def _scaled(layout: Layout) -> ScaledProgram:
    template = template_of(layout)
    name = watched_program(layout)
    lowered = next((each for each in template.programs if each.name == name), None)
    if lowered is None:
        reasons = [text for failed, text in template.failed if failed == name]
        raise InvalidInput(reasons[0] if reasons else f"JAX refuses to trace {name}")
    return scaled_program(lowered, replace(Setting.of(layout), watched=None), template.logical)
