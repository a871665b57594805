"""What `check` and the plugin for pytest report: violated rules, and differences from a lock file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from inspector.audit import lock_file
from inspector.audit.lock_file import LockedArray, LockedCollective, LockedMesh, LockFile
from inspector.audit.policy import Policy
from inspector.audit.policy.fields import name
from inspector.records.collectives import OPERATIONS
from inspector.records.snapshot import Group, Snapshot
from inspector.sharding.sharding_text import spec_text
from inspector.text.formatting import (
    bytes_text,
    counted,
    mesh_axes_text,
    mesh_sizes_text,
    shape_text,
    signed_text,
)

# Arrays inside compiled programs, which a plan does not have.
_INSIDE_PROGRAMS = ("activation", "gradient")
_Locked = TypeVar("_Locked", LockedArray, LockedCollective)
_MOST_NAMED = 2  # arrays, and kinds of collectives of a program, in the sentence about all changes


@dataclass(frozen=True)
class Changes:
    """Lines about changes, about differences that do not count, and about what cannot be compared.

    `summary` names the first arrays that changed, and the traffic of each program before and now. It is None
    without changes.
    """

    changed: tuple[str, ...]
    noted: tuple[str, ...]
    unknown: tuple[str, ...]
    summary: str | None = None


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
    summary = None
    if changes:
        parts = [_mesh_summary(before.mesh, after.mesh), _array_summary(*arrays)]
        if programs:
            parts += [
                _traffic_summary(before, after, program)
                for program in before.programs
                if program in after.programs
            ]
        old, new = (f"jax {name(lock.versions.get('jax', 'none'))}" for lock in (before, after))
        if old != new:
            parts.append(f"the lock is of {old}, this is {new}")
        summary = "; ".join(filter(None, parts)) or None
    return Changes(tuple(changes), tuple(noted), tuple(unknown), summary)


def _mesh_summary(before: LockedMesh | None, after: LockedMesh | None) -> str | None:
    texts = _mesh_text(before), _mesh_text(after)
    return None if texts[0] == texts[1] else f"the mesh is {texts[1]} instead of {texts[0]}"


def _array_summary(before: Mapping[str, LockedArray], after: Mapping[str, LockedArray]) -> str | None:
    """Return the sharding of the first arrays that changed, the parameters first."""
    differing = [path for path in before.keys() | after.keys() if _differs(before.get(path), after.get(path))]
    both = {**before, **after}
    differing.sort(key=lambda path: (get_args(Group).index(both[path].group), path))
    texts = [_became(before.get(path), after.get(path)) for path in differing[:_MOST_NAMED]]
    if more := len(differing) - len(texts):
        texts.append(f"and {counted(more, 'more array')} changed")
    return ", ".join(texts) or None


def _differs(old: LockedArray | None, new: LockedArray | None) -> bool:
    return old is None or new is None or bool(_facts(old, new))


def _became(old: LockedArray | None, new: LockedArray | None) -> str:
    if old is None or new is None:
        array = old or new
        assert array is not None
        return f"{name(array.path)} is {'new' if old is None else 'gone'}"
    if old.spec != new.spec:
        return f"{name(new.path)} is {name(spec_text(new.spec))} instead of {name(spec_text(old.spec))}"
    return f"{name(new.path)} changed"


def _traffic_summary(before: LockFile, after: LockFile, program: str) -> str:
    """Return what one device sends in one run of a program, before and now, and the largest change."""
    rows = [
        {collective.key: collective for collective in lock.collectives if collective.program == program}
        for lock in (before, after)
    ]
    old, new = (_sent(list(of_lock.values())) for of_lock in rows)
    if old is None or new is None:
        return f"the traffic of {name(program)} is unknown"
    now = f"{name(program)} sends {new}"
    changed = {}
    for key in rows[0].keys() | rows[1].keys():
        amounts = [0 if (row := side.get(key)) is None else row.wire_bytes_per_device or 0 for side in rows]
        if amounts[0] != amounts[1]:
            changed[key] = amounts[1] - amounts[0]
    if not changed:
        return f"{now} per device in one run, as before"
    largest = sorted(changed, key=lambda key: -abs(changed[key]))[:_MOST_NAMED]
    texts = [
        f"{_kind_text(rows[1].get(key) or rows[0][key])} {signed_text(changed[key], bytes_text)}"
        for key in largest
    ]
    return f"{now} instead of {old} per device in one run: {', '.join(texts)}"


def _sent(collectives: list[LockedCollective]) -> str | None:
    """Return the bytes that one device sends. It is a bound if devices or branches can differ."""
    amounts = [collective.wire_bytes_per_device for collective in collectives]
    if None in amounts:
        return None
    pairs = sum(OPERATIONS[row.op].route == "pairs" for row in collectives if row.op in OPERATIONS)
    bound = pairs > 1 or any(collective.conditional for collective in collectives)
    return f"{'up to ' if bound else ''}{bytes_text(sum(filter(None, amounts)))}"


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


def _kind_text(collective: LockedCollective) -> str:
    return f"{name(collective.op)} over {mesh_axes_text(collective.axes, name)}"


def _collective_name(collective: LockedCollective) -> str:
    return f"{_kind_text(collective)} in {name(collective.program)}"


def _count_text(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,}"


@dataclass(frozen=True)
class Checked:
    """Lines about violated rules or changes, about what cannot be checked, and notes."""

    violations: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __add__(self, other: Checked) -> Checked:
        return Checked(
            self.violations + other.violations, self.unknown + other.unknown, self.notes + other.notes
        )


def with_policy(snapshot: Snapshot, policy: Policy) -> Checked:
    """Check the rules of a policy."""
    outcomes = policy.check(snapshot)
    return Checked(
        tuple(f"{outcome.rule}: {broken.sentence}" for outcome in outcomes for broken in outcome.violations),
        tuple(f"{outcome.rule}: {outcome.unknown}" for outcome in outcomes if outcome.unknown is not None),
        (f"rules that hold: {sum(outcome.holds for outcome in outcomes)} of {len(outcomes)}",),
    )


def with_lock(snapshot: Snapshot, before: LockFile, path: str) -> Checked:
    """List the changes since a lock file. The last note has their number, and a sentence about them."""
    found = changes(before, lock_file.locked(snapshot))
    count = f"{counted(len(found.changed), 'change')} from {path}"
    last = count if found.summary is None else f"{count}: {found.summary}"
    return Checked(found.changed, found.unknown, (*found.noted, last))
