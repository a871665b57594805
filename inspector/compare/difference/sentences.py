"""The difference of two Snapshots in sentences that name causes, the largest difference first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from inspector.compare.difference import origin
from inspector.compare.difference.array_differences import (
    ONLY_AFTER,
    ONLY_BEFORE,
    ArrayDifference,
    arrays,
)
from inspector.compare.difference.cause import Cause
from inspector.compare.difference.causes import Causes, causes
from inspector.compare.difference.caveats import INSIDE_STEP, knows_inside_step
from inspector.compare.difference.groups import Group, axis_changes, groups
from inspector.compare.difference.program_rows import TIME, program_rows
from inspector.compare.difference.question import MINUS, Question, Row
from inspector.compare.difference.questions import LEVELS, state_rows
from inspector.compare.difference.spec_rows import title
from inspector.compare.difference.splits import axes_text
from inspector.core.formatting import and_text, bytes_text, counted, shape_text
from inspector.core.snapshot import Snapshot
from inspector.core.totals import STATE_GROUPS
from inspector.machines.hardware import Chip

_MOST_PARTS = 4
_MOST_CHANGES = 3
# Smaller parts of a sum, and smaller changes of FLOPs, are not worth a mention.
_LEAST_SHARE = 0.01
_MISSING = ((ONLY_AFTER, "new"), (ONLY_BEFORE, "gone"))
_DIFFERENT = ("better", "worse", "different")


def sentences(before: Snapshot, after: Snapshot, chip: Chip | None = None) -> tuple[str, ...]:
    """Return the size of the difference, then causes, collectives and memory by bytes, then the rest.

    Args:
      chip: the chip on which the time of programs is modelled. Without it, no time is compared.
    """
    why = causes(before, after)
    every = arrays(why.before, after) if before.arrays and after.arrays else ()
    compared = [one for one in every if not _known_in_one(one, before, after)]
    found = groups(compared, why)
    by_bytes = [(_moved(group), _group(group, why)) for group in found]
    by_bytes[1:] = sorted((*by_bytes[1:], *_programs(why, chip)), key=lambda one: -one[0])
    sources = origin.text(before), origin.text(after)
    texts = [
        *_headline(compared, why),
        *(text for _, text in by_bytes),
        *_without_effect(why, found),
        *_other_programs(before, after),
        *_findings(before, after),
        *([] if sources[0] == sources[1] else [f"Layout · Source: {' → '.join(sources)}."]),
    ]
    return tuple(texts) or (_nothing(before, after, len(compared)),)


def row_text(row: Question, parts: Sequence[str] = ()) -> str:
    """Return the second answer against the first: `Memory · step: 2 MiB → 1 MiB (−50%, better): …`."""
    was, now = row.answers
    verdict = now.verdict if now.verdict in ("better", "worse") else ""
    change = ", ".join(part for part in (now.change, verdict) if part)
    text = f"{row.section} · {row.title}: {was.text} → {now.text}{f' ({change})' if change else ''}"
    return f"{text}: {', '.join(parts)}" if parts else text


def _known_in_one(one: ArrayDifference, before: Snapshot, after: Snapshot) -> bool:
    """Return whether the other Snapshot cannot know this array, as it was not compiled."""
    return one.either.group in INSIDE_STEP and (
        (one.before is None and not knows_inside_step(before))
        or (one.after is None and not knows_inside_step(after))
    )


def _moved(group: Group) -> float:
    """Return the gained bytes per device. Groups with unknown bytes come first."""
    amount = group.state if group.state.gained else group.all
    known = amount.gained is not None and amount.unit == "bytes"
    return abs(amount.gained or 0) if known else math.inf


def _headline(compared: Sequence[ArrayDifference], why: Causes) -> Iterator[str]:
    """Yield the mesh if it changed, the number of arrays that differ, and the size of the train state."""
    changed = [one for one in compared if one.changed]
    if not changed:
        return
    common = [one for one in compared if one.before and one.after]
    differ = sum(bool(one.changed) for one in common)
    counts = [f"{differ:,} of {counted(len(common), 'array')} differ"] if common else []
    for fact, word in _MISSING:
        if count := sum(one.changed == (fact,) for one in changed):
            counts.append(f"{counted(count, 'array')} {word}")
    mesh = f"{_joined(why.mesh)}: " if why.moves else ""
    yield f"{mesh}{', '.join(counts)}{_state(why)}."


def _state(why: Causes) -> str:
    """Return the change of the train state per device, as the end of a sentence."""
    both = (why.before, why.after)
    if not any(array.group in STATE_GROUPS for each in both for array in each.arrays):
        return ""
    rows = {row.title: row.compared(0) for row in state_rows(both)}
    shown = [rows["Bytes per device"], rows["Copies"]]
    if shown[0].answers[1].verdict == "unknown":
        shown = [rows["Elements per device"], rows["Copies of elements"]]
    size = shown[0]
    match size.answers[1].verdict:
        case "unknown" | "not comparable":
            texts = [f"{size.section} per device unknown"]
        case "equal":
            texts = [f"{size.section} per device unchanged at {size.answers[1].text}"]
        case _:
            texts = [row_text(row) for row in shown if row.answers[1].verdict in _DIFFERENT]
    return "; " + "; ".join(texts)


def _group(group: Group, why: Causes) -> str:
    """Return a group as one sentence: its causes, its arrays, their changes, the bytes per device."""
    headline = set(why.mesh) if why.moves else set()
    own = [cause for cause in group.causes if cause not in headline]
    lead = _joined(own, ["mesh"] if len(own) < len(group.causes) else [])
    common = [one for one in group.differences if one.before and one.after]
    parts = []
    if common:
        partial = [f"{group.partial:,} of them only in part"] if group.partial else []
        parts.append(", ".join([_who(common), *partial, *_changes(common, why)]))
    for fact, word in _MISSING:
        members = [one for one in group.differences if one.changed == (fact,)]
        if members:
            parts.append(f"{_who(members)} {word}")
    return f"{lead or 'Unknown cause'}: {'; '.join([*parts, _held(group)])}."


def _who(members: Sequence[ArrayDifference]) -> str:
    """Return the number of arrays with their paths: `4 arrays (params/W_{0…3})`."""
    arrays_ = [one.either for one in members]
    groups_ = {array.group for array in arrays_}
    noun = groups_.pop() if groups_ in ({"activation"}, {"gradient"}) else "array"
    return f"{counted(len(arrays_), noun)} ({title(arrays_)})"


def _changes(members: Sequence[ArrayDifference], why: Causes) -> list[str]:
    """Return what changed: mesh axes per logical axis, shapes, dtypes, or else the facts by name."""
    meshes = why.before.mesh, why.after.mesh
    names: dict[tuple, Counter[str]] = {}
    for one in [m for m in members if m.either.logical_axes is not None] or members:
        for change, name in axis_changes(one, meshes).items():
            names.setdefault(change, Counter())[name] += 1
    ordered = sorted(names.items(), key=lambda item: -item[1].total())
    texts = [
        f"{and_text(_cut(list(counts)))} from {axes_text(was)} to {axes_text(now)}"
        for (was, now), counts in ordered[:_MOST_CHANGES]
    ]
    if len(ordered) > _MOST_CHANGES:
        texts.append(f"{len(ordered) - _MOST_CHANGES} more such changes")
    pairs = [(m.changed, m.before, m.after) for m in members if m.before and m.after]
    shapes = {(a.shape, b.shape) for facts, a, b in pairs if "shape" in facts}
    dtypes = {(a.dtype, b.dtype) for facts, a, b in pairs if "dtype" in facts}
    if len(shapes) == 1:
        texts += [f"shape {shape_text(was)} → {shape_text(now)}" for was, now in shapes]
    elif shapes:
        texts.append("other shapes")
    texts += [f"dtype {was} → {now}" for was, now in sorted(dtypes)]
    if not texts and any("placement" in one.changed for one in members):
        sizes = [mesh.size for mesh in meshes if mesh]
        replicated = not any(axes for one in members for axes in one.split_after or ())
        if replicated and len(set(sizes)) == 2:
            texts.append(f"replicated on {sizes[0]:,} → {counted(sizes[1], 'device')}")
        else:
            texts.append("the same split on other devices")
    return texts or list(dict.fromkeys(f"other {fact}" for one in members for fact in one.changed))


def _held(group: Group) -> str:
    if all(one.placement == "other names" for one in group.differences):
        return "the same placement"
    state = [one for one in group.differences if one.either.group in STATE_GROUPS]
    amount = group.state if state else group.all
    if amount.gained is None:
        return "bytes per device unknown"
    prefix = "train state " if state and len(state) < len(group.differences) else ""
    return prefix + amount.text


def _programs(why: Causes, chip: Chip | None) -> Iterator[tuple[float, str]]:
    """Yield collectives, memory, FLOPs and modelled time that differ, with their changed bytes."""
    both = (why.before, why.after)
    for row in program_rows(both, chip, origin.chip(why.before, chip)):
        answers = row.compared(0)
        if row.program is None or answers.answers[1].verdict not in _DIFFERENT:
            continue
        values = [answer.value or 0 for answer in answers.answers]
        moved = abs(values[1] - values[0])
        if any(statement.parts for statement in row.statements):
            yield moved, f"{row_text(answers, _parts(row))}."
        elif row.section == TIME and moved >= _LEAST_SHARE * max(values):
            yield -1, f"{row_text(answers)}."


def _parts(row: Row) -> list[str]:
    """Return the parts whose change explains the change of a sum, the largest first."""
    old, new = (statement.parts or {} for statement in row.statements)
    gains = {name: new.get(name, 0) - old.get(name, 0) for name in {**old, **new}}
    ordered = sorted(gains.items(), key=lambda item: -abs(item[1]))
    least = _LEAST_SHARE * abs(ordered[0][1]) if ordered else 0
    return [
        f"{name} {'+' if gain > 0 else MINUS}{bytes_text(abs(gain))}"
        for name, gain in ordered[:_MOST_PARTS]
        if gain and abs(gain) >= least
    ]


def _other_programs(before: Snapshot, after: Snapshot) -> Iterator[str]:
    if not before.programs or not after.programs:
        return
    old, new = ({program.name for program in each.programs} for each in (before, after))
    for names, which in ((old - new, "first"), (new - old, "second")):
        if names:
            yield f"Programs only in the {which}: {', '.join(sorted(names))}."


def _findings(before: Snapshot, after: Snapshot) -> Iterator[str]:
    keyed = [
        {(one.level, one.code, one.array): one for one in each.findings} for each in (before, after)
    ]
    for own, other, word in ((keyed[1], keyed[0], "New"), (keyed[0], keyed[1], "Resolved")):
        rows = [finding for key, finding in own.items() if key not in other]
        if rows:
            levels = Counter(finding.level for finding in rows)
            counts = and_text([counted(levels[name], name) for name in LEVELS if levels[name]])
            more = f", and {len(rows) - 1:,} more" if len(rows) > 1 else ""
            yield f"{word}: {counts}: {rows[0].message.removesuffix('.')}{more}."


def _without_effect(why: Causes, found: Sequence[Group]) -> Iterator[str]:
    """Yield the causes because of which no array differs. A new model explains everything."""
    used = {cause for group in found for cause in group.causes}
    if found and why.moves:
        used.update(why.mesh)
    if used.intersection(why.model):
        return
    if used.intersection(why.mesh):
        for cause, axes in why.rules.without_axes(why.after.mesh).items():
            noun = "axis" if len(axes) == 1 else "axes"
            yield f"{_joined([cause])} with mesh {noun} {and_text(axes)}."
            used.add(cause)
    left = [cause for cause in why.every if cause not in used]
    if left:
        yield f"Changed without an effect on arrays: {', '.join(cause.text for cause in left)}."


def _nothing(before: Snapshot, after: Snapshot, compared: int) -> str:
    known = {
        counted(compared, "array"): compared,
        "mesh": before.mesh and after.mesh,
        "layout": before.layout and after.layout,
        "programs": before.programs and after.programs,
    }
    same = [name for name, both in known.items() if both]
    if not same:
        return "Nothing to compare: neither Snapshot has arrays, a mesh or programs."
    return f"No differences. Compared: {', '.join(same)}."


def _joined(causes_: Sequence[Cause], more: Sequence[str] = ()) -> str:
    text = " and ".join(_cut([*(cause.text for cause in causes_), *more]))
    return f"{text[:1].upper()}{text[1:]}"


def _cut(texts: Sequence[str]) -> Sequence[str]:
    """Return at most four texts; the last one counts the others."""
    if len(texts) <= _MOST_PARTS:
        return texts
    return [*texts[: _MOST_PARTS - 1], f"{len(texts) - _MOST_PARTS + 1} more"]
