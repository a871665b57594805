"""Read the folder of a recorded program as one Snapshot."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from inspector import audit
from inspector.jobs.program_run.records import live_paths, with_paths
from inspector.records import program_run, renamed_paths, snapshot
from inspector.records.program_run import CompiledRecord, LostSharding, ProgramRun
from inspector.records.snapshot import Array, Finding, Mesh, Snapshot
from inspector.sharding.meshes import MeshList, mesh_key
from inspector.sharding.sharding_text import spec_text
from inspector.text.errors import InvalidInput
from inspector.text.formatting import bytes_text, counted

FAILED = "program-failed"
LEFT_OUT = "live-arrays-left-out"
LOST_SHARDING = "sharding-lost"
_MOST_LOST = 5
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
    audited = snapshot.read(live) if live.is_file() else None
    compiled = [(program, program.target_file) for program in run.programs if program.target_file is not None]
    if compiled:
        merged = _of_programs(compiled, folder)
        if audited is not None:
            merged = _on_target(audited, merged, _devices_of_target(compiled, folder))
        # The programs were audited one by one, as if each had all arrays.
        audited = audit.audited(merged)
    elif audited is None:
        if not run.programs:
            state = "is running" if run.ended is None else f"ended with {run.ended}"
            raise InvalidInput(
                f"{folder} has no Snapshot: the program {state}; no compiled function, no array is recorded"
            )
        audited = audit.audited(_of_programs([(program, program.file) for program in run.programs], folder))
    findings = (*_failure(run), *_lost_shardings(run), *audited.findings)
    source = replace(audited.source, file=run.program)
    return replace(audited, source=source, findings=findings, reshards=run.reshards)


def _of_programs(programs: Sequence[tuple[CompiledRecord, str]], folder: Path) -> Snapshot:
    """Return the programs in these files as one Snapshot."""
    snapshots = [_named(snapshot.read(folder / file), record) for record, file in programs]
    counts = Counter(mesh_key(one.mesh) for one in snapshots if one.mesh is not None)
    chosen = max(counts, key=lambda key: counts[key]) if counts else None
    on_chosen = (one.mesh for one in snapshots if one.mesh and mesh_key(one.mesh) == chosen)
    meshes = MeshList(itertools.islice(on_chosen, 1))
    arrays = tuple(array for one in snapshots for array in meshes.arrays(one))
    programs_of_all = tuple(program for one in snapshots for program in meshes.programs(one))
    partitioned = tuple(
        program
        for of_program in snapshots
        for program in meshes.programs(of_program, of_program.partitioned or ())
    )
    return replace(
        snapshots[0],
        mesh=meshes.mesh,
        other_meshes=meshes.other_meshes,
        arrays=arrays,
        programs=programs_of_all,
        partitioned=partitioned or None,
        findings=tuple(finding for one in snapshots for finding in one.findings),
    )


def _named(snapshot: Snapshot, record: CompiledRecord) -> Snapshot:
    """Return the Snapshot of one program with its unique name in the run, also in its paths."""
    if record.name == record.function:
        return snapshot
    old, new = f"{record.function}/", f"{record.name}/"

    def renamed(path: str) -> str:
        return new + path.removeprefix(old) if path.startswith(old) else path

    found = renamed_paths.in_snapshot(snapshot, renamed)
    return replace(
        found,
        arrays=tuple(replace(array, program=record.name) for array in found.arrays),
        programs=tuple(replace(program, name=record.name) for program in found.programs),
        partitioned=found.partitioned
        and tuple(replace(program, name=record.name) for program in found.partitioned),
    )


def _devices_of_target(compiled: Sequence[tuple[CompiledRecord, str]], folder: Path) -> dict[int, int]:
    """Return the device of the target for each emulated device that a program runs on."""
    devices: dict[int, int] = {}
    for record, file in compiled:
        here, there = (snapshot.read(folder / one).mesh for one in (record.file, file))
        if here is not None and there is not None:
            devices |= zip(here.devices, there.devices, strict=True)
    return devices


def _on_target(live: Snapshot, target: Snapshot, devices: Mapping[int, int]) -> Snapshot:
    """Return the programs for a target with the live arrays of the run, each on its own mesh.

    Args:
      devices: the device of the target for each emulated device. Arrays on other devices are left out, and
        a finding says so.
    """
    meshes = MeshList(target.meshes)
    programs = meshes.programs(target)
    arrays = []
    for array in live.arrays:
        mesh = live.mesh_of(array)
        held = {shard.device for shard in array.shards or ()} or set(mesh.devices if mesh else ())
        if held <= devices.keys():
            arrays.append(_moved(array, mesh, target, meshes, devices))
    there = replace(
        target,
        mesh=meshes.mesh,
        other_meshes=meshes.other_meshes,
        arrays=tuple(arrays),
        programs=programs,
    )
    paths, values = live_paths(there), {array.path: array for array in target.arrays}
    missing = len(live.arrays) - len(arrays)
    message = (
        f"{counted(missing, 'live array')} on devices that no program was compiled for are left out: their "
        f"devices of {target.source.target} are unknown."
    )
    return replace(
        there,
        programs=tuple(
            with_paths(program, paths(program, there.mesh_of(program), values)) for program in programs
        ),
        findings=(*target.findings, *([Finding("note", LEFT_OUT, message)] if missing else ())),
    )


def _moved(
    array: Array, mesh: Mesh | None, target: Snapshot, meshes: MeshList, devices: Mapping[int, int]
) -> Array:
    """Return a live array on the devices of the target, with the index of its mesh in `meshes`."""
    shards = array.shards and tuple(replace(shard, device=devices[shard.device]) for shard in array.shards)
    if array.spec is None:
        # The array has a list of its shards, so any mesh with its devices will do.
        held = {shard.device for shard in shards or ()}
        around = (one for one in target.meshes if held <= set(one.devices))
        index = meshes.index_of(next(around, target.mesh))
    elif mesh is None:
        index = None
    else:
        owners = {
            device: owner
            for known in target.meshes
            for device, owner in zip(known.devices, known.processes or (), strict=False)
        }
        placed = tuple(devices[device] for device in mesh.devices)
        processes = tuple(owners[one] for one in placed) if owners else None
        kind = None if target.mesh is None else target.mesh.device_kind
        index = meshes.index_of(replace(mesh, devices=placed, processes=processes, device_kind=kind))
    return replace(array, mesh=index, shards=shards)


def _lost_shardings(run: ProgramRun) -> Iterator[Finding]:
    """Yield a warning per line with an operation outside of any jit that replicated its result."""
    for sharding in run.lost_shardings[:_MOST_LOST]:
        at = "" if sharding.line is None else f" at {sharding.line}"
        message = (
            f"{sharding.operation}{at}, outside of any jit, lost a sharding: its result {sharding.dtype}"
            f"{list(sharding.shape)} is replicated, {bytes_text(sharding.bytes)} on each device, "
            "although its operand "
            f"{list(sharding.operand_shape)} has {spec_text(sharding.operand_spec)}, "
            f"{bytes_text(sharding.operand_bytes)} "
            "on each. XLA chose the sharding, because nothing asks for another."
        )
        remedy = "Call it inside of `jax.jit` with `out_shardings`, or constrain the result there."
        yield Finding(
            "warning",
            LOST_SHARDING,
            message,
            bytes=_saved(sharding),
            source=sharding.line,
            remedy=remedy,
        )
    rest = run.lost_shardings[_MOST_LOST:]
    if rest:
        message = f"{counted(len(rest), 'more line')} with operations that lost a sharding."
        yield Finding("warning", LOST_SHARDING, message, bytes=sum(map(_saved, rest)))


def _saved(lost: LostSharding) -> int:
    """Return the bytes per device that the sharding of the operand saves for the result."""
    return lost.bytes - lost.bytes // lost.parts


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
    if run.error is not None:
        message = f"{message} {run.error.sentence}"
    return (Finding("warning" if run.error is None else "error", FAILED, message),)
