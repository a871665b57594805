"""The parts of a predicted or measured step, its critical path, and its spans."""

import bisect
import math
from collections.abc import Sequence
from dataclasses import replace

from inspector.prediction.predicted import Predicted
from inspector.prediction.simulation import CORE, MEASURED, Basis, Span
from inspector.records.assessment import PartKind, StepPart, StepTraffic
from inspector.records.snapshot import Collective, InstructionTime, Program, ScheduledOperation

# A rest of the prediction that is smaller than this share comes from rounding.
_ROUNDING = 1e-9
# The clocks of profiles count nanoseconds. A shorter difference of two means is nothing.
_CLOCK = 1e-9
_PRODUCTS = frozenset({"dot", "convolution"})  # kinds of instructions of a profile


def step_parts(predicted: Predicted, sent: StepTraffic | None) -> tuple[StepPart, ...]:
    """Return the parts of a predicted step; () if it is unknown.

    The seconds of all parts add up to `predicted.seconds` exactly (`math.fsum`). Work comes first, then waits
    for communication inside a slice and between slices, the longest first, then what remains. Of a lower
    bound, the part is its longest term, or the parts of the simulation.

    Args:
      sent: the bytes that one device sends, if all are known.
    """
    if not predicted.seconds:
        return ()
    if predicted.at_least and predicted.least:
        return _exact([_of_bound(predicted, sent)], predicted.seconds)
    totals = predicted.totals
    if totals is None:
        return ()
    parts = [
        StepPart("compute", totals.matrix),
        StepPart("memory", totals.memory, latency=totals.starting),
        StepPart("copies", totals.copies),
    ]
    waits = [
        StepPart(
            "between" if crosses else "inside",
            totals.waits.get((axes, crosses), 0.0),
            axes=axes or None,
            hidden=_hidden(whole, totals.waits.get((axes, crosses), 0.0), _ROUNDING * predicted.seconds),
            bytes=_bytes(sent, axes, crosses),
            messages=round(totals.messages.get((axes, crosses), 0.0)),
            latency=totals.latency.get((axes, crosses), 0.0),
        )
        for (axes, crosses), whole in {**totals.waits, **totals.transfers}.items()
    ]
    return _whole(parts, waits, predicted.seconds)


def measured_parts(program: Program, seconds: float, sent: StepTraffic | None) -> tuple[StepPart, ...]:
    """Return the parts of a measured step of a program; () without a profile.

    The mean of the usual runs on a device has these parts. The rest is the time in which it runs no
    instruction, also because it begins later or ends earlier than other devices.

    Args:
      seconds: of the step.
      sent: the bytes that one device sends, if all are known.
    """
    trace = program.trace
    if trace is None or not trace.busy or not trace.instructions or not seconds:
        return ()
    scale = min(seconds / trace.busy, 1.0)  # the mean can be longer than the median
    work: dict[PartKind, float] = {"compute": 0.0, "memory": 0.0, "copies": 0.0}
    waits: dict[tuple[str, bool], float] = {}
    whole: dict[tuple[str, bool], float] = {}
    for time in trace.instructions:
        collective = collective_of(program, time)
        if collective is None:
            work[_kind_of(time)] += scale * time.own
            continue
        key = "+".join(collective.axis_names), collective.network is not None
        waits[key] = waits.get(key, 0.0) + scale * time.own
        whole[key] = whole.get(key, 0.0) + scale * (time.elapsed or 0.0)
    parts = [StepPart(kind, taken) for kind, taken in work.items()]
    of_communication = [
        StepPart(
            "between" if crosses else "inside",
            wait,
            axes or None,
            _hidden(whole[axes, crosses], wait, _CLOCK),
            _bytes(sent, axes, crosses),
        )
        for (axes, crosses), wait in waits.items()
    ]
    return _whole(parts, of_communication, seconds)


def _whole(work: Sequence[StepPart], waits: Sequence[StepPart], seconds: float) -> tuple[StepPart, ...]:
    """Return all parts of a step with its rest, without those that take no time."""
    parts = [*work, *sorted(waits, key=lambda part: (part.kind == "between", -part.seconds))]
    rest = seconds - math.fsum(part.seconds for part in parts)
    if rest > _ROUNDING * seconds:
        parts.append(StepPart("rest", rest))
    return _exact([part for part in parts if part.seconds or part.hidden], seconds)


def _hidden(whole: float, wait: float, least: float) -> float:
    """Return the seconds of communication without a wait; 0 below `least`, which two sums can differ by."""
    return whole - wait if whole - wait >= least else 0.0


def collective_of(program: Program, time: InstructionTime) -> Collective | None:
    """Return the collective that an instruction of a profile is a part of; None if it is none."""
    collectives = program.collectives or ()
    known = time.collective is not None and time.collective < len(collectives)
    return collectives[time.collective] if known and time.collective is not None else None


def _kind_of(time: InstructionTime) -> PartKind:
    if time.kind in _PRODUCTS:
        return "compute"
    # The core waits for an asynchronous copy at its end. Other copies read and write HBM as fusions do.
    return "copies" if time.name.startswith("copy-done") else "memory"


def _of_bound(predicted: Predicted, sent: StepTraffic | None) -> StepPart:
    assert predicted.seconds is not None
    term = predicted.longest
    if term is None:
        return StepPart("memory", predicted.seconds)
    if term.kind != "communication":
        return StepPart("compute" if term.kind == "compute" else "memory", predicted.seconds)
    crosses, axes = term.between > term.inside, "+".join(term.axes or ())
    kind: PartKind = "between" if crosses else "inside"
    return StepPart(kind, predicted.seconds, axes or None, 0.0, _bytes(sent, axes, crosses))


def _bytes(sent: StepTraffic | None, axes: str, crosses: bool) -> int | None:
    if sent is None or axes not in sent.by_axes:
        return None
    between = sent.between_slices.get(axes, 0)
    return between if crosses else sent.by_axes[axes] - between


def added_parts(steps: Sequence[tuple[Sequence[StepPart], float]], seconds: float) -> tuple[StepPart, ...]:
    """Return the parts of several steps together, each of which runs some times.

    seconds: those of all steps together. Return () if the parts of one are unknown.
    """
    if not all(parts for parts, _ in steps):
        return ()
    added: dict[tuple[PartKind, str | None], StepPart] = {}
    for part, runs in ((part, runs) for parts, runs in steps for part in parts):
        key = part.kind, part.axes
        before = added.get(key, StepPart(part.kind, 0.0, part.axes, bytes=None if part.bytes is None else 0))
        unknown = before.bytes is None or part.bytes is None
        added[key] = StepPart(
            part.kind,
            before.seconds + part.seconds * runs,
            axes=part.axes,
            hidden=before.hidden + part.hidden * runs,
            bytes=None if unknown else round((before.bytes or 0) + (part.bytes or 0) * runs),
            messages=round(before.messages + part.messages * runs),
            latency=before.latency + part.latency * runs,
        )
    return _exact(list(added.values()), seconds)


def _exact(parts: Sequence[StepPart], seconds: float) -> tuple[StepPart, ...]:
    """Return the parts with rounding errors of their sum in the largest one."""
    fitted = list(parts)
    place = max(range(len(fitted)), key=lambda number: fitted[number].seconds)
    for _ in range(3):
        error = math.fsum([seconds, *(-part.seconds for part in fitted)])
        if not error:
            break
        fitted[place] = replace(fitted[place], seconds=fitted[place].seconds + error)
    return tuple(fitted)


# The critical path of a simulated step: what must become shorter for the step to become shorter.
#
# From the end of the step backward: an operation of the core begins when the one before it ends. If the core
# waits, the transfer that it waits for is on the path instead. A transfer begins when the transfer before it
# on the same resource ends, or when the core starts it.


def measured_spans(program: Program) -> tuple[Span, ...]:
    """Return when a device ran each instruction in the mean run; () without a profile or a schedule.

    Each loop has its first iteration, and one period for the others.
    """
    schedule, trace = program.schedule, program.trace
    if schedule is None or trace is None:
        return ()
    times = {time.name: time for time in trace.instructions if time.start is not None}
    spans: list[Span] = []
    ends: dict[str, float] = {}  # of the first iteration, by computation
    loops: list[tuple[str, int, ScheduledOperation, InstructionTime]] = []
    for computation in schedule.computations:
        for position, operation in enumerate(computation.operations):
            time = times.get(operation.name)
            if time is None or time.start is None or not time.events:
                continue
            if operation.runs:
                loops.append((computation.name, position, operation, time))
                continue
            end = time.start + time.seconds[0] / max(trace.executions(time), 1.0)
            ends[computation.name] = max(ends.get(computation.name, 0.0), end)
            collective = collective_of(program, time)
            awaited = () if collective is None else collective.axis_names
            basis: Basis = "profile" if collective is None else "wait"
            spans.append(
                Span(
                    computation.name,
                    position,
                    resource=MEASURED,
                    start=time.start,
                    end=end,
                    basis=basis,
                    awaited=awaited,
                )
            )
    for name, position, operation, time in loops:
        assert time.start is not None
        first = max((ends.get(inner, time.start) for inner in operation.runs or ()), default=time.start)
        last = time.start + max(time.seconds[0], 0.0)
        if last > first:
            spans.append(Span(name, position, MEASURED, first, last, "loop"))
    return tuple(sorted(spans, key=lambda span: span.start))


# Times that are equal but for rounding differ by less than this share of the step.
_SAME = 1e-9


def critical_path(spans: Sequence[Span]) -> frozenset[int]:
    """Return the positions in `spans` of those on the critical path.

    A transfer that occupies several resources is on the path with all of them. The core's waits are not.

    spans: of a simulated step, with one iteration of each loop; the others are one span.
    """
    on_core = [n for n, span in enumerate(spans) if span.resource == CORE]
    transfers = [n for n, span in enumerate(spans) if span.resource != CORE]
    on_core.sort(key=lambda n: spans[n].start)
    transfers.sort(key=lambda n: spans[n].end)
    starts = [spans[n].start for n in on_core]
    ends = [spans[n].end for n in transfers]
    if not on_core:
        return frozenset()
    time = spans[on_core[-1]].end
    same = _SAME * time

    def ending_at(moment: float) -> list[int]:
        low = bisect.bisect_left(ends, moment - same)
        return transfers[low : bisect.bisect_right(ends, moment + same)]

    on_path: set[int] = set()
    while True:
        place = bisect.bisect_left(starts, time - same) - 1
        if place < 0:
            return frozenset(on_path)
        at = on_core[place]
        span = spans[at]
        before = time
        time = span.start
        if span.basis != "wait":
            on_path.add(at)
            continue
        awaited = [n for n in ending_at(span.end) if before - spans[n].start > same]
        while awaited:
            first = spans[awaited[0]]
            own = [
                n
                for n in awaited
                if (spans[n].computation, spans[n].position) == (first.computation, first.position)
            ]
            on_path.update(own)
            time = first.start
            resources = {spans[n].resource for n in own}
            awaited = [
                n for n in ending_at(time) if spans[n].resource in resources and time - spans[n].start > same
            ]
