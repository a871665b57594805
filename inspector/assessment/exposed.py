"""Why a collective is not hidden: for each one that a device waits for, one reason with its evidence.

A profile has the waits of a device, and the simulated schedule the expected ones. What could run
meanwhile follows from the operations that read each other's results (`prediction.independent`).
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from inspector.compiled.assumed import once
from inspector.machines import compiler_options, targets
from inspector.machines.compiler_options import Overlap
from inspector.machines.hardware import Chip
from inspector.prediction.evidence import platform_of, program_for_chip
from inspector.prediction.independent import independent_seconds, transfers_of, users_of
from inspector.prediction.predicted import predicted_in
from inspector.prediction.simulation import MOST_DEPTH, directions, executions
from inspector.prediction.step_parts import collective_of
from inspector.records.snapshot import Collective, Program, Schedule, ScheduledOperation, Snapshot
from inspector.text.formatting import and_text

Reason = Literal["synchronous", "used at once", "nothing to compute", "shared links"]
Basis = Literal["profile", "schedule"]
Place = Literal["program", "iteration", "branch"]

# A collective counts as hidden if the device waits for less than this share of its time, and of the step.
_HIDDEN_SHARE = 0.05
_HIDDEN_STEP_SHARE = 0.02
# Of the exposed time, from which a cause is the reason.
_MOST_OF_IT = 0.5
_TRANSFERS = 2_000  # in one computation, whose independent operations are counted


@dataclass(frozen=True)
class ExposedCollective:
    """A collective that the device waits for, and why. Seconds are those of all executions in one run.

    Attributes:
      seconds: in which the device waits.
      whole: how long it takes with waits for its links, hidden or not. None if unknown.
      place: the part that it is in: the iteration of a loop, a branch, or else the program itself.
      available: seconds of operations of this place that neither need its result nor make its input, and
        that run at another time.
      elsewhere: the same in the previous or the next iteration of its loop; 0 outside of loops.
      user: the first operation that needs its result. None if none of its place does.
      in_next: whether the user runs in the next iteration.
      before_use: seconds that the device computes between its start and its end.
      queued: seconds in which others use its links, or in which it waits for these.
      others: these other collectives.
      overlap: how the compiler of its machine makes it asynchronous. None if that was not tried.
      options: those of the compile. None if they are unknown.
    """

    collective: Collective
    reason: Reason
    seconds: float
    whole: float | None
    synchronous: bool
    place: Place
    available: float
    elsewhere: float
    user: ScheduledOperation | None
    in_next: bool
    before_use: float
    queued: float = 0.0
    others: tuple[Collective, ...] = ()
    overlap: Overlap | None = None
    options: Mapping[str, str] | None = None

    @property
    def saves(self) -> float:
        """The most seconds of a run that it could save: what it exposes, up to what could run meanwhile."""
        if self.reason == "shared links":
            return min(self.seconds, self.queued)
        if self.reason == "nothing to compute":
            return min(self.seconds, max(self.available, self.elsewhere))
        return min(self.seconds, self.available)

    @property
    def switched_off(self) -> tuple[str, ...]:
        """Options of the compile that keep it synchronous, as `name=value`."""
        if self.overlap is None or not self.synchronous:
            return ()
        return self.overlap.switched_off(self.options or {})


@dataclass(frozen=True)
class Exposed:
    """The collectives of a program that a device waits for.

    Attributes:
      basis: profile or schedule. None if it is unknown.
      collectives: those that the device waits for longest first. Empty if all are hidden, or if unknown.
      waits: seconds in which the device waits for collectives, also for the rest of hidden ones. None if it
        is unknown.
      assumed: under which conditions their seconds hold, one clause each: loops without a trip count,
        branches, and kernels without FLOPs. Empty without any, and in a profile.
      unknown: why they are unknown, as a clause. "" if they are known.
      remedy: how they become known, as a sentence.
    """

    program: str
    basis: Basis | None
    collectives: tuple[ExposedCollective, ...] = ()
    waits: float | None = None
    assumed: tuple[str, ...] = ()
    unknown: str = ""
    remedy: str = ""

    def of(self, collective: Collective) -> ExposedCollective | None:
        """Return the record of one collective; None if it is hidden, or if it is unknown."""
        same = (own for own in self.collectives if own.collective.name == collective.name)
        return next(same, None)


_OLD = "an older version made the Snapshot, which lacks the operations that read each result"
_AGAIN = "Make the Snapshot again."


def exposed(snapshot: Snapshot, program: Program, chip: Chip | None) -> Exposed | None:
    """Return why the collectives of a program are not hidden; None without any.

    Args:
      program: one of the Snapshot.
      chip: on which it is predicted, if it was not profiled. None if none is chosen.
    """
    counted = program_for_chip(snapshot, program, chip)
    if not counted.collectives:
        return None
    measured = program.trace is not None and bool(program.trace.instructions)
    platform = platform_of(snapshot, program if measured else counted)
    name = program.name
    if measured and platform != "cpu":
        return _measured(snapshot, program)
    if counted.before_compile:
        why = "only a compile decides which collectives run in parallel"
        return Exposed(name, None, unknown=why, remedy=_compile(snapshot))
    if platform == "cpu":
        why = "a program that was compiled for CPUs says nothing about what a TPU or GPU hides"
        return Exposed(name, None, unknown=why, remedy=_compile(snapshot))
    if counted.schedule is None:
        why = "the program has no schedule, because its text is incomplete or not scheduled"
        return Exposed(name, None, unknown=why, remedy="Give the whole text after optimizations.")
    if _lacks_reads(counted.schedule):
        return Exposed(name, None, unknown=_OLD, remedy=_AGAIN)
    if chip is None:
        return Exposed(name, None, unknown="its chip is unknown", remedy="Choose a chip: --chip.")
    if snapshot.mesh_of(program) is None:
        return Exposed(name, None, unknown="its mesh is unknown", remedy="Import it with --mesh.")
    return _predicted(snapshot, program, counted, chip)


def _compile(snapshot: Snapshot) -> str:
    """Return how a program is compiled for a machine that can hide collectives."""
    layout = snapshot.layout
    if layout is None:
        return "Compile it for the machine: `inspect --target` or `run --target`."
    if str(layout.get("target")).startswith(targets.KINDS):
        return "Compile the layout."
    return "Choose TPUs or GPUs as target of the layout (`--target`), and compile it."


def _lacks_reads(schedule: Schedule) -> bool:
    return any(
        operation.operands is None
        for computation in schedule.computations
        for operation in computation.operations
    )


def _predicted(snapshot: Snapshot, program: Program, counted: Program, chip: Chip) -> Exposed:
    predicted = predicted_in(snapshot, program, chip)
    if predicted.simulated is None:
        why = and_text(predicted.unknown) or "the program is not compiled"
        return Exposed(program.name, None, unknown=why, remedy=_compile(snapshot))
    if predicted.simulated.unknown:
        why = f"the step cannot be simulated: {and_text(predicted.simulated.unknown[:3])}"
        remedy = "State what is missing: predict lists the options."
        return Exposed(program.name, None, unknown=why, remedy=remedy)
    schedule, totals = counted.schedule, predicted.simulated.totals
    assert schedule is not None
    times = executions(once(counted) if counted.open_choices else counted)
    core = predicted.simulated.core

    def own(computation: str, position: int, operation: ScheduledOperation) -> float:
        return core.get((computation, position), 0.0) * times.get(computation, 0)

    known = _Program(snapshot, counted, schedule, chip, _seconds(schedule, own))
    queued: dict[int, dict[int, float]] = {}
    whole = dict(totals.taken_by)
    for (number, other), waited in totals.queued.items():
        queued.setdefault(number, {})[other] = waited
        whole[number] += waited
    collectives = known.reasons(totals.exposed_by, whole, queued, predicted.simulated.totals.seconds)
    assumed = (*_assumed(counted), *predicted.simulated.at_least) if predicted.at_least else ()
    waits = math.fsum(totals.exposed_by.values())
    return Exposed(program.name, "schedule", collectives, waits, tuple(dict.fromkeys(assumed)))


def _assumed(program: Program) -> Iterator[str]:
    """Yield how often the simulated step runs loops and branches that depend on data."""
    for choice in program.open_choices:
        if choice.kind == "loop":
            yield f"the loop {choice.label} runs once: --trips {choice.label}=N states its trip count"
        else:
            yield f"the longest branch of {choice.label} runs each time"


def _measured(snapshot: Snapshot, program: Program) -> Exposed:
    trace, schedule = program.trace, program.schedule
    assert trace is not None
    if schedule is None:
        why = "the profile has no schedule of it, so what could run meanwhile is unknown"
        remedy = "Profile with ProfileOptions.enable_hlo_proto, or import it with --program SNAPSHOT."
        return Exposed(program.name, None, unknown=why, remedy=remedy)
    if _lacks_reads(schedule):
        return Exposed(program.name, None, unknown=_OLD, remedy=_AGAIN)
    exposed_by: dict[int, float] = {}
    taken_by: dict[int, float] = {}
    windows: dict[int, tuple[float, float]] = {}
    names: dict[str, float] = {}
    for time in trace.instructions:
        number = time.collective
        if number is None or collective_of(program, time) is None:
            names[time.name] = time.own
            continue
        exposed_by[number] = exposed_by.get(number, 0.0) + time.own
        if time.elapsed is not None:
            taken_by[number] = time.elapsed
            if time.start is not None:
                windows[number] = time.start, time.start + time.elapsed / max(trace.executions(time), 1.0)

    def own(computation: str, position: int, operation: ScheduledOperation) -> float:
        waits = operation.awaits is not None or operation.opcode.endswith("-done")
        return 0.0 if waits else names.get(operation.name, 0.0)

    known = _Program(snapshot, program, schedule, targets.chip_of(snapshot), _seconds(schedule, own))
    queued = _same_links(program, windows, taken_by)
    collectives = known.reasons(exposed_by, taken_by, queued, trace.busy or 0.0)
    return Exposed(program.name, "profile", collectives, math.fsum(exposed_by.values()))


def _same_links(
    program: Program, windows: Mapping[int, tuple[float, float]], taken_by: Mapping[int, float]
) -> dict[int, dict[int, float]]:
    """Return the seconds in which collectives use the same links as others, from their first executions."""
    collectives = program.collectives or ()
    links = {number: frozenset(directions(collectives[number])) for number in windows}
    shared: dict[int, dict[int, float]] = {}
    under_way: list[int] = []
    for number in sorted(windows, key=lambda number: windows[number]):
        start, end = windows[number]
        under_way = [other for other in under_way if windows[other][1] > start]
        for other in under_way if collectives[number].mesh_axes else ():
            if collectives[other].mesh_axes and links[number] & links[other]:
                both = min(end, windows[other][1]) - start
                for own, beside in ((number, other), (other, number)):
                    begin, stop = windows[own]
                    shared.setdefault(own, {})[beside] = both / (stop - begin) * taken_by[own]
        if end > start:
            under_way.append(number)
    return shared


def _seconds(
    schedule: Schedule, own: Callable[[str, int, ScheduledOperation], float]
) -> dict[str, list[float]]:
    """Return the seconds that each operation computes in one run, by computation.

    A loop has those of all of its iterations, and a conditional those of its longest branch.

    Args:
      own: seconds of an operation that runs no others.
    """
    seconds: dict[str, list[float]] = {}
    begun: set[str] = set()

    def whole(name: str, depth: int = 0) -> float:
        computation = schedule.by_name.get(name)
        runs_itself = name in begun and name not in seconds
        if computation is None or runs_itself or depth > MOST_DEPTH:
            return 0.0
        if name not in seconds:
            begun.add(name)
            listed = []
            for position, operation in enumerate(computation.operations):
                if not operation.runs:
                    listed.append(own(name, position, operation))
                    continue
                inner = [whole(called, depth + 1) for called in operation.runs]
                listed.append(max(inner) if operation.opcode == "conditional" else sum(inner))
            seconds[name] = listed
        return sum(seconds[name])

    whole(schedule.entry)
    return seconds


@dataclass(frozen=True)
class _Program:
    """A program with the seconds of its operations.

    Attributes:
      chip: for which it was compiled. None if unknown.
      seconds: that each operation computes in one run, by computation.
    """

    snapshot: Snapshot
    program: Program
    schedule: Schedule
    chip: Chip | None
    seconds: Mapping[str, Sequence[float]]

    @functools.cached_property
    def _loops(self) -> dict[str, int | None]:
        """How often the body of each loop runs, None if unknown, by its name."""
        return {
            body: operation.times
            for computation in self.schedule.computations
            for operation in computation.operations
            if operation.opcode == "while"
            for body in operation.runs or ()
        }

    def _place(self, computation: str) -> Place:
        if computation in self._loops:
            return "iteration"
        return "program" if computation == self.schedule.entry else "branch"

    def reasons(
        self,
        exposed_by: Mapping[int, float],
        taken_by: Mapping[int, float],
        queued: Mapping[int, Mapping[int, float]],
        step: float,
    ) -> tuple[ExposedCollective, ...]:
        """Return the collectives that the device waits for.

        Args:
          exposed_by: seconds in which it waits, by the position of the collective.
          taken_by: seconds of the whole collective.
          queued: seconds in which others use its links, by the position of the other one.
          step: seconds of a run.
        """
        platform, options = platform_of(self.snapshot, self.program), compiler_options.given(self.snapshot)
        collectives = self.program.collectives or ()
        causes = []
        for computation in self.schedule.computations:
            operations = computation.operations
            starts = {
                number: position
                for position, operation in reversed(list(enumerate(operations)))
                if (number := operation.collective) is not None
                and not _is_hidden(exposed_by.get(number, 0.0), taken_by.get(number), step)
            }
            numbers = sorted(starts, key=lambda number: -exposed_by[number])[:_TRANSFERS]
            if not numbers or computation.name not in self.seconds:
                continue
            seconds = self.seconds[computation.name]
            transfers = transfers_of(operations, (starts[number] for number in numbers))
            users = users_of(operations, transfers)
            place = self._place(computation.name)
            repeats = place == "iteration" and self._loops[computation.name] != 1
            independent = independent_seconds(operations, seconds, transfers, repeats)
            for number, transfer, user, amounts in zip(numbers, transfers, users, independent, strict=True):
                synchronous = operations[transfer.start].begins is not True
                others = queued.get(number, {})
                waited = min(sum(others.values()), taken_by.get(number, 0.0))
                overlap = compiler_options.overlap_of(platform, collectives[number].op, self.chip)
                off = synchronous and overlap is not None and bool(overlap.switched_off(options or {}))
                causes.append(
                    ExposedCollective(
                        collectives[number],
                        _reason(synchronous, off, exposed_by[number], amounts[0], waited),
                        exposed_by[number],
                        taken_by.get(number),
                        synchronous,
                        place,
                        *amounts,
                        None if user is None else operations[user[0]],
                        user is not None and user[1],
                        sum(seconds[transfer.start + 1 : transfer.end]),
                        waited,
                        tuple(collectives[other] for other in others),
                        overlap,
                        options,
                    )
                )
        return tuple(sorted(causes, key=lambda own: -own.seconds))


def _is_hidden(seconds: float, whole: float | None, step: float) -> bool:
    if seconds <= 0:
        return True
    return whole is not None and seconds < _HIDDEN_SHARE * whole and seconds < _HIDDEN_STEP_SHARE * step


def _reason(synchronous: bool, switched_off: bool, seconds: float, available: float, queued: float) -> Reason:
    if synchronous and switched_off:
        return "synchronous"
    if queued >= _MOST_OF_IT * seconds:
        return "shared links"
    if synchronous and available > 0:
        return "synchronous"
    return "used at once" if available >= _MOST_OF_IT * seconds else "nothing to compute"
