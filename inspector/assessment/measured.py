"""A measured step next to the prediction for it: the same parts of both, and the rates of the machine."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from inspector.assessment.assess import step_time, traffic_of
from inspector.assessment.because import axes_text, part_text
from inspector.machines.hardware import Chip
from inspector.machines.links import NoLink, collective_time
from inspector.machines.mesh_links import link_of, links_of
from inspector.prediction.predicted import Predicted, predicted_in
from inspector.prediction.simulation import executions
from inspector.prediction.step_model import modelled
from inspector.prediction.step_parts import collective_of, step_parts
from inspector.records.assessment import PartKind, Step, StepPart
from inspector.records.snapshot import Collective, LateDevice, Mesh, Program, Snapshot
from inspector.sharding.meshes import on_cpu
from inspector.text.errors import InvalidInput
from inspector.text.formatting import seconds_text

STEP = "step"
# A difference of a part below this share of the step has no sentence.
_WORTH_A_WORD = 0.02


@dataclass(frozen=True)
class MeasuredPart:
    """One part of a step, predicted and measured, in seconds. None means unknown.

    Attributes:
      name: that of the part: `step`, `matrix products`, `fsdp`.
      whole: whether it is all communication, with that during which the device works, which is not part of
        the step.
    """

    name: str
    predicted: float | None
    measured: float
    whole: bool = False


@dataclass(frozen=True)
class Achieved:
    """A rate that one device achieved in a measured step, against the peak of its chip.

    Attributes:
      name: `matrix products`, `HBM`, or `memory` of CPU devices.
      per_second: FLOP/s or bytes per second.
      unit: `FLOP/s` or `B/s`.
      share: of the peak. None if the chip is unknown.
      busy_share: the same in the time of matrix products alone. None if unknown, and for HBM.
    """

    name: str
    per_second: float
    unit: str
    share: float | None
    busy_share: float | None = None


@dataclass(frozen=True)
class MeasuredCollective:
    """The measured time of one collective of a step on one device.

    Attributes:
      sent: bytes that one device sends in all executions. None if unknown.
      seconds: of all executions, hidden or not. None if unknown.
      exposed: seconds in which the device does nothing else.
      bytes_per_second: that a device sends meanwhile. None if unknown.
      link_share: share of what its links can do. None if the chip or the link is unknown.
    """

    collective: Collective
    executions: float
    sent: float | None
    seconds: float | None
    exposed: float
    bytes_per_second: float | None
    link_share: float | None


@dataclass(frozen=True)
class MeasuredOperation:
    """The measured time of one instruction of a step on one device.

    Attributes:
      seconds: that are its own.
      predicted: seconds of the same in the simulated schedule. None if unknown.
    """

    name: str
    kind: str
    executions: float
    seconds: float
    predicted: float | None
    source: str | None


@dataclass(frozen=True)
class MeasuredStep:
    """A measured step of a program with its parts.

    Attributes:
      predicted: None if no prediction is for the devices that were measured.
      prediction: its source.
      measured: the median step with its parts.
      rows: the step, its parts, and hidden communication.
      late: of each device or host that the others wait for, a sentence.
    """

    program: Program
    mesh: Mesh | None
    chip: Chip | None
    prediction: Predicted | None
    predicted: Step | None
    measured: Step
    rows: tuple[MeasuredPart, ...]
    achieved: tuple[Achieved, ...]
    collectives: tuple[MeasuredCollective, ...]
    operations: tuple[MeasuredOperation, ...]
    late: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Where prediction and measurement differ most, as a sentence; "" without a prediction."""
        step, *parts = self.rows
        if step.predicted is None:
            return ""
        seconds = f"{seconds_text(step.measured)} measured, {seconds_text(step.predicted)} predicted"
        gaps = {row: row.measured - (row.predicted or 0.0) for row in parts if not row.whole}
        most = max(gaps, key=lambda row: abs(gaps[row]), default=None)
        if most is None or abs(gaps[most]) < _WORTH_A_WORD * step.measured:
            return f"The step took {seconds}: no part differs by more than {_WORTH_A_WORD:.0%} of it."
        more = "longer" if gaps[most] > 0 else "shorter"
        return (
            f"The step took {seconds}. They differ most in {most.name}: {seconds_text(most.measured)} "
            f"measured, {seconds_text(most.predicted or 0.0)} predicted, "
            f"{seconds_text(abs(gaps[most]))} {more}."
        )


def measured_step(snapshot: Snapshot, program: Program, chip: Chip | None) -> MeasuredStep | None:
    """Return the measured step of a program with its parts, next to the prediction; None without a profile.

    A prediction for another machine than the one that was measured says nothing about it, so it is left out.

    Args:
      chip: the chip of the Snapshot. None if it is unknown, and for emulated devices.
    """
    mesh = snapshot.mesh_of(program)
    sent = traffic_of(program, mesh)
    step, _ = step_time(snapshot, program, chip, sent)
    if step is None or step.kind != "measured" or not step.parts or program.trace is None:
        return None
    prediction, predicted = None, None
    if chip is not None and mesh is not None:
        prediction = predicted_in(snapshot, program, chip)
        if prediction.seconds is not None:
            parts = step_parts(prediction, sent)
            predicted = Step(prediction.seconds, prediction.low, prediction.high, "predicted", parts=parts)
            if prediction.at_least:
                predicted = replace(predicted, low=None, high=None, kind="at least")
    return MeasuredStep(
        program,
        mesh,
        chip=chip,
        prediction=prediction,
        predicted=predicted,
        measured=step,
        rows=tuple(_rows(step, predicted)),
        achieved=tuple(_achieved(program, mesh, chip, step)),
        collectives=tuple(_collectives(program, mesh, chip)),
        operations=tuple(_operations(program, prediction)),
        late=tuple(_late_text(program, late) for late in program.trace.late),
    )


def _late_text(program: Program, late: LateDevice) -> str:
    """Return who is late, how often and by what time, where the others wait, and the operation before it."""
    assert program.trace is not None
    times = {time.name: time for time in program.trace.instructions}
    waits, longer = times.get(late.collective), times.get(late.operation or "")
    collective = None if waits is None else collective_of(program, waits)
    where = late.collective if collective is None else collective_text(collective)
    causes = {
        None: "No single part of its run is the reason",
        "pause": "Its runs begin late: before them, code of the host runs, such as that of the next batch, "
        "or another program",
        "idle": "Between instructions of its run, it does nothing that the profile has",
        "computation": "Its instructions take longer",
    }
    cause = causes[late.cause]
    if longer is not None:
        cause = f"Before it, {longer.name} ({longer.kind}) takes longer than on other devices"
    return (
        f"{late.kind.capitalize()} {late.name} is late in {late.runs:,} of {late.of:,} runs: the others wait "
        f"{seconds_text(late.seconds)} longer than it does, most in {where}. {cause}."
    )


def _rows(measured: Step, predicted: Step | None) -> Iterator[MeasuredPart]:
    yield MeasuredPart(STEP, None if predicted is None else predicted.seconds, measured.seconds)
    known = {} if predicted is None else {_key(part): part for part in predicted.parts}
    own = {_key(part): part for part in measured.parts}
    across = any(part.kind == "between" for part in (*own.values(), *known.values()))
    for key in dict.fromkeys((*own, *known)):
        absent = StepPart(key[0], 0.0, key[1])
        part, before = own.get(key, absent), known.get(key, absent)
        name = part_text(part, across, key in own)
        yield MeasuredPart(name, None if predicted is None else before.seconds, part.seconds)
        if part.hidden or before.hidden:
            whole = None if predicted is None else before.seconds + before.hidden
            yield MeasuredPart(name, whole, part.seconds + part.hidden, True)


def _key(part: StepPart) -> tuple[PartKind, str | None]:
    return part.kind, part.axes


def _achieved(program: Program, mesh: Mesh | None, chip: Chip | None, step: Step) -> Iterator[Achieved]:
    model = None if mesh is None or chip is None else modelled(program, mesh, chip)
    work = program.work
    products = None if work is None else work.matmul_flops
    if products:
        peak = None if model is None else model.flops_per_second
        rate = products / step.seconds
        taken = sum(part.seconds for part in step.parts if part.kind == "compute")
        yield Achieved(
            "matrix products",
            rate,
            "FLOP/s",
            rate / peak if peak else None,
            products / taken / peak if peak and taken else None,
        )
    moved = None if work is None else work.bytes_accessed
    if moved:
        bandwidth = None if chip is None else chip.hbm_bytes_per_second / chip.devices
        rate = moved / step.seconds
        yield Achieved(
            "memory" if on_cpu(mesh) else "HBM", rate, "B/s", rate / bandwidth if bandwidth else None
        )


def _collectives(program: Program, mesh: Mesh | None, chip: Chip | None) -> Iterator[MeasuredCollective]:
    """Yield the collectives that the profile has, those that the device waits for longest first."""
    trace = program.trace
    assert trace is not None
    exposed: dict[str, float] = {}
    elapsed: dict[str, float] = {}
    executions_of: dict[str, float] = {}
    known: dict[str, Collective] = {}
    for time in trace.instructions:
        collective = collective_of(program, time)
        if collective is None:
            continue
        known[collective.name] = collective
        exposed[collective.name] = exposed.get(collective.name, 0.0) + time.own
        if time.elapsed is not None:
            elapsed[collective.name] = time.elapsed
        if time.name == collective.name:
            executions_of[collective.name] = trace.executions(time)
    for name in sorted(known, key=lambda name: -exposed[name]):
        collective, seconds = known[name], elapsed.get(name)
        times = executions_of.get(name, 0.0)
        size = collective.wire_bytes_per_device
        sent = None if size is None else size * times
        ideal = _link_seconds(collective, mesh, chip)
        yield MeasuredCollective(
            collective,
            times,
            sent=sent,
            seconds=seconds,
            exposed=exposed[name],
            bytes_per_second=sent / seconds if seconds and sent is not None else None,
            link_share=ideal * times / seconds if seconds and ideal is not None else None,
        )


def _link_seconds(collective: Collective, mesh: Mesh | None, chip: Chip | None) -> float | None:
    """Return the seconds of one execution at the peak of its links; None if they are unknown."""
    axes, payload = collective.mesh_axes, collective.payload_bytes
    if mesh is None or chip is None or not axes or payload is None:
        return None
    link = link_of(collective, links_of(mesh, chip, [axes])[axes])
    if isinstance(link, NoLink):
        return None
    try:
        return collective_time(collective.op, payload, link).seconds
    except InvalidInput:  # an operation that the table does not have
        return None


def _operations(program: Program, prediction: Predicted | None) -> Iterator[MeasuredOperation]:
    """Yield the operations, the longest first, with their time in the simulated schedule."""
    trace, schedule = program.trace, program.schedule
    assert trace is not None
    foretold: dict[str, float] = {}
    sources: dict[str, str | None] = {}
    if schedule is not None:
        for computation in schedule.computations:
            sources |= {operation.name: operation.source for operation in computation.operations}
    if schedule is not None and prediction is not None and prediction.simulated is not None:
        times = executions(program)
        for span in prediction.simulated.spans:
            if span.resource == "core" and span.basis != "loop":
                operation = schedule.operation(span.computation, span.position)
                taken = times.get(span.computation, 1) * (span.end - span.start)
                foretold[operation.name] = foretold.get(operation.name, 0.0) + taken
    rows: dict[str, MeasuredOperation] = {}
    for time in trace.instructions:
        # The start and the end of a collective are one operation.
        collective = collective_of(program, time)
        name = time.name if collective is None else collective.name
        known_source = None if collective is None else collective.source
        source, times_run = known_source or sources.get(time.name), trace.executions(time)
        row = MeasuredOperation(name, time.kind, times_run, time.own, foretold.get(time.name), source)
        if (known := rows.get(name)) is not None:
            predicted = [own for own in (known.predicted, row.predicted) if own is not None]
            row = replace(
                row,
                executions=max(known.executions, row.executions),
                seconds=known.seconds + row.seconds,
                predicted=sum(predicted) if predicted else None,
                source=known.source or row.source,
            )
        rows[name] = row
    yield from sorted(rows.values(), key=lambda row: -row.seconds)


def collective_text(collective: Collective) -> str:
    """Return operation and mesh axes of a collective: `all-reduce over fsdp`."""
    return f"{collective.op} over {axes_text('+'.join(collective.axis_names) or None)}"
