"""One group of arrays in a sentence: why they differ, which they are, and what a device gains by it."""

from __future__ import annotations

from collections.abc import Sequence

from inspector.compare.difference.array_differences import ONLY_AFTER, ONLY_BEFORE, ArrayDifference
from inspector.compare.difference.causes import Causes
from inspector.compare.difference.groups import DIMENSION, Group, axis_changes
from inspector.compare.difference.mesh_change import axes_text
from inspector.compare.difference.spec_rows import title
from inspector.core.formatting import counted, shape_text
from inspector.core.totals import STATE_GROUPS
from inspector.machines.prediction import memory

_MOST_CHANGES = 3
_MOST_NAMES = 4


def group_sentence(group: Group, why: Causes) -> str:
    """The whole sentence. Where arrays move by the mesh, its change has been told before."""
    common = [one for one in group.differences if one.before and one.after]
    details = [_following(common, group, why)] if common else []
    for change, what in ((ONLY_AFTER, "new"), (ONLY_BEFORE, "gone")):
        members = [one for one in group.differences if one.changed == (change,)]
        if members:
            are = "is" if len(members) == 1 else "are"
            details.append(f"{_who(members)} {are} {what} ({_title(members)})")
    held = _held(group)
    body = "; ".join([*details, held] if held else details)
    return f"{_lead(group, why)}{body}."


def _lead(group: Group, why: Causes) -> str:
    """The causes as the beginning of the sentence; the mesh has been told before if arrays move by it."""
    if not group.causes:
        return ""
    if not why.mesh.moves or why.mesh.clause not in group.causes:
        return f"{joined(group.causes)}: "
    others = tuple(clause for clause in group.causes if clause != why.mesh.clause)
    return f"{joined(others)}, on top of the mesh: " if others else "By the mesh alone, "


def _following(members: list[ArrayDifference], group: Group, why: Causes) -> str:
    """Who follows and how: `24 arrays follow (…), embed from fsdp 16 to fsdp 8`."""
    verb = "follows" if len(members) == 1 else "follow"
    who = f"{_who(members)} {verb} ({_title(members)})"
    partly = f", {group.partly:,} of them only in part" if group.partly else ""
    if why.mesh.renamed and all(one.placement == "other names" for one in members):
        return f"{who}, which name it and lie as before"
    changes = _axis_changes(members, why, bool(group.causes))
    facts = _facts(members)
    if group.causes:
        if not changes and any("placement" in one.changed for one in members):
            changes = [_other_devices(members, why)]
        return ", ".join([f"{who}{partly}", *changes, *_other(facts)])
    if changes:
        return f"{', '.join([*changes, *_other(facts)])}: {who}{partly}"
    have = facts or [", ".join(dict.fromkeys(f for one in members for f in one.changed))]
    return f"{_who(members)} differ{'s' * (len(members) == 1)} in {' and '.join(have)} ({_title(members)})"


def _other_devices(members: list[ArrayDifference], why: Causes) -> str:
    """How arrays lie otherwise that the same axes split, or none."""
    before, after = why.mesh.before, why.mesh.after
    whole = not any(axes for one in members for axes in one.split_after or ())
    if whole and before and after and before.size != after.size:
        return f"whole on {counted(after.size, 'device')} in place of {before.size:,}"
    return "the same axes split them, but other devices hold the blocks"


def _other(facts: list[str]) -> list[str]:
    return [f"with another {fact}" for fact in facts]


def _axis_changes(members: list[ArrayDifference], why: Causes, caused: bool) -> list[str]:
    """What the dimensions changed from and to, those of most arrays first.

    Where no cause stands before them, they are the beginning of the sentence.
    """
    names: dict[tuple, dict[str, int]] = {}
    asked: dict[tuple, set[str]] = {}
    # Numbers of dimensions are for those that have no names, and gradients go where parameters go.
    named = [one for one in members if one.either.logical_axes is not None]
    for one in named or members:
        for change, name in axis_changes(one).items():
            counts = names.setdefault(change, {})
            counts[name] = counts.get(name, 0) + 1
            asked.setdefault(change, set()).update(why.mesh.unnamed(one.before, one.after, change))
    ordered = sorted(names.items(), key=lambda item: -sum(item[1].values()))
    said = []
    for change, counts in ordered[:_MOST_CHANGES]:
        axes = sorted(asked[change])
        words = _names(list(counts))
        if not said and not caused:
            words = _subject(list(counts), words)
        words += f" from {axes_text(change[0])} to {axes_text(change[1])}"
        said.append(words + (f" (and no longer over {' and '.join(axes)})" if axes else ""))
    if len(ordered) > _MOST_CHANGES:
        said.append(f"{len(ordered) - _MOST_CHANGES} more such changes")
    return said


def _facts(members: list[ArrayDifference]) -> list[str]:
    """Shapes and dtypes that differ."""
    shapes = {
        (one.before.shape, one.after.shape)
        for one in members
        if one.before and one.after and "shape" in one.changed
    }
    said = ["shape"] if shapes else []
    if len(shapes) == 1:
        ((old_shape, new_shape),) = shapes
        said = [f"shape ({shape_text(old_shape)} → {shape_text(new_shape)})"]
    dtypes = {
        (one.before.dtype, one.after.dtype)
        for one in members
        if one.before and one.after and "dtype" in one.changed
    }
    return said + [f"dtype ({old} → {new})" for old, new in sorted(dtypes)]


def _held(group: Group) -> str:
    """What each device gains or loses by a group, of train state if it has some."""
    state = [one for one in group.differences if one.either.group in STATE_GROUPS]
    amount = group.state if state else group.all
    if all(one.placement in ("same", "other names") for one in group.differences):
        return ""
    if amount.gained == 0:
        return "each device holds as much of them as before"
    if amount.gained is None:
        return "what each device gains or loses by it is unknown"
    return f"each device holds {amount.change}" + (
        " of train state" if state and len(state) < len(group.differences) else ""
    )


def _who(members: Sequence[ArrayDifference]) -> str:
    """`24 arrays`; where some are no train state `24 arrays of the train state and 16 others`."""
    state = sum(one.either.group in STATE_GROUPS for one in members)
    rest = len(members) - state
    if not state:
        kinds = {one.either.group for one in members}
        if len(kinds) == 1:
            (only,) = kinds
            name = memory.GROUPS.get(only, only)
            if name.endswith("s"):
                return counted(rest, name.removesuffix("s"))
            return f"{counted(rest, 'array')} of the {name}"
    if state and rest:
        return f"{counted(state, 'array')} of the train state and {counted(rest, 'other')}"
    return counted(len(members), "array")


def _title(members: Sequence[ArrayDifference]) -> str:
    return title([one.either for one in members])


def _names(names: list[str]) -> str:
    if len(names) > _MOST_NAMES:
        names = [*names[: _MOST_NAMES - 1], f"{len(names) - _MOST_NAMES + 1} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _subject(names: list[str], words: str) -> str:
    """`The logical axes embed and kv_lora go`, `Dimension 0 goes`."""
    goes = "goes" if len(names) == 1 else "go"
    if all(name.startswith(DIMENSION) for name in names):
        return f"{words[:1].upper()}{words[1:]} {goes}"
    return f"The logical {'axis' if len(names) == 1 else 'axes'} {words} {goes}"


def joined(clauses: tuple[str, ...]) -> str:
    """Several causes as one beginning of a sentence."""
    rest = [f"{clause[:1].lower()}{clause[1:]}" for clause in clauses[1:]]
    if len(rest) > 1:
        return f"{clauses[0]}, {', '.join(rest[:-1])} and {rest[-1]}"
    return " and ".join([clauses[0], *rest])
