"""Join the measured times of a profile with a Snapshot of the same programs, which has origins and paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import some_text
from inspector.core.snapshot import Collective, Finding, Program, Snapshot

NOT_JOINED = "profile-program-not-joined"


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


def _amounts(collectives: Sequence[Collective] | None) -> list[tuple[str, int | None, int | None]] | None:
    if collectives is None:
        return None
    return [(own.op, own.payload_bytes, own.executions) for own in collectives]


def with_times(program: Program, profile: Snapshot) -> Program | None:
    """Return a program with the times that a profile has of it; None if it has none."""
    measured = next((own for own in profile.programs if _is_same(own, program)), None)
    return None if measured is None else _with_times(program, measured)


def _with_times(program: Program, measured: Program) -> Program:
    """Return a program with measured times, whose instructions have the names in the profile."""
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
