"""The difference of two Snapshots in sentences that name causes, the largest difference first."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from inspector.compare import amounts, origin
from inspector.compare.amounts import TITLES
from inspector.compare.caveats import INSIDE_STEP, knows_inside_step
from inspector.compare.compared import compared as compared_snapshots
from inspector.compare.difference.array_differences import (
    ONLY_AFTER,
    ONLY_BEFORE,
    ArrayDifference,
    arrays,
)
from inspector.compare.difference.causes import Causes, causes
from inspector.compare.difference.groups import Change, Group, axis_changes, groups, in_state
from inspector.compare.difference.spec_rows import title
from inspector.compare.question import MINUS, Question, Row
from inspector.compare.questions.measures import ANSWERS
from inspector.compare.questions.programs import TIME, program_rows
from inspector.compare.questions.questions import LEVELS
from inspector.compare.questions.train_state import state_rows
from inspector.compare.splits import axes_text
from inspector.core.assessment import FLOPS
from inspector.core.formatting import and_text, bytes_text, counted, shape_text
from inspector.core.grouping import by_key
from inspector.core.program_names import title as title_of
from inspector.core.snapshot import Snapshot
from inspector.core.totals import STATE_GROUPS
from inspector.layout.plan import merged_by_logical_axis
from inspector.machines.hardware import Chip

_MOST_PARTS = 4
_MOST_CHANGES = 3
# Smaller parts of a sum, and smaller changes of FLOPs, are not worth a mention.
_LEAST_SHARE = 0.01
_MISSING = ((ONLY_AFTER, "new"), (ONLY_BEFORE, "gone"))
_DIFFERENT = ("better", "worse", "different")


def sentences(before: Snapshot, after: Snapshot, chip: Chip | None = None) -> tuple[str, ...]:
    """Return the size of the difference, then causes, collectives and memory by bytes, then the rest.

    chip: the chip for memory and time of Snapshots without one.
    """
    why = causes(before, after)
    every = arrays(why.before, after) if before.arrays and after.arrays else ()
    compared = [
        array_difference for array_difference in every if not _known_in_one(array_difference, before, after)
    ]
    found = groups(compared, why)
    by_bytes = [(_moved(group), _group(group, why)) for group in found]
    by_bytes[1:] = sorted((*by_bytes[1:], *_programs(why, chip)), key=lambda one: -one[0])
    sources = [origin.text(snapshot) for snapshot in (before, after)]
    texts = [
        *_headline(compared, why),
        *(text for _, text in by_bytes),
        *_without_effect(why, found),
        *_other_programs(before, after),
        *_findings(before, after),
        *([f"Layout · Source: {' → '.join(sources)}."] if sources[0] != sources[1] else []),
    ]
    return tuple(texts) or (_nothing(before, after, len(compared)),)


def row_text(row: Question, parts: Sequence[str] = ()) -> str:
    """Return the second answer against the first: `Memory · step: 2 MiB → 1 MiB (−50%, better): …`."""
    was, now = row.answers
    verdict = now.verdict if now.verdict in ("better", "worse") else ""
    change = ", ".join(filter(None, (f"{now.change} {now.per}".strip(), verdict)))
    section = "" if row.section == ANSWERS or row.title.startswith(row.section) else f"{row.section} · "
    text = f"{section}{row.title}: {was.text} → {now.text}{f' ({change})' if change else ''}"
    return ": ".join(filter(None, (text, ", ".join(parts))))


def _known_in_one(difference: ArrayDifference, before: Snapshot, after: Snapshot) -> bool:
    """Return whether the other Snapshot cannot know this array, as it was not compiled."""
    lacks = [
        snapshot
        for array, snapshot in ((difference.before, before), (difference.after, after))
        if array is None
    ]
    return difference.either.group in INSIDE_STEP and not all(map(knows_inside_step, lacks))


def _moved(group: Group) -> float:
    """Return the gained bytes per device. Groups with unknown bytes come first."""
    amount = group.state if group.state.gained else group.all
    known = amount.gained is not None and amount.unit == "bytes"
    return abs(amount.gained or 0) if known else math.inf


def _headline(compared: Sequence[ArrayDifference], why: Causes) -> Iterator[str]:
    """Yield the mesh if it changed, the number of arrays that differ, and the size of the train state."""
    changed = [difference for difference in compared if difference.changed]
    if not changed:
        return
    common = [difference for difference in compared if difference.before and difference.after]
    differ = sum(bool(difference.changed) for difference in common)
    counts = [f"{differ:,} of {counted(len(common), 'array')} differ"] if common else []
    for fact, word in _MISSING:
        if count := sum(difference.changed == (fact,) for difference in changed):
            counts.append(f"{counted(count, 'array')} {word}")
    mesh = f"{_joined(cause.text for cause in why.mesh)}: " if why.moves else ""
    yield f"{mesh}{'; '.join([', '.join(counts), *_state(why)])}."


def _state(why: Causes) -> list[str]:
    """Return the change of the train state per device."""
    both = (why.before, why.after)
    if not any(array.group in STATE_GROUPS for snapshot in both for array in snapshot.arrays):
        return []
    rows = {row.title: row.compared(0) for row in state_rows(both)}
    size, copies = rows.get("Train state per device") or rows["All arrays per device"], rows["Copies"]
    if size.answers[1].verdict == "unknown":
        size, copies = rows["Elements per device"], rows["Copies of elements"]
    now = size.answers[1]
    if now.verdict == "not comparable" and now.remark:
        return [f"{size.section} per device not comparable ({now.remark})"]
    if now.verdict in ("unknown", "not comparable"):
        return [f"{size.section} per device unknown"]
    if now.verdict == "equal":
        return [f"{size.section} per device unchanged at {now.text}"]
    return [row_text(row) for row in (size, copies) if row.answers[1].verdict in _DIFFERENT]


def _group(group: Group, why: Causes) -> str:
    """Return a group as one sentence: its causes, its arrays, their changes, the bytes per device."""
    headline = why.mesh if why.moves else ()
    own = [cause.text for cause in group.causes if cause not in headline]
    lead = _joined([*own, *["mesh"] * (len(own) < len(group.causes))]) or "Unknown cause"
    common = [difference for difference in group.differences if difference.before and difference.after]
    parts = []
    if common:
        partial = [f"{group.partial:,} of them only in part"] if group.partial else []
        parts.append(", ".join([_who(common), *partial, *_changes(common, why)]))
    for fact, word in _MISSING:
        members = [difference for difference in group.differences if difference.changed == (fact,)]
        if members:
            parts.append(f"{_who(members)} {word}")
    return f"{lead}: {'; '.join([*parts, _held(group)])}."


def _who(members: Sequence[ArrayDifference]) -> str:
    """Return the number of arrays with their paths: `4 arrays (params/W_{0…3})`."""
    shown = [member.either for member in members]
    kinds = {array.group for array in shown}
    noun = kinds.pop() if kinds in ({"activation"}, {"gradient"}) else "array"
    return f"{counted(len(shown), noun)} ({title(shown)})"


def _changes(members: Sequence[ArrayDifference], why: Causes) -> list[str]:
    """Return what changed: mesh axes per logical axis, shapes, dtypes, or else the facts by name."""
    meshes = why.before.mesh, why.after.mesh
    names: dict[Change, Counter[str]] = {}
    for member in [m for m in members if m.either.logical_axes is not None] or members:
        for change, name in axis_changes(member, meshes).items():
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
    if shapes:
        was, now = map(shape_text, next(iter(shapes)))
        texts.append(f"shape {was} → {now}" if len(shapes) == 1 else "other shapes")
    texts += [f"dtype {was} → {now}" for was, now in sorted(dtypes)]
    facts = dict.fromkeys(fact for member in members for fact in member.changed)
    if texts or "placement" not in facts:
        return texts or [f"other {fact}" for fact in facts]
    sizes = [mesh.size for mesh in meshes if mesh]
    if len(set(sizes)) < 2 or any(axes for member in members for axes in member.split_after or ()):
        return ["the same split on other devices"]
    return [f"replicated on {sizes[0]:,} → {counted(sizes[1], 'device')}"]


def _held(group: Group) -> str:
    if all(difference.placement == "other names" for difference in group.differences):
        return "the same placement"
    state = sum(map(in_state, group.differences))
    amount = group.state if state else group.all
    if amount.gained is None:
        return "bytes per device unknown"
    return f"{'train state ' if 0 < state < len(group.differences) else ''}{amount.text}"


def _programs(why: Causes, chip: Chip | None) -> Iterator[tuple[float, str]]:
    """Yield memory, traffic, FLOPs and collectives that differ, with their changed bytes.

    The verdict compares the steps.
    """
    both = compared_snapshots([("the first", why.before), ("the second", why.after)], chip)
    of_step = [amounts.row(kind, ANSWERS, both, 0) for kind in TITLES if kind != "time"]
    for row in (*of_step, *program_rows(both, 0)):
        compared = row.compared(0)
        if compared.answers[1].verdict not in _DIFFERENT:
            continue
        values = [answer.value or 0 for answer in compared.answers]
        moved = abs(values[1] - values[0])
        if any(statement.parts for statement in row.statements):
            yield moved, f"{row_text(compared, _parts(row))}."
        elif (row.section == TIME or row.title == FLOPS) and moved >= _LEAST_SHARE * max(values):
            yield -1, f"{row_text(compared)}."


def _parts(row: Row) -> list[str]:
    """Return the parts whose change explains the change of a sum, the largest first."""
    old, new = (statement.parts or {} for statement in row.statements)
    gains = {name: new.get(name, 0) - old.get(name, 0) for name in {**old, **new}}
    ordered = sorted(gains.items(), key=lambda item: -abs(item[1]))
    least = max(_LEAST_SHARE * max(map(abs, gains.values()), default=0), 1)
    return [
        f"{name} {'+' if gain > 0 else MINUS}{bytes_text(round(abs(gain)))}"
        for name, gain in ordered[:_MOST_PARTS]
        if abs(gain) >= least
    ]


def _other_programs(before: Snapshot, after: Snapshot) -> Iterator[str]:
    old, new = ({program.name for program in snapshot.programs} for snapshot in (before, after))
    for names, which in ((old - new, "first"), (new - old, "second")):
        if names and old and new:
            yield f"Programs only in the {which}: {', '.join(map(title_of, sorted(names)))}."


def _findings(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """Yield the new findings and the resolved ones. Each level changes by the numbers that they name."""
    old, new = (
        by_key(
            ((finding.level, finding.code, finding.array, finding.axes, finding.program), finding)
            for finding in merged_by_logical_axis(snapshot.findings)
        )
        for snapshot in (before, after)
    )
    for own, other, word in ((new, old, "New"), (old, new, "Resolved")):
        rows = [finding for key, alike in own.items() for finding in alike[len(other.get(key, ())) :]]
        if rows:
            levels = Counter(finding.level for finding in rows)
            counts = and_text([counted(levels[name], name) for name in LEVELS if levels[name]])
            more = f", and {len(rows) - 1:,} more" if len(rows) > 1 else ""
            yield f"{word}: {counts}: {rows[0].message.removesuffix('.')}{more}."


def _without_effect(why: Causes, groups: Sequence[Group]) -> Iterator[str]:
    """Yield the causes because of which no array differs. A new model explains everything."""
    used = {cause for group in groups for cause in group.causes}
    if groups and why.moves:
        used.update(why.mesh)
    if used.intersection(why.of_kind("model")):
        return
    left = [cause for cause in why.every if cause not in used]
    gone = why.rules.without_axes(why.after.mesh) if used.intersection(why.mesh) else {}
    for cause in [cause for cause in left if cause in gone]:
        left.remove(cause)
        noun = "axis" if len(gone[cause]) == 1 else "axes"
        yield f"{_joined([cause.text])} with mesh {noun} {and_text(gone[cause])}."
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


def _joined(texts: Iterable[str]) -> str:
    text = " and ".join(_cut(list(texts)))
    return f"{text[:1].upper()}{text[1:]}"


def _cut(texts: Sequence[str]) -> Sequence[str]:
    """Return at most four texts; the last one counts the others."""
    if len(texts) <= _MOST_PARTS:
        return texts
    return [*texts[: _MOST_PARTS - 1], f"{len(texts) - _MOST_PARTS + 1} more"]
