"""Read the folder of a recorded program as one Snapshot."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from inspector.core import program_run, snapshot
from inspector.core.errors import InvalidInput
from inspector.core.formatting import and_text
from inspector.core.program_run import ProgramRun
from inspector.core.snapshot import Finding, Mesh, Snapshot

FAILED = "program-failed"
OTHER_MESH = "program-on-another-mesh"
_DONE = "exit 0"


def read(folder: Path) -> Snapshot:
    """Return the live arrays with all programs; without live arrays, all programs with their arrays.

    Programs on another mesh than most are left out then, and a finding names them.

    Raises:
      InvalidInput: the folder is not one of a recorded program, or it has neither arrays nor programs.
    """
    run = program_run.read(folder)
    if (folder / program_run.SNAPSHOT).is_file():
        found = snapshot.read(folder / program_run.SNAPSHOT)
    else:
        found = _of_programs(run, folder)
    return replace(found, findings=(*_failure(run), *found.findings))


def _of_programs(run: ProgramRun, folder: Path) -> Snapshot:
    if not run.programs:
        state = "is running and has" if run.ended is None else f"ended with {run.ended} and had"
        raise InvalidInput(
            f"{folder} has no Snapshot: the program {state} compiled no function, and no array was found"
        )
    found = [snapshot.read(folder / one.file) for one in run.programs]
    meshes = Counter(_key(one.mesh) for one in found if one.mesh is not None)
    chosen = max(meshes, key=lambda key: meshes[key]) if meshes else None
    same = [one for one in found if one.mesh is None or _key(one.mesh) == chosen]
    others = [program.name for one in found if one not in same for program in one.programs]
    notes: tuple[Finding, ...] = ()
    if others:
        message = f"Not included, because they are on another mesh: {and_text(others)}."
        notes = (Finding("note", OTHER_MESH, message),)
    first = next((one for one in same if one.mesh is not None), same[0])
    return replace(
        first,
        arrays=tuple(array for one in same for array in one.arrays),
        programs=tuple(program for one in same for program in one.programs),
        findings=(*notes, *(finding for one in same for finding in one.findings)),
    )


def _key(mesh: Mesh | None) -> object:
    return None if mesh is None else (tuple((a.name, a.size) for a in mesh.axes), mesh.devices)


def _failure(run: ProgramRun) -> tuple[Finding, ...]:
    """Return a finding if the program is running or has failed, so that facts may be missing."""
    if run.ended == _DONE:
        return ()
    if run.ended is None:
        message = "The program is running. What it compiles later is not known yet."
        return (Finding("note", FAILED, message),)
    message = (
        f"The program ended with {run.ended}. What it would have compiled after that is unknown and not "
        "checked."
    )
    return (Finding("warning", FAILED, message),)
