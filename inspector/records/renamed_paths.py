"""Replace the paths of arrays in every fact of a Snapshot."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from inspector.records.snapshot import Conflict, Finding, Origin, Program, Snapshot

# Returns the new path of an array, or the same one.
Renamed = Callable[[str], str]


def in_snapshot(snapshot: Snapshot, renamed: Renamed) -> Snapshot:
    """Return the Snapshot with other paths of its arrays."""
    return replace(
        snapshot,
        arrays=tuple(replace(array, path=renamed(array.path)) for array in snapshot.arrays),
        programs=tuple(in_program(program, renamed) for program in snapshot.programs),
        partitioned=snapshot.partitioned
        and tuple(in_program(program, renamed) for program in snapshot.partitioned),
        findings=tuple(_in_finding(finding, renamed) for finding in snapshot.findings),
    )


def in_program(program: Program, renamed: Renamed) -> Program:
    """Return a program with other paths of the arrays in its facts."""
    used, donation = program.memory_use, program.donation
    if used is not None:
        values = (replace(value, path=value.path and renamed(value.path)) for value in used.values)
        used = replace(used, values=tuple(values))
    if donation is not None:
        unused = (
            replace(unused_donation, path=renamed(unused_donation.path))
            for unused_donation in donation.unused
        )
        donation = replace(donation, unused=tuple(unused))
    return replace(
        program,
        shardings=tuple(replace(sharding, path=renamed(sharding.path)) for sharding in program.shardings),
        collectives=program.collectives
        and tuple(
            replace(
                collective,
                arrays=collective.arrays and tuple(map(renamed, collective.arrays)),
                parts=collective.parts
                and tuple(
                    replace(
                        part,
                        inputs=tuple(map(renamed, part.inputs)),
                        outputs=tuple(map(renamed, part.outputs)),
                    )
                    for part in collective.parts
                ),
                origins=_in_origins(collective.origins, renamed),
            )
            for collective in program.collectives
        ),
        conflicts=program.conflicts
        and tuple(_in_conflict(conflict, renamed) for conflict in program.conflicts),
        uneven_gathers=program.uneven_gathers
        and tuple(
            replace(uneven_gather, path=renamed(uneven_gather.path))
            for uneven_gather in program.uneven_gathers
        ),
        kept_gathers=program.kept_gathers
        and tuple(
            replace(gather, arrays=tuple(map(renamed, gather.arrays))) for gather in program.kept_gathers
        ),
        memory_use=used,
        donation=donation,
        first_used=program.first_used and tuple(map(renamed, program.first_used)),
    )


def _in_conflict(conflict: Conflict, renamed: Renamed) -> Conflict:
    sides = (replace(side, origins=_in_origins(side.origins, renamed)) for side in conflict.sides)
    return replace(conflict, sides=tuple(sides))


def _in_origins(origins: Iterable[Origin] | None, renamed: Renamed) -> tuple[Origin, ...] | None:
    return None if origins is None else tuple(replace(o, from_=renamed(o.from_)) for o in origins)


def _in_finding(finding: Finding, renamed: Renamed) -> Finding:
    return replace(
        finding, array=finding.array and renamed(finding.array), path=finding.path and renamed(finding.path)
    )
