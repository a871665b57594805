"""Read the folder of a recorded program as one Snapshot."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from inspector.core import program_run, snapshot
from inspector.core.errors import InvalidInput
from inspector.core.meshes import MeshList, mesh_key
from inspector.core.program_run import CompiledRecord, ProgramRun
from inspector.core.snapshot import Finding, Snapshot
from inspector.service.program_run.records import with_live_paths

FAILED = "program-failed"
_DONE = "exit 0"


def read(folder: Path) -> Snapshot:
    """Return the live arrays with all programs; without live arrays, all programs with their arrays.

    If programs were compiled for a target, these are returned, on the devices of the target. Each array and
    program has its own mesh.

    Raises:
      InvalidInput: the folder is not one of a recorded program, or it has neither arrays nor programs.
    """
    run = program_run.read(folder)
    live = folder / program_run.SNAPSHOT
    found = snapshot.read(live) if live.is_file() else None
    compiled = [(one, one.target_file) for one in run.programs if one.target_file is not None]
    if compiled:
        merged = _of_programs(compiled, folder)
        found = merged if found is None else _on_target(found, merged)
    elif found is None:
        if not run.programs:
            state = "is running and has" if run.ended is None else f"ended with {run.ended} and had"
            raise InvalidInput(
                f"{folder} has no Snapshot: the program {state} compiled no function, and no array was found"
            )
        found = _of_programs([(one, one.file) for one in run.programs], folder)
    findings = (*_failure(run), *found.findings)
    return replace(found, findings=findings, reshards=run.reshards)


def _of_programs(programs: Sequence[tuple[CompiledRecord, str]], folder: Path) -> Snapshot:
    """Return the programs in these files as one Snapshot."""
    found = [_named(snapshot.read(folder / file), record) for record, file in programs]
    counts = Counter(mesh_key(one.mesh) for one in found if one.mesh is not None)
    chosen = max(counts, key=lambda key: counts[key]) if counts else None
    on_chosen = (one.mesh for one in found if one.mesh and mesh_key(one.mesh) == chosen)
    meshes = MeshList(itertools.islice(on_chosen, 1))
    arrays = tuple(array for one in found for array in meshes.arrays(one))
    programs_of_all = tuple(program for one in found for program in meshes.programs(one))
    return replace(
        found[0],
        mesh=meshes.mesh,
        other_meshes=meshes.other_meshes,
        arrays=arrays,
        programs=programs_of_all,
        findings=tuple(finding for one in found for finding in one.findings),
    )


def _named(found: Snapshot, record: CompiledRecord) -> Snapshot:
    """Return the Snapshot of one program with its unique name in the run, also in its paths."""
    if record.name == record.function:
        return found
    old, new = f"{record.function}/", f"{record.name}/"

    def renamed(path: str) -> str:
        return new + path.removeprefix(old) if path.startswith(old) else path

    return replace(
        found,
        arrays=tuple(
            replace(one, path=renamed(one.path), program=record.name) for one in found.arrays
        ),
        programs=tuple(
            replace(
                one,
                name=record.name,
                shardings=tuple(
                    replace(value, path=renamed(value.path)) for value in one.shardings
                ),
            )
            for one in found.programs
        ),
        findings=tuple(
            one if one.array is None else replace(one, array=renamed(one.array))
            for one in found.findings
        ),
    )


def _on_target(live: Snapshot, target: Snapshot) -> Snapshot:
    """Return the programs for a target with the live arrays of the run, if both have the same mesh axes."""
    here, there = live.mesh, target.mesh
    if here is None or there is None or here.axes != there.axes:
        return target
    # Live arrays of several meshes have no place on the devices of the target.
    if live.other_meshes or target.other_meshes:
        return target
    devices = dict(zip(here.devices, there.devices, strict=True))
    arrays = tuple(
        one
        if one.shards is None
        else replace(
            one,
            shards=tuple(
                replace(shard, device=devices.get(shard.device, shard.device))
                for shard in one.shards
            ),
        )
        for one in live.arrays
    )
    moved = replace(live, mesh=there, arrays=arrays)
    return replace(
        target,
        arrays=arrays,
        programs=tuple(with_live_paths(one, there, moved) for one in target.programs),
    )


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
