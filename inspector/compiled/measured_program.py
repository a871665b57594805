"""Join the measured times of a profile with a Snapshot of the same programs, which has origins and paths.

A profile also has the trip counts of loops that depend on data: how often the instructions of each body ran.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from inspector.compiled.assumed import Assumed, assume
from inspector.records.snapshot import Collective, Finding, Program, Snapshot
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import some_text

NOT_JOINED = "profile-program-not-joined"
_MEASURED = ", as measured"


def joined(profile: Snapshot, known: Snapshot, name: str) -> Snapshot:
    """Return a Snapshot with the times of its programs that a profile has.

    A program is the same if its compiled instructions are, whatever their names. Programs that only one of
    both has are listed in a finding.

    Args:
      known: a Snapshot of `run`, `inspect` or `capture_compiled`. `name` is its file in errors.

    Raises:
      InvalidInput: no program of the profile is in it.
    """
    programs = list(known.programs)
    left: list[Program] = []
    for measured in profile.programs:
        place = next((i for i, program in enumerate(known.programs) if _is_same(measured, program)), None)
        if place is None:
            left.append(measured)
        else:
            programs[place] = _with_times(known.programs[place], measured)
    if len(left) == len(profile.programs):
        raise InvalidInput(
            f"{name} has no program of the profile, which has {_names(left)}: give the Snapshot of the job "
            "that was profiled, made with the same JAX and the same kind of devices"
        )
    mesh, source = known.mesh, replace(profile.source, device_kind=None)
    kind = profile.source.device_kind if profile.mesh is None else profile.mesh.device_kind
    if mesh is None:
        source = replace(source, device_kind=kind)
    elif kind is not None:
        mesh = replace(mesh, device_kind=kind)
    return replace(
        known,
        source=replace(source, versions=known.source.versions, devices=known.source.devices),
        mesh=mesh,
        programs=tuple(programs),
        findings=(*known.findings, *_of_profile(profile), *_left_out(left, name)),
    )


def _of_profile(profile: Snapshot) -> Iterator[Finding]:
    """Yield the findings about the files of the profile. The others are about arrays that `known` has."""
    yield from (finding for finding in profile.findings if finding.code.startswith("profile-"))


def _left_out(left: Sequence[Program], name: str) -> Iterator[Finding]:
    if left:
        message = f"{name} lacks {_names(left)}, which the profile has. Import the profile alone to see them."
        yield Finding("note", NOT_JOINED, message)


def _names(programs: Sequence[Program]) -> str:
    return some_text([shown(program.name, 60) for program in programs])


def _is_same(measured: Program, program: Program) -> bool:
    return (
        measured.fingerprint is not None
        and measured.fingerprint == program.fingerprint
        and _amounts(measured.collectives) == _amounts(program.collectives)
    )


def _amounts(collectives: Sequence[Collective] | None) -> list[tuple[str, int | None]] | None:
    return None if collectives is None else [(own.op, own.payload_bytes) for own in collectives]


def _measured_of(program: Program, profile: Snapshot) -> Program | None:
    return next((own for own in profile.programs if _is_same(own, program)), None)


def with_times(program: Program, profile: Snapshot) -> Program | None:
    """Return a program with its times in a profile; None if the profile lacks it."""
    measured = _measured_of(program, profile)
    return None if measured is None else _with_times(program, measured)


def with_trips(program: Program) -> Program:
    """Return a profiled program whose loops run as often as measured, if their trip counts were unknown."""
    return assume(program, Assumed(_trips(program)), _MEASURED) if program.open_choices else program


def with_trips_of(records: Sequence[Program], program: Program, profile: Snapshot) -> tuple[Program, ...]:
    """Return records of a program, such as the partitioned one, whose loops run as often as measured.

    Args:
      program: the compiled one, which has loops of the same lines.
    """
    measured = _measured_of(program, profile)
    if measured is None or not program.open_choices:
        return tuple(records)
    trips = _trips_of(program, measured)
    by_line: dict[str, set[int | None]] = {}
    for choice in program.open_choices:
        if choice.kind == "loop" and choice.source is not None:
            by_line.setdefault(choice.source, set()).add(trips.get(choice.name))
    lines = {line: count for line, (count, *others) in by_line.items() if count is not None and not others}
    return tuple(assume(record, Assumed(lines), _MEASURED) for record in records)


def _trips_of(program: Program, measured: Program) -> dict[str, int]:
    """Return the measured iterations of the loops of a program, whose names in the profile can differ."""
    trips = _trips(measured)
    if program.schedule is None or measured.schedule is None:
        return {}
    return {
        own.name: trips[other.name]
        for mine, others in zip(program.schedule.computations, measured.schedule.computations, strict=False)
        for own, other in zip(mine.operations, others.operations, strict=False)
        if own.opcode == "while" and other.name in trips
    }


def _trips(program: Program) -> dict[str, int]:
    """Return the iterations of the loops of a profiled program, by the name of the loop.

    Each instruction of a body runs once in an iteration. A loop is left out if they disagree. Of an inner
    loop it is the mean of its runs, and the loop is left out if this is not a whole number.
    """
    schedule, trace = program.schedule, program.trace
    if schedule is None or trace is None:
        return {}
    executions = {time.name: trace.executions(time) for time in trace.instructions}
    trips: dict[str, int] = {}
    waiting, seen = [(schedule.entry, 1.0)], set[str]()
    while waiting:
        name, runs = waiting.pop()
        computation = schedule.by_name.get(name)
        if computation is None or name in seen:
            continue
        seen.add(name)
        for operation in computation.operations:
            for body in operation.runs or () if operation.opcode == "while" else ():
                inner = () if body not in schedule.by_name else schedule.by_name[body].operations
                counts = Counter(executions[own.name] for own in inner if own.name in executions)
                if not counts:
                    continue
                number, often = counts.most_common(1)[0]
                if 2 * often > counts.total() and number and (number / runs).is_integer():
                    trips[operation.name] = int(number / runs)
                    waiting.append((body, number))
    return trips


def _with_times(program: Program, measured: Program) -> Program:
    """Return a program with measured times, whose instructions have the names in the profile."""
    if program.open_choices:
        program = assume(program, Assumed(_trips_of(program, measured)), _MEASURED)
    collectives = program.collectives
    if collectives is not None and measured.collectives is not None:
        collectives = tuple(
            replace(own, name=other.name, computation=other.computation)
            for own, other in zip(collectives, measured.collectives, strict=True)
        )
    seconds = measured.seconds
    if seconds is not None and program.seconds is not None:
        seconds = replace(program.seconds, steps=seconds.steps)
    return replace(
        program,
        stage=measured.stage,
        collectives=collectives,
        schedule=measured.schedule,
        seconds=seconds,
        trace=measured.trace,
    )
