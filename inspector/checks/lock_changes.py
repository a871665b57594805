"""The changes from a lock file to a Snapshot, one line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from inspector.checks.lock_file import LockedArray, LockedCollective, LockedMesh, LockFile
from inspector.checks.policy.outcome import name
from inspector.core.formatting import (
    bytes_text,
    counted,
    mesh_axes_text,
    mesh_sizes_text,
    shape_text,
    spec_text,
)

# Arrays inside compiled programs, which a plan does not have.
_INSIDE_PROGRAMS = ("activation", "gradient")
_Locked = TypeVar("_Locked", LockedArray, LockedCollective)


@dataclass(frozen=True)
class Changes:
    """Lines about changes, about differences that do not count, and about what cannot be compared."""

    changed: tuple[str, ...]
    noted: tuple[str, ...]
    unknown: tuple[str, ...]


def changes(before: LockFile, after: LockFile) -> Changes:
    """Return the changes from `before` to `after`. A line has no line break, whatever the names."""
    noted, unknown = _notes(before, after), []
    programs = bool(before.programs) == bool(after.programs)
    if not programs and before.programs:
        unknown.append(
            "collectives cannot be compared: the Snapshot has no compiled program with collectives"
        )
    elif not programs:
        noted.append("collectives are not compared: the lock file has no compiled program")
    changes = _mesh_changes(before.mesh, after.mesh)
    arrays = _arrays(before, programs), _arrays(after, programs)
    words = ("removed array", "added array", "changed array")
    changes += _compared(*arrays, words, lambda array: name(array.path), _array_text, _facts)
    if programs:
        changes += _program_changes(before, after)
    return Changes(tuple(changes), tuple(noted), tuple(unknown))


def _notes(before: LockFile, after: LockFile) -> list[str]:
    notes = []
    if (before.source.kind, before.source.target) != (after.source.kind, after.source.target):
        names = [
            " ".join(dict.fromkeys(filter(None, (lock.source.kind, lock.source.target))))
            for lock in (before, after)
        ]
        notes.append(f"source: {name(names[0])} → {name(names[1])}")
    for package in sorted(before.versions.keys() | after.versions.keys()):
        old, new = (lock.versions.get(package, "none") for lock in (before, after))
        if old != new:
            notes.append(f"version of {name(package)}: {name(old)} → {name(new)}")
    unplaced = [
        {array.path for array in lock.arrays if array.spec is None and array.shards is None}
        for lock in (before, after)
    ]
    if both := unplaced[0] & unplaced[1]:
        notes.append(f"unknown placement of {counted(len(both), 'array')} in both")
    return notes


def _mesh_changes(before: LockedMesh | None, after: LockedMesh | None) -> list[str]:
    change = f"mesh: {_mesh_text(before)} → {_mesh_text(after)}"
    if before is None or after is None:
        return [] if before is after else [change]
    changes = []
    old, new = ([(axis.name, axis.size) for axis in mesh.axes] for mesh in (before, after))
    if old != new:
        changes.append(change)
    elif before.devices != after.devices:
        changes.append("mesh: other device order")
    types = {axis.name: axis.type for axis in before.axes}
    changes += [
        f"mesh: type of axis {name(axis.name)}: {name(types[axis.name])} → {name(axis.type)}"
        for axis in after.axes
        if types.get(axis.name, axis.type) != axis.type
    ]
    return sorted(changes)


def _mesh_text(mesh: LockedMesh | None) -> str:
    if mesh is None:
        return "none"
    names, sizes = (name(axis.name) for axis in mesh.axes), (axis.size for axis in mesh.axes)
    return mesh_sizes_text(names, sizes, max_axes_of_size_1=len(mesh.axes)) or "one device"


def _arrays(lock: LockFile, inside_programs: bool) -> dict[str, LockedArray]:
    return {
        array.path: array for array in lock.arrays if inside_programs or array.group not in _INSIDE_PROGRAMS
    }


def _compared(
    before: Mapping[Any, _Locked],
    after: Mapping[Any, _Locked],
    words: tuple[str, str, str],
    title: Callable[[_Locked], str],
    text: Callable[[_Locked], str],
    facts: Callable[[_Locked, _Locked], list[str]],
) -> list[str]:
    """Return a line for each entry that is gone, new or changed. `words` begin these lines."""
    gone, added, changed = words
    changes = []
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if old and new:
            if differing := facts(old, new):
                changes.append(f"{changed} {title(new)}: {'; '.join(differing)}")
        elif entry := old or new:
            changes.append(f"{gone if old else added} {text(entry)}")
    return changes


def _array_text(array: LockedArray) -> str:
    facts = f"{shape_text(array.shape)} {array.dtype} {spec_text(array.spec)}"
    return f"{name(array.path)}: {name(facts)}"


def _facts(old: LockedArray, new: LockedArray) -> list[str]:
    facts = [
        f"{what} {name(to_text(was))} → {name(to_text(now))}"
        for what, to_text in (
            ("spec", spec_text),
            ("shape", shape_text),
            ("dtype", name),
            ("group", name),
        )
        if (was := getattr(old, what)) != (now := getattr(new, what))
    ]
    texts = [
        "the first mesh" if lock.mesh is None else f"mesh {_mesh_text(lock.mesh)}" for lock in (old, new)
    ]
    if texts[0] != texts[1]:
        facts.append(f"{texts[0]} → {texts[1]}")
    elif old.mesh != new.mesh:
        facts.append("other devices of the mesh")
    return facts + (["other shards per device"] if old.shards != new.shards else [])


def _program_changes(before: LockFile, after: LockFile) -> list[str]:
    changes = [
        f"{'removed' if program in before.programs else 'added'} program {name(program)}"
        for program in sorted(set(before.programs) ^ set(after.programs))
    ]
    both = set(before.programs) & set(after.programs)
    old, new = (
        {collective.key: collective for collective in lock.collectives if collective.program in both}
        for lock in (before, after)
    )
    words = ("lost", "gained", "changed")
    return changes + _compared(old, new, words, _collective_name, _text, _figures)


def _figures(old: LockedCollective, new: LockedCollective) -> list[str]:
    facts = []
    for what, words, to_text in (
        ("instructions", "instructions", str),
        ("executions", "executions", _count_text),
        ("payload_bytes", "payload", bytes_text),
        ("wire_bytes_per_device", "on the wire per device", bytes_text),
    ):
        was, now = getattr(old, what), getattr(new, what)
        if was != now:
            texts = to_text(was), to_text(now)
            if texts[0] == texts[1]:
                texts = f"{was:,} B", f"{now:,} B"
            facts.append(f"{words} {texts[0]} → {texts[1]}")
    if old.conditional != new.conditional:
        facts.append("now in a branch" if new.conditional else "no longer in a branch")
    return facts


def _text(collective: LockedCollective) -> str:
    executions = "an unknown number of executions"
    if collective.executions is not None:
        most = "up to " if collective.conditional else ""
        executions = most + counted(collective.executions, "execution")
    elif collective.conditional:
        executions = f"up to {executions}"
    return (
        f"{_collective_name(collective)}: {counted(collective.instructions, 'instruction')}, "
        f"{executions} and {bytes_text(collective.wire_bytes_per_device)} on the wire per device in one run"
    )


def _collective_name(collective: LockedCollective) -> str:
    axes = mesh_axes_text(collective.mesh_axes, name)
    return f"{name(collective.op)} over {axes} in {name(collective.program)}"


def _count_text(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,}"
