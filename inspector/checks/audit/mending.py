"""The smallest change of a layout that mends a finding: of one rule, or of a few PartitionSpecs.

Nothing is traced or run. Every array that a Snapshot tells of is placed anew by the changed layout, as a
plan would, and the audit itself says whether the finding is gone.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from inspector.checks.audit import readings, rule_changes, spec_changes, traffic
from inspector.checks.audit.candidate import Candidate
from inspector.checks.audit.checks import audit
from inspector.checks.audit.placed import Subject, spec_of, subject_of
from inspector.core import sharding
from inspector.core.abstract import AbstractArray, AbstractState
from inspector.core.errors import InvalidInput
from inspector.core.rules import nnx
from inspector.core.snapshot import (
    Array,
    Finding,
    Mesh,
    Snapshot,
    Spec,
)
from inspector.core.totals import STATE_GROUPS, state_totals
from inspector.layout import Layout
from inspector.layout.plan import plan

# What no rule and no spec mends.
_BEYOND_LAYOUTS = (readings.CODE, traffic.CODE)
_LAID_OUT = (*STATE_GROUPS, "batch", "output")
_DATA = ("batch", "output")
# Of those that change as many specs, the best so many are planned and audited; the first that holds it is.
_MOST_TRIED = 24


@dataclass(frozen=True)
class Change:
    """A change of rules or PartitionSpecs that mends a finding.

    layout: the layout with it. words: the change in a sentence. saves: bytes of train state that a device
    then has less, None where it is not known what it has now.
    """

    layout: Layout
    words: str
    saves: int | None


def remedy(found: Snapshot, finding: Finding, layout: Layout) -> Layout | None:
    """The layout with the smallest change that mends the finding; None if none does."""
    change = smallest_change(found, finding, layout)
    return None if change is None else change.layout


def smallest_change(found: Snapshot, finding: Finding, layout: Layout) -> Change | None:
    """The change of one rule, or of as few specs as will do, that saves the most and adds no error.

    Of equal ones the smallest. None where there is none, where the layout has neither rules nor specs, or
    where neither decides the matter. The finding must be gone, no batch or output may be split less, and no
    warning of another kind come, unless it is an error that is mended.
    """
    entry = layout.entry
    if not (entry.has_rules or entry.partitions) or finding.code in _BEYOND_LAYOUTS:
        return None
    now = replanned(found, layout)
    if now is None or now.mesh is None:
        return None
    told = (*now.findings, *audit(now))
    if not any(_same(one, finding) for one in told):
        return None  # whatever it comes from, it is not from the layout and shapes alone
    kinds = _kinds(told)
    of_layout = (rule_changes if entry.has_rules else spec_changes).candidates
    arrays = Counter(_keys(now.arrays, layout))
    scored = []
    for candidate in of_layout(now, finding, layout):
        score = _score(candidate, arrays, layout, now.mesh)
        if score is not None:
            scored.append((score, candidate))
    scored.sort(key=lambda one: one[0])
    before = state_totals(now).per_device
    for candidate in _tried(candidate for _, candidate in scored):
        after = replanned(found, candidate.layout)
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
        return Change(candidate.layout, candidate.words, saves)
    return None


def replanned(found: Snapshot, layout: Layout) -> Snapshot | None:
    """The plan of a layout for the arrays that a Snapshot of the same model and sizes has.

    None where the shape or the bytes of an array are not known, so that they could not be counted, where
    an array cannot be made, or where it is not known what would decide the spec of one that is split.
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
        subject = subject_of(array, layout)
        if subject is None and not layout.entry.has_rules and any(array.spec or ()):
            return None
        arrays.append(
            AbstractArray(
                array.path,
                array.group,
                array.shape,
                array.dtype,
                array.bytes // elements if elements else 0,
                _names(subject, len(array.shape), layout),
            )
        )
    names = "logical" if layout.entry.has_rules else "mesh"
    state = AbstractState(names, tuple(arrays), dict(found.source.versions))
    try:
        return plan(layout, state)
    except InvalidInput:  # as nnx reads the rules, JAX would refuse an array
        return None


def _names(subject: Subject, rank: int, layout: Layout) -> Spec | None:
    """The names of an array's dimensions, as the model would give them: logical axes, or mesh axes."""
    if subject is None:
        return None
    if layout.entry.has_rules:
        return tuple((name,) if name else None for name in subject)
    return spec_of(subject, rank, layout)


def _tried(ranked: Iterable[Candidate]) -> Iterable[Candidate]:
    for _, alike in itertools.groupby(ranked, key=lambda one: one.count):
        yield from itertools.islice(alike, _MOST_TRIED)


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


_Key = tuple[Subject, tuple[int, ...], int | None, bool]


def _keys(arrays: tuple[Array, ...], layout: Layout) -> list[_Key]:
    """What decides how many bytes of an array a device holds, and whether it is state."""
    return [
        (subject_of(array, layout), array.shape, array.bytes, array.group in STATE_GROUPS)
        for array in arrays
    ]


def _score(
    candidate: Candidate, arrays: Counter[_Key], layout: Layout, mesh: Mesh
) -> tuple[int, ...] | None:
    """To be made small: how many rules or specs differ, state bytes a device, and how large the change is.

    None if JAX would refuse it.
    """
    held = touched = 0
    for (subject, shape, size, is_state), count in arrays.items():
        spec = spec_of(subject, len(shape), candidate.layout)
        if spec != spec_of(subject, len(shape), layout):
            touched += count
        if nnx.refusals(spec, mesh) or any(sharding.indivisible(shape, spec, mesh)):
            return None
        if is_state:
            held += count * (size or 0) * sharding.replicas(spec, mesh) // mesh.size
    return candidate.count, held, *candidate.size, touched, candidate.order
