"""Compute the `Assessment` of a Snapshot: does it fit, how long does a step take, and what does it send?

Nothing else computes these figures. A section that explains one of them, such as *Memory* or *Time*, takes
the figure from here and adds its parts.
"""

from collections import Counter
from collections.abc import Sequence

from inspector import audit
from inspector.compiled.device_traffic import range_of_run
from inspector.layout.plan import rejection
from inspector.machines import targets
from inspector.machines.hardware import CHIPS, Chip
from inspector.machines.mesh_links import bytes_between_slices
from inspector.prediction import memory
from inspector.prediction.evidence import evidence_of, evidence_on, for_chip, platform_on
from inspector.prediction.predicted import Predicted, predicted, predicted_in
from inspector.prediction.step_parts import measured_parts, step_parts
from inspector.prediction.step_program import step_program
from inspector.records.assessment import (
    REJECTED,
    UNKNOWN_AXES,
    Assessment,
    FindingCounts,
    MemoryKind,
    MemoryNeed,
    Step,
    StepTraffic,
)
from inspector.records.snapshot import Collective, Mesh, Program, Snapshot
from inspector.records.statistics import statistics
from inspector.sharding.meshes import number_of_devices
from inspector.sharding.once import once_per_snapshot
from inspector.sharding.totals import state_totals
from inspector.sharding.traffic import least_bytes, sent_by_busiest, traffic, wire_bytes_of_iteration
from inspector.text.formatting import and_text, bytes_text

NO_CHIP = "no chip is chosen"


@once_per_snapshot
def _assessments(snapshot: Snapshot) -> dict[str | None, Assessment]:
    """Return the assessments by chip, empty at first. A page asks for each several times."""
    return {}


def assess(snapshot: Snapshot, chip: Chip | None = None) -> Assessment:
    """Return the memory of a layout or program, the time of its step, and the bytes it sends.

    Args:
      chip: the chosen chip for a Snapshot without one. Others are assessed on their own chip.

    >>> from inspector.records.snapshot import Snapshot, Source
    >>> assess(Snapshot(Source("plan", None, "2026-01-01"), None, None, ())).basis
    'planned'
    """
    chip = targets.chip_for(snapshot, chip)
    name, known = None if chip is None else chip.name, _assessments(snapshot)
    if name not in known:
        # The audit checks the programs as they were recorded, whatever chip is chosen.
        known[name] = _assessed(for_chip(snapshot, chip), chip, count_findings(snapshot, chip))
    return known[name]


def _assessed(snapshot: Snapshot, chip: Chip | None, findings: FindingCounts) -> Assessment:
    program = step_program(snapshot)
    rejected = rejection(snapshot)
    evidence = evidence_of(snapshot, program, chip)
    sent, known, unknown_traffic = _sent(program, None if program is None else snapshot.mesh_of(program))
    step, unknown_step = step_time(snapshot, program, chip, sent)
    if rejected:  # JAX refused it, so its partitioned program runs nowhere
        step, sent, known = None, None, None
        unknown_step = unknown_traffic = REJECTED
    return Assessment(
        chip=None if chip is None else chip.name,
        devices=number_of_devices(snapshot),
        basis=evidence.stage,
        program=None if program is None else program.name,
        step=step,
        memory=memory.fit(snapshot, chip).need,
        traffic=sent,
        state_bytes_per_device=state_totals(snapshot).per_device,
        findings=findings,
        rejected=rejected or None,
        unknown_step=unknown_step,
        unknown_traffic=unknown_traffic,
        known_traffic=known,
        evidence=evidence,
    )


def assess_candidate(
    program: Program, mesh: Mesh, chip: Chip | None, state_bytes: int | None, peak_bytes: int | None
) -> Assessment:
    """Return the assessment of a layout of a search from its partitioned program on a mesh of such chips.

    Thousands of layouts are partitioned, or scaled from another one, so they are not audited.

    Args:
      state_bytes: bytes of the train state and the batch on one device; None if unknown.
      peak_bytes: the estimated peak of the program; None if unknown.
    """
    evidence = evidence_on(program, platform_on(program, mesh), chip)
    sent, known_traffic, unknown_traffic = _sent(program, mesh)
    step: Step | None = None
    unknown_step: str | None = NO_CHIP
    if chip is not None:
        step, unknown_step = _as_step(predicted(program, mesh, chip), sent)
    need = None
    capacity = None if chip is None else memory.capacity_of(chip)
    if peak_bytes is not None:
        need = memory.estimated_need(program, peak_bytes, state_bytes or 0, capacity)
    elif state_bytes is not None:
        parts: dict[MemoryKind, int] = {"state": state_bytes}
        need = MemoryNeed(
            state_bytes, state_bytes, high=None, capacity_bytes=capacity, fits=None, parts=parts
        )
    return Assessment(
        chip=None if chip is None else chip.name,
        devices=mesh.size,
        basis=evidence.stage,
        program=program.name,
        step=step,
        memory=need,
        traffic=sent,
        state_bytes_per_device=None,
        findings=None,
        unknown_step=unknown_step,
        unknown_traffic=unknown_traffic,
        known_traffic=known_traffic,
        evidence=evidence,
    )


def step_of(predicted: Predicted, program: Program, mesh: Mesh | None) -> Step | None:
    """Return the predicted step of a program with its parts; None if it is unknown."""
    return _as_step(predicted, _sent(program, mesh)[0])[0]


def traffic_of(program: Program, mesh: Mesh | None) -> StepTraffic | None:
    """Return the bytes that a device sends in one run of a program; None if not all are known."""
    return _sent(program, mesh)[0]


def count_findings(snapshot: Snapshot, chip: Chip | None = None) -> FindingCounts:
    """Return the number of findings, with those of the audit. Equal ones of several arrays count once."""
    levels = Counter(finding.level for finding in audit.ranked(snapshot, chip))
    return FindingCounts(levels["error"], levels["warning"], levels["note"])


def step_time(
    snapshot: Snapshot, program: Program | None, chip: Chip | None, sent: StepTraffic | None = None
) -> tuple[Step | None, str | None]:
    """Return the time of one run of a program, or else why it is unknown.

    Steps that were measured on this chip count, and on emulated devices if no chip is chosen. Otherwise the
    step is predicted.

    Args:
      sent: the bytes that a device sends in this time, if it is known.
    """
    if program is None:
        return None, _no_program(snapshot)
    if program.seconds and evidence_of(snapshot, program, chip).stage == "measured":
        return _measured(program, program.seconds.steps, sent), None
    if chip is None:
        return None, NO_CHIP
    if snapshot.mesh is None:
        return None, "the mesh is unknown"
    return _as_step(predicted_in(snapshot, program, chip), sent)


def _as_step(predicted: Predicted, sent: StepTraffic | None) -> tuple[Step | None, str | None]:
    if predicted.seconds is None:
        return None, "; ".join(predicted.unknown) or "nothing is known about the step"
    parts = step_parts(predicted, sent)
    if predicted.at_least:
        why = "; ".join(predicted.at_least)
        return Step(predicted.seconds, None, None, "at least", why, parts=parts), None
    ends = predicted.low, predicted.high
    return Step(predicted.seconds, *ends, "predicted", outside=predicted.outside, parts=parts), None


def _measured(program: Program, steps: Sequence[float], sent: StepTraffic | None) -> Step:
    """Return the median of measured steps, and their interval, with its parts if profiled."""
    measured = statistics(steps)
    assert measured is not None
    parts = measured_parts(program, measured.median, sent)
    if measured.count < 2:
        return Step(measured.median, None, None, "measured", parts=parts, steps=measured.count)
    return Step(measured.median, measured.low, measured.high, "measured", parts=parts, steps=measured.count)


def _sent(
    program: Program | None, mesh: Mesh | None
) -> tuple[StepTraffic | None, StepTraffic | None, str | None]:
    """Return the bytes that a device sends in one run, or else the known ones and why others are unknown."""
    if program is None:
        return None, None, "there is no program"
    if program.collectives is None:
        return None, None, "the collectives of the program were not counted"
    unknown = [row.op for row in traffic(program.collectives) if row.wire_bytes_per_device is None]
    by_axes: dict[str, list[Collective]] = {}
    for collective in sorted(program.collectives, key=least_bytes, reverse=True):
        named = collective.axis_parts if collective.mesh_axes is None else collective.mesh_axes
        by_axes.setdefault(UNKNOWN_AXES if named is None else "+".join(named), []).append(collective)
    sent = {axes: size for axes, size in sent_by_busiest(by_axes).items() if size}
    branches = dict.fromkeys(
        collective.source or collective.name
        for collective in program.collectives
        if collective.conditional and collective.executions != 0
    )
    names = and_text(list(branches)[:3])
    less = [f"the largest of the branches around {names} counts as taken each time"] if branches else []
    devices = program.devices_on(mesh)
    least, most = range_of_run(program.collectives, devices)
    if bytes_text(least) != bytes_text(most):
        less.append(f"the device that sends least sends {bytes_text(least)}")
    between = {} if mesh is None else bytes_between_slices(program.collectives, mesh)
    between = {axes: min(size, sent[axes]) for axes, size in between.items() if axes in sent}
    known = StepTraffic(sum(sent.values()), sent, "; ".join(less) or None, between)
    if not unknown:
        return known, None, None
    reason = f"the bytes or executions of {unknown[0]} are unknown"
    repeated = wire_bytes_of_iteration(*program.collectives)
    if repeated is not None:
        reason += f"; one iteration of the loops sends {bytes_text(repeated)}"
    return None, known if sent else None, reason


def _no_program(snapshot: Snapshot) -> str:
    if snapshot.source.kind == "plan":
        return "the programs of this plan were not partitioned"
    return "there is no program"


def chip_title(assessment: Assessment) -> str:
    """Return the machine of the figures: `TPU v5e`, or `no chip`."""
    chip = CHIPS.get(assessment.chip or "")
    return "no chip" if chip is None else chip.title
