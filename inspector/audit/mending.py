"""The smallest change of a layout's rules that mends a finding: one rule added, changed, moved or deleted.

Nothing is traced or run. Every array that a Snapshot tells of is placed anew by the changed rules, as a
plan would, and the audit itself says whether the finding is gone.
"""

from __future__ import annotations

import difflib
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from inspector import sharding
from inspector.abstract import AbstractArray, AbstractState
from inspector.audit import readings, rule_use, traffic
from inspector.audit.checks import audit
from inspector.errors import Refused
from inspector.layout import Layout
from inspector.plan import plan
from inspector.reasons import rule_words
from inspector.rules import Rule, linen, nnx
from inspector.snapshot import Array, Finding, Mesh, Snapshot
from inspector.totals import STATE_GROUPS, state_totals

# What no single rule mends.
_BEYOND_RULES = (readings.CODE, traffic.CODE)
_LAID_OUT = (*STATE_GROUPS, "batch", "output")
_DATA = ("batch", "output")
_KINDS = ("add", "change", "move", "delete")  # of two that save as much, the earlier
_MOST_AXES_A_RULE = 3
# The best so many candidates are planned and audited in full; the first that holds is the remedy.
_MOST_TRIED = 24


@dataclass(frozen=True)
class Change:
    """One change of the rules that mends a finding.

    layout: the layout with it. words: the change in a sentence. saves: bytes of train state that a device
    then has less, None where it is not known what it has now.
    """

    layout: Layout
    words: str
    saves: int | None


@dataclass(frozen=True)
class _Candidate:
    kind: str
    rules: tuple[Rule, ...]
    words: str
    axes: int
    position: int


def remedy(found: Snapshot, finding: Finding, layout: Layout) -> Layout | None:
    """The layout with the smallest change of rules that mends the finding; None if none does."""
    change = smallest_change(found, finding, layout)
    return None if change is None else change.layout


def smallest_change(found: Snapshot, finding: Finding, layout: Layout) -> Change | None:
    """The change of one rule that saves the most and adds no error; of equal ones the smallest.

    None where there is none, where a model names mesh axes itself, or where no rule decides the matter.
    The finding must be gone, no batch or output may be split less, and no warning of another kind come,
    unless it is an error that is mended.
    """
    if not layout.entry.has_rules or finding.code in _BEYOND_RULES:
        return None
    now = replanned(found, layout)
    if now is None or now.mesh is None:
        return None
    told = (*now.findings, *audit(now))
    if not any(_same(one, finding) for one in told):
        return None  # whatever it comes from, it is not from rules and shapes alone
    kinds = _kinds(told)
    arrays = Counter(_keys(now.arrays))
    scored = []
    for candidate in _distinct(_candidates(now, finding, layout)):
        score = _score(candidate, arrays, layout, now.mesh)
        if score is not None:
            scored.append((score, candidate))
    scored.sort(key=lambda one: one[0])
    before = state_totals(now).per_device
    for _, candidate in scored[:_MOST_TRIED]:
        changed = replace(layout, rules=candidate.rules)
        after = replanned(found, changed)
        if after is None or not _is_better(now, after, finding):
            continue
        still = audit(after)
        if any(_same(one, finding) for one in still):
            continue
        # What JAX refuses may have to be mended at the price of what is merely wasteful.
        if finding.level != "error" and not _kinds(still) <= kinds:
            continue
        held = state_totals(after).per_device
        saves = None if before is None or held is None else before - held
        return Change(changed, candidate.words, saves)
    return None


def replanned(found: Snapshot, layout: Layout) -> Snapshot | None:
    """The plan of a layout for the arrays that a Snapshot of the same model and sizes has.

    None where the shape or the bytes of an array are not known, so that they could not be counted, or where
    an array cannot be made.
    """
    arrays = []
    for array in found.arrays:
        if array.group not in _LAID_OUT:
            continue
        if array.shape is None or array.bytes is None:
            return None
        elements = math.prod(array.shape)
        if elements and array.bytes % elements:
            return None
        names = array.logical_axes
        arrays.append(
            AbstractArray(
                array.path,
                array.group,
                array.shape,
                array.dtype,
                array.bytes // elements if elements else 0,
                None if names is None else tuple((name,) if name else None for name in names),
            )
        )
    state = AbstractState("logical", tuple(arrays), dict(found.source.versions))
    try:
        return plan(layout, state)
    except Refused:  # as nnx reads the rules, JAX would refuse an array
        return None


def _kinds(findings: Iterable[Finding]) -> set[str]:
    return {one.code for one in findings if one.level != "note"}


def _same(one: Finding, other: Finding) -> bool:
    """Whether two findings are about the same thing, maybe in fewer layers or bytes."""
    if one.code != other.code:
        return False
    if one.array is None or other.array is None:
        # The number of a rule changes with the list, its text does not.
        return all(one.extra.get(key) == other.extra.get(key) for key in ("axes", "rule_text"))
    mine, theirs = one.extra.get("arrays"), other.extra.get("arrays")
    return one.array == other.array or bool(mine and theirs and set(mine) & set(theirs))


def _is_better(now: Snapshot, after: Snapshot, finding: Finding) -> bool:
    """No new error, no batch or output split less, and less state a device where that is the point."""
    if any(one.level == "error" for one in after.findings):
        return False
    held = {array.path: array.bytes_per_device for array in now.arrays if array.group in _DATA}
    for array in after.arrays:
        was = held.get(array.path)
        if was is not None and (array.bytes_per_device is None or array.bytes_per_device > was):
            return False
        if _loses_rows(array) and array.spec != now.array(array.path).spec:
            return False
    before, then = state_totals(now).per_device, state_totals(after).per_device
    if before is None or then is None:
        return then is not None
    of_the_batch = finding.array in held
    return then < before or (then == before and (not finding.bytes or of_the_batch))


def _loses_rows(array: Array) -> bool:
    """Whether a device has all rows of the batch, but not all of each row."""
    return array.group == "batch" and bool(array.spec) and not array.spec[0] and any(array.spec)


_Key = tuple[tuple[str | None, ...] | None, tuple[int, ...], int | None, bool]


def _keys(arrays: tuple[Array, ...]) -> list[_Key]:
    """What decides how many bytes of an array a device holds, and whether it is state."""
    return [
        (array.logical_axes, array.shape, array.bytes, array.group in STATE_GROUPS)
        for array in arrays
    ]


def _score(
    candidate: _Candidate, arrays: Counter[_Key], layout: Layout, mesh: Mesh
) -> tuple[int, ...] | None:
    """To be made small: state bytes a device, then how large the change is. None if JAX would refuse it."""
    partition_spec = linen.partition_spec
    if layout.entry.rules_semantics == "nnx":
        partition_spec = nnx.partition_spec
    held = touched = 0
    for (names, shape, size, is_state), count in arrays.items():
        spec = (None,) * len(shape) if names is None else partition_spec(names, candidate.rules)
        if names is not None and spec != partition_spec(names, layout.rules):
            touched += count
        if nnx.refusals(spec, mesh) or any(sharding.indivisible(shape, spec, mesh)):
            return None
        if is_state:
            held += count * (size or 0) * sharding.replicas(spec, mesh) // mesh.size
    return held, _KINDS.index(candidate.kind), candidate.axes, touched, -candidate.position


def _candidates(now: Snapshot, finding: Finding, layout: Layout) -> Iterator[_Candidate]:
    rules, names, number = layout.rules, _names(now, finding), finding.extra.get("rule")
    choices = list(_axis_choices(finding, layout))
    for name in names:
        mine = [at for at, (other, _) in enumerate(rules) if other == name]
        for axes in choices:
            for at in sorted({len(rules), 0, *mine[:1]}):
                yield _added(rules, (name, axes), at)
            for at in mine:
                for wanted in (axes, (*rules[at][1], *axes)):
                    if len(set(wanted)) == len(wanted) and wanted != rules[at][1]:
                        yield _changed(rules, at, (name, wanted))
        for at in mine:
            for to in range(len(rules)):
                if to != at:
                    yield _moved(rules, at, to)
            yield _deleted(rules, at)
    if not names and isinstance(number, int) and 0 <= number < len(rules):
        near = difflib.get_close_matches(rules[number][0], list(layout.entry.logical_axes), n=1)
        if near:
            yield _changed(rules, number, (near[0], rules[number][1]))
        yield _deleted(rules, number)


def _names(now: Snapshot, finding: Finding) -> list[str]:
    """The logical axes whose rules may mend it: those it names, or of its array, else of all parameters."""
    if isinstance(given := finding.extra.get("logical_axes"), list):
        return [name for name in given if isinstance(name, str)]
    if finding.code in (rule_use.NEVER_USED, rule_use.ABSENT_AXIS):
        return []
    about = [array for array in now.arrays if array.path == finding.array]
    about = about or [array for array in now.arrays if array.group == "params"]
    return list(dict.fromkeys(name for array in about for name in array.logical_axes or () if name))


def _axis_choices(finding: Finding, layout: Layout) -> Iterator[tuple[str, ...]]:
    sizes = dict(zip(layout.axis_names, layout.mesh_shape, strict=True))
    given = finding.extra.get("axes")
    axes = [axis for axis in given or layout.axis_names if sizes.get(axis, 1) > 1]
    for count in range(1, min(len(axes), _MOST_AXES_A_RULE) + 1):
        yield from itertools.combinations(axes, count)


def _distinct(candidates: Iterator[_Candidate]) -> Iterator[_Candidate]:
    seen = set()
    for candidate in candidates:
        key = (candidate.kind, candidate.rules)
        if key not in seen:
            seen.add(key)
            yield candidate


def _added(rules: tuple[Rule, ...], rule: Rule, at: int) -> _Candidate:
    place = "at the end" if at == len(rules) else f"before {rule_words(at, rules)}"
    words = f"Add the rule {_text(rule)} {place}."
    return _Candidate("add", (*rules[:at], rule, *rules[at:]), words, len(rule[1]), at)


def _changed(rules: tuple[Rule, ...], at: int, rule: Rule) -> _Candidate:
    words = f"Change {rule_words(at, rules)}, to {_text(rule)}."
    return _Candidate("change", (*rules[:at], rule, *rules[at + 1 :]), words, len(rule[1]), at)


def _moved(rules: tuple[Rule, ...], at: int, to: int) -> _Candidate:
    rest = [*rules[:at], *rules[at + 1 :]]
    rest.insert(to, rules[at])
    place = f"{'before' if to < at else 'after'} {rule_words(to, rules)}"
    return _Candidate("move", tuple(rest), f"Move {rule_words(at, rules)}, {place}.", 0, to)


def _deleted(rules: tuple[Rule, ...], at: int) -> _Candidate:
    rest = (*rules[:at], *rules[at + 1 :])
    return _Candidate("delete", rest, f"Delete {rule_words(at, rules)}.", 0, at)


def _text(rule: Rule) -> str:
    return f"{rule[0]} → {' + '.join(rule[1]) or 'none'}"
