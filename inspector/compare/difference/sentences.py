"""The difference of two Snapshots in sentences that name causes, the largest difference first."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from inspector.compare import amounts, origin
from inspector.compare.amounts import TITLES
from inspector.compare.caveats import INSIDE_STEP, knows_inside_step
from inspector.compare.compared import compared as compared_snapshots
from inspector.compare.difference.array_differences import (
    ONLY_AFTER,
    ONLY_BEFORE,
    ArrayDifference,
    arrays,
    title,
)
from inspector.compare.difference.causes import Cause, Causes, causes
from inspector.compare.program_questions import TIME, program_rows
from inspector.compare.question import MINUS, Question, QuestionRow, change_text
from inspector.compare.questions import ANSWERS, LEVELS, state_rows
from inspector.compare.splits import Axes, axes_of, axes_text, elements_per_device
from inspector.layout.plan import merged_by_logical_axis
from inspector.machines.hardware import Chip
from inspector.records.assessment import FLOPS
from inspector.records.snapshot import Array, Mesh, Snapshot
from inspector.records.statistics import by_key, sum_known
from inspector.sharding.totals import STATE_GROUPS
from inspector.text.formatting import and_text, bytes_text, counted, elements_text, shape_text
from inspector.text.program_names import title as title_of

# From these mesh axes to those.
Change = tuple[Axes, Axes]
_Meshes = tuple[Mesh | None, Mesh | None]


@dataclass(frozen=True)
class SizeChange:
    """The bytes or elements on one device, before and after. None if unknown."""

    unit: str
    before: int | None
    after: int | None

    @property
    def gained(self) -> int | None:
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def text(self) -> str:
        """The change: `24.0 MiB → 48.0 MiB per device (+100%)`."""
        in_unit = bytes_text if self.unit == "bytes" else elements_text
        was, now, gained = in_unit(self.before), in_unit(self.after), self.gained
        if not gained:
            return f"{was} → {now} per device" if was != now else f"{now} per device, unchanged"
        sign = "+" if gained > 0 else MINUS
        amount = f"{was} → {now}" if was != now else f"{sign}{in_unit(abs(gained))} to {now}"
        change = change_text(self.before or 0, self.after or 0)
        return f"{amount} per device{f' ({change})' if change else ''}"


@dataclass(frozen=True)
class DifferenceGroup:
    """Arrays with the same causes or, if no cause is known, with the same changes.

    state: the amount of train state in this group. all: the amount of all its arrays.
    partial: the number of arrays with only some of the changes.
    """

    causes: tuple[Cause, ...]
    differences: tuple[ArrayDifference, ...]
    state: SizeChange
    all: SizeChange
    partial: int = 0

    @property
    def weight(self) -> tuple[int, int, int, int]:
        """The rank of the group: by gained bytes of train state, then of all arrays, then by size."""
        held = max(self.all.before or 0, self.all.after or 0)
        return abs(self.state.gained or 0), abs(self.all.gained or 0), held, len(self.differences)


# The causes of a group, and its changes if no cause is known.
_Key = tuple[tuple[Cause, ...], frozenset[Any]]


def groups(differences: Sequence[ArrayDifference], causes: Causes) -> tuple[DifferenceGroup, ...]:
    """Return the groups of all arrays that differ, the largest first."""
    changed = {difference.path: difference for difference in differences if difference.changed}
    known = {path: causes.of(difference) for path, difference in changed.items()}
    members: dict[_Key, list[ArrayDifference]] = {}
    for path, difference in changed.items():
        found = known[path]
        if not found and path.startswith("gradient/"):  # gradients are placed as their parameters
            found = known.get(f"params/{path.removeprefix('gradient/')}", ())
        members.setdefault((found, frozenset() if found else _axes_changes(difference)), []).append(
            difference
        )
    partial: Counter[_Key] = Counter()
    for key in sorted(members, key=lambda key: len(members[key])):
        if host := _host(key, members):
            moved = members.pop(key)
            partial[host] += partial.pop(key, 0) + len(moved)
            members[host] += moved
    position = {path: place for place, path in enumerate(changed)}
    meshes = causes.before.mesh, causes.after.mesh
    found_groups = []
    for key, every in members.items():
        every.sort(key=lambda difference: position[difference.path])
        amounts = _amount(list(filter(in_state, every)), meshes), _amount(every, meshes)
        found_groups.append(DifferenceGroup(key[0], tuple(every), *amounts, partial[key]))
    return tuple(sorted(found_groups, key=lambda group: group.weight, reverse=True))


def in_state(difference: ArrayDifference) -> bool:
    """Return whether the array is part of the train state."""
    return difference.either.group in STATE_GROUPS


def axis_changes(difference: ArrayDifference, meshes: _Meshes = (None, None)) -> dict[Change, str]:
    """Return the changed mesh axes per dimension, with the dimension's logical axis or `dimension 0`.

    With `meshes`, also list the axes of size 1 that are larger in the other mesh.
    """
    names = difference.either.logical_axes or ()
    larger = {axis.name for mesh in meshes if mesh for axis in mesh.axes if axis.size > 1}
    sides = (
        (difference.before, difference.split_before or (), meshes[0]),
        (difference.after, difference.split_after or (), meshes[1]),
    )
    changes = {}
    for dimension in difference.split_dimensions():
        was, now = (
            (array and mesh and array.mesh is None and _named(array, dimension, mesh, larger))
            or (split[dimension] if dimension < len(split) else ())
            for array, split, mesh in sides
        )
        name = names[dimension] if dimension < len(names) else None
        changes[was, now] = name or f"dimension {dimension}"
    return changes


def _named(array: Array, dimension: int, mesh: Mesh, names: set[str]) -> Axes:
    """Return the axes with these names that the spec gives a dimension, whatever their size."""
    axes = axes_of(array, dimension)
    return tuple((name, mesh.sizes[name]) for name in axes if name in names & mesh.sizes.keys())


def _axes_changes(difference: ArrayDifference) -> frozenset[Any]:
    """Return the changes of an array as a key for grouping."""
    marks: set[Any] = {*difference.changed} & {
        ONLY_BEFORE,
        ONLY_AFTER,
        "shape",
        "group",
        "logical axes",
    }
    if "dtype" in difference.changed and difference.before and difference.after:
        marks.add(("dtype", difference.before.dtype, difference.after.dtype))
    marks.update(axis_changes(difference))
    return frozenset(marks or difference.changed)


def _host(key: _Key, members: dict[_Key, list[ArrayDifference]]) -> _Key | None:
    """Return the largest group whose causes or changes include all of this group's, and more.

    Train state joins another group only if no cause is known.
    """
    causes, changes = key
    if causes:
        movable = not any(map(in_state, members[key]))
        larger = [other for other in members if movable and set(causes) < set(other[0])]
    else:
        least = len(members[key])
        wider = [other for other in members if changes and changes < other[1]]
        larger = [other for other in wider if len(members[other]) >= least]
    return max(larger, key=lambda other: len(members[other]), default=None)


def _amount(differences: Sequence[ArrayDifference], meshes: _Meshes) -> SizeChange:
    """Return the bytes, or the elements if only these are known."""
    sides = [
        [(array, mesh) for difference in differences if (array := getattr(difference, side))]
        for side, mesh in zip(("before", "after"), meshes, strict=True)
    ]
    held = [sum_known(array.bytes_per_device for array, _ in side) for side in sides]
    if None in held:
        elements = [sum_known(elements_per_device(*each) for each in side) for side in sides]
        if None not in elements:
            return SizeChange("elements", *elements)
    return SizeChange("bytes", *held)


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


def _moved(group: DifferenceGroup) -> float:
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


def _group(group: DifferenceGroup, why: Causes) -> str:
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


def _held(group: DifferenceGroup) -> str:
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


def _parts(row: QuestionRow) -> list[str]:
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


def _without_effect(why: Causes, groups: Sequence[DifferenceGroup]) -> Iterator[str]:
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
