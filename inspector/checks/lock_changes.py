"""What a Snapshot has otherwise than the lock file says, a line each."""

from __future__ import annotations

from dataclasses import dataclass

from inspector.checks.lock_file import LockedArray, LockedCollective, LockedMesh, LockFile
from inspector.core.errors import shown
from inspector.core.formatting import (
    bytes_text,
    counted,
    mesh_axes_text,
    mesh_sizes_text,
    shape_text,
    spec_text,
)

# Arrays inside compiled programs, whose sharding the compiler chose: a plan has none.
OF_PROGRAMS = ("activation", "gradient")
_LONGEST = 300  # characters of a name in a line


@dataclass(frozen=True)
class Changes:
    """What differs (`changed`), what is only told (`noted`), what cannot be compared (`unknown`)."""

    changed: tuple[str, ...]
    noted: tuple[str, ...]
    unknown: tuple[str, ...]


def changes(before: LockFile, after: LockFile) -> Changes:
    """From the lock file to what is now; a line has no line end in it, whatever names are in it."""
    programs, noted, unknown = True, _notes(before, after), []
    if before.programs and not after.programs:
        programs = False
        unknown.append(
            "the collectives of the lock file cannot be compared: the Snapshot has no compiled program "
            "whose collectives are counted"
        )
    elif after.programs and not before.programs:
        programs = False
        noted.append("the lock file has no compiled programs, so that collectives are not compared")
    arrays = programs or not (before.programs or after.programs)
    found = _mesh_changes(before.mesh, after.mesh)
    found += _array_changes(_arrays(before, arrays), _arrays(after, arrays))
    if programs:
        found += _program_changes(before, after)
    return Changes(tuple(found), tuple(noted), tuple(unknown))


def _notes(before: LockFile, after: LockFile) -> list[str]:
    notes = []
    if (before.source.kind, before.source.target) != (after.source.kind, after.source.target):
        names = [
            " ".join(dict.fromkeys(filter(None, (one.source.kind, one.source.target))))
            for one in (before, after)
        ]
        notes.append(f"source: {_name(names[0])} → {_name(names[1])}")
    for package in sorted(before.versions.keys() | after.versions.keys()):
        old, new = (one.versions.get(package, "none") for one in (before, after))
        if old != new:
            notes.append(f"version of {_name(package)}: {_name(old)} → {_name(new)}")
    places = {one.path for one in before.arrays if one.spec is None and one.shards is None}
    both = [one for one in after.arrays if one.path in places and one.spec is one.shards is None]
    if both:
        notes.append(f"the placement of {counted(len(both), 'array')} is unknown, before and now")
    return notes


def _mesh_changes(before: LockedMesh | None, after: LockedMesh | None) -> list[str]:
    if before is None or after is None:
        return [] if before is after else [f"mesh: {_mesh_text(before)} → {_mesh_text(after)}"]
    found = []
    axes = [[(axis.name, axis.size) for axis in mesh.axes] for mesh in (before, after)]
    if axes[0] != axes[1]:
        found.append(f"mesh: {_mesh_text(before)} → {_mesh_text(after)}")
    elif before.devices != after.devices:
        found.append("mesh: the same axes with the devices in another order")
    types = [{axis.name: axis.type for axis in mesh.axes} for mesh in (before, after)]
    for name in types[0].keys() & types[1].keys():
        if types[0][name] != types[1][name]:
            kinds = f"{_name(types[0][name])} → {_name(types[1][name])}"
            found.append(f"mesh: the type of the axis {_name(name)}: {kinds}")
    return sorted(found)


def _mesh_text(mesh: LockedMesh | None) -> str:
    if mesh is None:
        return "none"
    return (
        mesh_sizes_text((_name(axis.name) for axis in mesh.axes), (axis.size for axis in mesh.axes))
        or "one device"
    )


def _arrays(lock: LockFile, all_of_them: bool) -> dict[str, LockedArray]:
    return {one.path: one for one in lock.arrays if all_of_them or one.group not in OF_PROGRAMS}


def _array_changes(before: dict[str, LockedArray], after: dict[str, LockedArray]) -> list[str]:
    found = []
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old is None and new is not None:
            found.append(f"added array {_name(path)}: {_array_text(new)}")
        elif new is None and old is not None:
            found.append(f"removed array {_name(path)}: {_array_text(old)}")
        elif old is not None and new is not None and (facts := _facts(old, new)):
            found.append(f"changed array {_name(path)}: {'; '.join(facts)}")
    return found


def _facts(old: LockedArray, new: LockedArray) -> list[str]:
    facts = []
    for what, say in (
        ("spec", spec_text),
        ("shape", shape_text),
        ("dtype", _name),
        ("group", _name),
    ):
        mine, theirs = getattr(old, what), getattr(new, what)
        if mine != theirs:
            facts.append(f"{what} {_name(say(mine))} → {_name(say(theirs))}")
    if old.shards != new.shards:
        facts.append("other index ranges on the devices")
    return facts


def _array_text(one: LockedArray) -> str:
    return _name(f"{shape_text(one.shape)} {one.dtype} {spec_text(one.spec)}")


def _program_changes(before: LockFile, after: LockFile) -> list[str]:
    found = []
    for name in sorted(set(before.programs) ^ set(after.programs)):
        found.append(f"{'removed' if name in before.programs else 'added'} program {_name(name)}")
    both = set(before.programs) & set(after.programs)
    old, new = (
        {
            (one.program, one.mesh_axes, one.op): one
            for one in lock.collectives
            if one.program in both
        }
        for lock in (before, after)
    )
    for key in sorted(
        old.keys() | new.keys(), key=lambda key: (key[0], key[1] is None, key[1] or (), key[2])
    ):
        mine, theirs = old.get(key), new.get(key)
        if mine is None and theirs is not None:
            found.append(f"gained {_collective_text(theirs)}")
        elif theirs is None and mine is not None:
            found.append(f"lost {_collective_text(mine)}")
        elif mine is not None and theirs is not None and (facts := _figures(mine, theirs)):
            found.append(f"changed {_collective_name(theirs)}: {'; '.join(facts)}")
    return found


def _figures(old: LockedCollective, new: LockedCollective) -> list[str]:
    facts = []
    for what, words, say in (
        ("instructions", "instructions", str),
        ("executions", "executions", _count_text),
        ("payload_bytes", "payload", bytes_text),
        ("wire_bytes_per_device", "on the wire per device", bytes_text),
    ):
        mine, theirs = getattr(old, what), getattr(new, what)
        if mine != theirs:
            said = say(mine), say(theirs)
            if said[0] == said[1]:
                said = f"{mine:,} B", f"{theirs:,} B"
            facts.append(f"{words} {said[0]} → {said[1]}")
    if old.conditional != new.conditional:
        facts.append("only in a branch now" if new.conditional else "no longer only in a branch")
    return facts


def _collective_text(one: LockedCollective) -> str:
    executions = "an unknown number of" if one.executions is None else f"{one.executions:,}"
    up_to = "up to " if one.conditional else ""
    return (
        f"{_collective_name(one)}: {counted(one.instructions, 'instruction')}, {up_to}{executions} "
        f"{'execution' if one.executions == 1 else 'executions'} and "
        f"{bytes_text(one.wire_bytes_per_device)} on the wire per device in one run"
    )


def _collective_name(one: LockedCollective) -> str:
    axes = mesh_axes_text(one.mesh_axes, _name)
    return f"{_name(one.op)} over {axes} in {_name(one.program)}"


def _count_text(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,}"


def _name(text: str) -> str:
    """Text from a file on one line: as it is where that is harmless, else quoted and escaped."""
    harmless = text and text.isprintable() and len(text) <= _LONGEST
    return text if harmless else shown(text, _LONGEST)
