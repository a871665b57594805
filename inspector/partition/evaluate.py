"""Worker jobs: the cost of search candidates after XLA's partitioner, and bounds of it before."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from inspector.layout import Layout, from_json
from inspector.layout.plan import INDIVISIBLE, plan
from inspector.machines import hardware
from inspector.machines.hardware import Chip
from inspector.partition import shardy
from inspector.partition.amounts import amounts_of
from inspector.partition.partition_layout import Setting, partitioned_totals
from inspector.partition.template import Template, template_of
from inspector.prediction.memory import STATE_AND_BATCH, fit
from inspector.prediction.predicted import of_equal_layers
from inspector.records import typed_json
from inspector.records.job_report import JobReport
from inspector.records.snapshot import Snapshot
from inspector.search.bounds import alike_key, least_seconds
from inspector.search.result import Candidate, ProgramCost, of_program, together
from inspector.search.space import equal_layers
from inspector.sharding.totals import totals
from inspector.text.errors import InvalidInput
from inspector.text.formatting import bytes_text
from inspector.tracing.model.abstract import cached_state


def bound(payload: dict[str, Any], report: JobReport) -> dict[str, Any]:
    """Worker job: `layouts` in, a `Candidate` with bounds of each out. Needs no particular devices.

    The payload has the name of the `chip`, None for emulated devices, and the names of `programs`, none for
    that of a step.
    """
    return _evaluated(payload, report, "bound", bound_of)


def evaluate(payload: dict[str, Any], report: JobReport) -> dict[str, Any]:
    """Worker job: the payload of `bound` in, a `Candidate` of each layout out, which is partitioned."""
    return _evaluated(payload, report, "partition", cost_of)


def estimate(payload: dict[str, Any], report: JobReport) -> dict[str, Any]:
    """Worker job: the payload of `bound` in, a `Candidate` with an estimate of each layout out."""
    return _evaluated(payload, report, "partition", lambda layout, chip, _: estimate_of(layout, chip))


def _evaluated(
    payload: dict[str, Any],
    report: JobReport,
    phase: str,
    evaluated: Callable[[Layout, Chip | None, Sequence[str]], Candidate],
) -> dict[str, Any]:
    report(phase)
    name = payload["chip"]
    chip = None if name is None else hardware.chip(name)
    layouts, programs = map(from_json, payload["layouts"]), tuple(payload.get("programs", ()))
    with shardy.paused():
        costs = [typed_json.encode(evaluated(layout, chip, programs)) for layout in layouts]
    return {"evaluated": costs}


def bound_of(layout: Layout, chip: Chip | None, programs: Sequence[str] = ()) -> Candidate:
    """Return the facts about a layout before it is partitioned: why it cannot run, or its least step.

    programs: those that are bounded; that of a step if there are none.
    """
    names = tuple(programs) or (layout.step_program,)
    try:
        planned = plan(layout, cached_state(layout))
        template = template_of(layout, names)
        amounts = {name: amounts_of(template, layout, name) for name in names}
    except InvalidInput as error:
        return Candidate("rejected", str(error))
    state = totals(planned, STATE_AND_BATCH).per_device
    reason = _impossible(planned, chip)
    if reason is not None:
        return Candidate("rejected", reason, state_bytes=state)
    alike = [alike_key(amount, layout) for amount in amounts.values()]
    bounds = tuple(
        ProgramCost(name, at_least=least_seconds(amount, layout, chip, state))
        for name, amount in amounts.items()
    )
    main = next((bound for bound in bounds if bound.name == layout.step_program), bounds[0])
    return Candidate(
        "planned",
        state_bytes=state,
        at_least=main.at_least,
        alike=None if None in alike else " ".join(filter(None, alike)),
        programs=bounds if programs else (),
    )


def cost_of(layout: Layout, chip: Chip | None, programs: Sequence[str] = ()) -> Candidate:
    """Return the cost of a layout that can run, from its partitioned programs.

    programs: as in `bound_of`.
    """
    names = tuple(programs) or (layout.step_program,)
    try:
        state = totals(plan(layout, cached_state(layout)), STATE_AND_BATCH).per_device
        template = template_of(layout, names)
        costs = {name: _cost_of(name, state, template, layout, chip) for name in names}
    except InvalidInput as error:
        return Candidate("rejected", str(error))
    return together(costs, layout.step_program) if programs else costs[names[0]]


def _cost_of(
    name: str, state: int | None, template: Template, layout: Layout, chip: Chip | None
) -> Candidate:
    lowered = next((program for program in template.programs if program.name == name), None)
    if lowered is None:
        reasons = [text for failed, text in template.failed if failed == name]
        raise InvalidInput(reasons[0] if reasons else f"JAX refuses to trace {name}")
    setting = replace(Setting.of(layout), watched=None)
    program, peak = partitioned_totals(lowered, setting, template.logical)
    if peak is not None:
        peak = max(peak, state or 0)
    return of_program(program, layout.mesh(), chip, state, peak)


def estimate_of(layout: Layout, chip: Chip | None) -> Candidate:
    """Return a candidate with about the seconds of the step of a layout with equal layers, None if unknown.

    They are from its programs with one and with two layers, which are partitioned in a third of the time.
    """
    if chip is None:
        return Candidate("planned")
    programs = []
    for count in (1, 2):
        reduced = replace(layout, sizes={**layout.sizes, "layers": count})
        template = template_of(reduced, (layout.step_program,))
        lowered = next(program for program in template.programs if program.name == layout.step_program)
        setting = replace(Setting.of(reduced), watched=None)
        programs.append(partitioned_totals(lowered, setting, template.logical, with_peak=False)[0])
    return Candidate("planned", seconds=of_equal_layers(programs, equal_layers(layout), layout.mesh(), chip))


def _impossible(planned: Snapshot, chip: Chip | None) -> str | None:
    """Return why a layout cannot run: a dimension is not divisible, or its train state is too large."""
    uneven = next((finding for finding in planned.findings if finding.code == INDIVISIBLE), None)
    if uneven is not None:
        return uneven.message
    if chip is None:
        return None
    need = fit(planned, chip).need
    if need is not None and need.fits is False:
        return (
            f"the state and the batch need {bytes_text(need.peak_bytes)} on one device, "
            f"which has {bytes_text(need.capacity_bytes)}"
        )
    return None
