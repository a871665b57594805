"""Reasons why something is unknown, and the action that makes it known."""

from inspector.answers.section import Notice, notice, unknown
from inspector.files.sources import SOURCES
from inspector.layout.plan import CAUSES_UNKNOWN, NOT_PARTITIONED
from inspector.machines import out_of_memory
from inspector.records.snapshot import Program, Snapshot
from inspector.text.formatting import capitalized
from inspector.text.program_names import noun


def imported_from(snapshot: Snapshot) -> str | None:
    """Return the source in words, or None if the Snapshot was planned, run or compiled from a layout."""
    return SOURCES[snapshot.source.kind].name


def source_text(snapshot: Snapshot) -> str:
    """Return the source in words, `this Snapshot` if it was made from a layout."""
    return imported_from(snapshot) or "this Snapshot"


def no_arrays(snapshot: Snapshot) -> Notice | None:
    """Return the reason why no array is known, or None if there are arrays."""
    if snapshot.arrays:
        return None
    return unknown(f"{capitalized(source_text(snapshot))} contains no arrays.")


def no_mesh(snapshot: Snapshot) -> Notice | None:
    """Return the reason why devices are unknown, or None if the mesh is known."""
    if snapshot.mesh is not None:
        return None
    if snapshot.arrays and all(array.shards for array in snapshot.arrays):
        return unknown("No array has a mesh: each is on the devices that the table of arrays names.")
    source = capitalized(source_text(snapshot))
    return unknown(f"{source} contains no mesh, so the devices of each shard are unknown.")


def no_programs(snapshot: Snapshot, subject: str, *, partitioned: bool = False) -> Notice | None:
    """Return the reason why something of the programs is unknown, or None if there are programs.

    Args:
      subject: the unknown thing and its verb, such as `collectives are`.
      partitioned: whether programs before a compile contain it.
    """
    if any(partitioned or not program.before_compile for program in snapshot.programs):
        return None
    failed = next((finding for finding in snapshot.findings if finding.code == NOT_PARTITIONED), None)
    if partitioned and failed is not None:
        return Notice("warning", (f"{capitalized(subject)} unknown: {failed.message}",))
    source = imported_from(snapshot)
    if source is not None and snapshot.programs:
        return unknown(
            f"The programs are partitioned and not compiled for this chip, so {subject} unknown. Compile "
            "them for it: `run --target`."
        )
    if source is None:
        return notice(
            "info", f"This layout is only planned, so {subject} unknown. Compile it, or build and run it."
        )
    return unknown(f"{capitalized(source)} contains arrays but no program, so {subject} unknown.")


def no_sources(program: Program, snapshot: Snapshot) -> Notice:
    """Return that the source of a sharding of a program is unknown, with the reason if it is known."""
    for finding in snapshot.findings:
        if finding.code == CAUSES_UNKNOWN and finding.program == program.name:
            return unknown(finding.message)
    planned = "" if snapshot.layout is None else " A plan of the layout records it."
    return unknown(f"The source of its sharding is unknown.{planned}")


def no_collectives(program: Program, snapshot: Snapshot) -> str:
    """Return why the collectives of a program are unknown, as a sentence."""
    return f"The collectives of {noun(program.name)} are unknown: {_no_collectives(program, snapshot)}"


def _no_collectives(program: Program, snapshot: Snapshot) -> str:
    if program.sharding_error is not None:
        return "JAX refuses the program on explicit mesh axes."
    too_large = [finding for finding in out_of_memory.findings(snapshot) if finding.program == program.name]
    if too_large:
        return "the compiler refuses it, because it does not fit into the memory of a device."
    if program.before_compile:
        failed = next((finding for finding in snapshot.findings if finding.code == NOT_PARTITIONED), None)
        if failed is not None:
            return f"it cannot be partitioned. {failed.message}"
        if snapshot.mesh is None:
            return "it names no mesh, so it cannot be partitioned."
        return "the partitioned program cannot be read."
    if program.stage is None and program.ideal is not None:
        return (
            "its text is from before partitioning, when XLA has not added any. Give the text after "
            "optimizations."
        )
    return "the compiled text is missing or cannot be read."
