"""The instructions of a profiled step as periods, like the simulation of a schedule."""

from inspector.core.snapshot import InstructionTime, Program, ScheduledOperation
from inspector.machines.prediction.simulation import MEASURED, Basis, Span
from inspector.machines.prediction.step_parts import collective_of


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
            spans.append(Span(computation.name, position, MEASURED, time.start, end, basis, awaited))
    for name, position, operation, time in loops:
        assert time.start is not None
        first = max((ends.get(inner, time.start) for inner in operation.runs or ()), default=time.start)
        last = time.start + max(time.seconds[0], 0.0)
        if last > first:
            spans.append(Span(name, position, MEASURED, first, last, "loop"))
    return tuple(sorted(spans, key=lambda span: span.start))
