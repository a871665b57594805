"""Find the smallest change of a layout that fixes a finding: a size, one rule, or a few PartitionSpecs.

Nothing is traced or run. The arrays of the Snapshot are planned again with the changed layout, and the audit
decides whether the finding is gone.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from inspector.checks.audit import (
    mesh_axes,
    optimizer_state,
    replicated,
    rule_fixes,
    size_fixes,
    spec_fixes,
    too_large,
)
from inspector.checks.audit.array_names import Naming, naming_of, spec_of
from inspector.checks.audit.checks import CHECKS, audit
from inspector.checks.audit.rule_fixes import Candidate
from inspector.core import sharding
from inspector.core.abstract import AbstractArray, AbstractState
from inspector.core.errors import InvalidInput
from inspector.core.rules import nnx
from inspector.core.snapshot import Array, Finding, Mesh, Snapshot, Spec
from inspector.core.totals import STATE_GROUPS, state_totals
from inspector.layout import Layout
from inspector.layout.changes import on_optimizer_axes
from inspector.layout.plan import plan
from inspector.model import Names

_NOT_FIXABLE = {code for check in CHECKS if not check.fixable for code in check.codes} | {*too_large.CODES}
_PLANNED = (*STATE_GROUPS, "batch", "output")
_DATA = ("batch", "output")
# Warnings about devices that compute the same.
_REPEATED_WORK = (mesh_axes.UNUSED, mesh_axes.BATCH)
# Candidates that change equally many specs: only the best are planned and audited.
_MAX_CANDIDATES = 24


@dataclass(frozen=True)
class Fix:
    """A change of sizes, rules or PartitionSpecs that fixes a finding.

    layout: the changed layout. words: the change as an instruction, without a full stop.
    saves: the bytes of train state per device that it saves; None if the current bytes are unknown.
    arrays: the number of arrays of the train state that need other bytes per device. A rule applies to all
      arrays with its logical axis, so they can be more than those of the finding.
    repeated_work: the findings about devices that compute the same because of the change.
    """

    layout: Layout
    words: str
    saves: int | None
    arrays: int
    repeated_work: tuple[Finding, ...] = ()


def may_fix(finding: Finding, layout: Layout) -> bool:
    """Return whether `smallest_change` can search a fix of the finding. Searching may still find none."""
    entry = layout.entry
    editable = (entry.has_rules or bool(entry.partitions)) and entry.state_specs is None
    return editable and finding.code not in _NOT_FIXABLE


def smallest_change(snapshot: Snapshot, finding: Finding, layout: Layout) -> Fix | None:
    """Return the change of one rule, or of the fewest specs, that saves the most.

    On a tie, return the smallest change. Sizes that mesh axes do not divide are raised first, which keeps all
    devices at work. Return None if no change fixes the finding. A change may not split the batch or output
    less, add an error, or, unless it fixes an error, add another kind of warning.
    """
    if not may_fix(finding, layout):
        return None
    now = replanned(snapshot, layout)
    if now is None or now.mesh is None:
        return None
    current = (*now.findings, *audit(now))
    if not any(_same(other, finding) for other in current):
        return None  # the layout and the shapes alone do not explain the finding
    kinds = _kinds(current)
    before = state_totals(now).per_device
    small = (*size_fixes.candidates(now, finding, layout), *_on_optimizer_axes(finding, layout))
    for candidate in itertools.chain(small, _ranked(now, now.mesh, finding, layout)):
        after = replanned(snapshot, candidate.layout)
        if after is None or not _is_better(now, after, finding):
            continue
        left = audit(after)
        # To fix an error, a new warning is acceptable.
        new_warning = finding.level != "error" and not _kinds(left) <= kinds
        if new_warning or any(_same(other, finding) for other in left):
            continue
        then = state_totals(after).per_device
        saves = None if before is None or then is None else before - then
        repeated = tuple(
            other
            for other in left
            if other.level == "warning"
            and other.code in _REPEATED_WORK
            and not any(_same(other, known) for known in current)
        )
        return Fix(candidate.layout, candidate.words, saves, _changed(now, after), repeated)
    return None


def _on_optimizer_axes(finding: Finding, layout: Layout) -> Iterator[Candidate]:
    """Yield the optimizer state over one more mesh axis, which moves no parameters, if it is about it."""
    if finding.code in (replicated.MOMENT, optimizer_state.NOT_FOLLOWING):
        for _, label, changed in on_optimizer_axes(layout):
            yield Candidate(changed, f"{label[0].lower()}{label[1:]}", 0, ())


def _ranked(now: Snapshot, mesh: Mesh, finding: Finding, layout: Layout) -> Iterator[Candidate]:
    """Yield the best changes of rules or specs that may fix the finding, before they are planned."""
    candidates = (rule_fixes if layout.entry.has_rules else spec_fixes).candidates
    arrays = Counter(
        (naming_of(array, layout), array.shape, array.bytes, array.group in STATE_GROUPS)
        for array in now.arrays
        if array.shape is not None
    )
    scored = [
        (score, candidate)
        for candidate in candidates(now, finding, layout)
        if (score := _score(candidate, arrays, layout, mesh)) is not None
    ]
    scored.sort(key=lambda pair: pair[0])
    yield from _best(candidate for _, candidate in scored)


def replanned(snapshot: Snapshot, layout: Layout) -> Snapshot | None:
    """Return the plan of a layout for the arrays of a Snapshot of the same model.

    Dimensions follow the sizes that differ from those of the Snapshot's layout. Return None if a shape, the
    bytes, or what decides the spec of a sharded array is unknown, or if JAX would reject an array.
    """
    arrays = []
    before = _sizes(snapshot) or layout.sizes
    for array in snapshot.arrays:
        if array.group not in _PLANNED:
            continue
        if array.shape is None or array.bytes is None:
            return None
        elements = math.prod(array.shape)
        if elements and array.bytes % elements:
            return None
        naming = naming_of(array, layout)
        if naming is None and not layout.entry.has_rules and any(array.spec or ()):
            return None
        itemsize = array.bytes // elements if elements else 0
        dimensions = _names(naming, len(array.shape), layout)
        shape = array.shape if before == layout.sizes else size_fixes.resized(array, before, layout)
        facts = (array.path, array.group, shape, array.dtype, itemsize, dimensions)
        arrays.append(AbstractArray(*facts))
    names: Names = "logical" if layout.entry.has_rules else "mesh"
    state = AbstractState(names, tuple(arrays), dict(snapshot.source.versions))
    try:
        return plan(layout, state)
    except InvalidInput:  # JAX rejects an array, as nnx reads the rules
        return None


def _names(naming: Naming, rank: int, layout: Layout) -> Spec | None:
    """Return the names of an array's dimensions, as the model gives them."""
    if naming is None:
        return None
    if isinstance(naming, tuple):
        return tuple((name,) if name else None for name in naming)
    return spec_of(naming, rank, layout)


def _best(ranked: Iterable[Candidate]) -> Iterable[Candidate]:
    for _, same_count in itertools.groupby(ranked, key=lambda candidate: candidate.count):
        yield from itertools.islice(same_count, _MAX_CANDIDATES)


def _kinds(findings: Iterable[Finding]) -> set[str]:
    return {finding.code for finding in findings if finding.level != "note"}


def _same(finding: Finding, other: Finding) -> bool:
    """Return whether two findings are about the same thing, even if about fewer arrays."""
    if finding.code != other.code:
        return False
    if finding.array is None or other.array is None:
        # A change of the list also changes the number of a rule, but not its text.
        return (finding.axes, finding.rule_text) == (other.axes, other.rule_text)
    return finding.array == other.array or bool(set(finding.arrays or ()) & set(other.arrays or ()))


def _is_better(now: Snapshot, after: Snapshot, finding: Finding) -> bool:
    """Return whether a plan has no error, keeps the batch split, and needs no more train state.

    The train state of a model with larger sizes may be larger.
    """
    if any(finding.level == "error" for finding in after.findings):
        return False
    sizes = {
        array.path: (array.bytes_per_device, array.bytes) for array in now.arrays if array.group in _DATA
    }
    for array in after.arrays:
        was, whole = sizes.get(array.path, (None, None))
        if was is not None and (
            array.bytes_per_device is None or array.bytes_per_device * (whole or 1) > was * (array.bytes or 1)
        ):
            return False
        if _loses_rows(array) and array.spec != now.array(array.path).spec:
            return False
    before, then = state_totals(now).per_device, state_totals(after).per_device
    if before is None or then is None or _sizes(now) != _sizes(after):
        return then is not None
    of_the_batch = finding.array in sizes
    return then < before or (then == before and (not finding.bytes or of_the_batch))


def _sizes(snapshot: Snapshot) -> Any:
    return (snapshot.layout or {}).get("sizes")


def _changed(now: Snapshot, after: Snapshot) -> int:
    """Return the number of arrays of the train state whose bytes per device differ."""
    sizes = {array.path: array.bytes_per_device for array in now.arrays}
    return sum(
        array.bytes_per_device != sizes[array.path] for array in after.arrays if array.group in STATE_GROUPS
    )


def _loses_rows(array: Array) -> bool:
    """Return whether a device holds all rows of the batch, but only a part of each."""
    rows, *columns = array.spec or (None,)
    return array.group == "batch" and not rows and any(columns)


# What decides the bytes per device of an array, and whether it is train state.
_Key = tuple[Naming, tuple[int, ...], int | None, bool]


def _score(candidate: Candidate, arrays: Counter[_Key], layout: Layout, mesh: Mesh) -> tuple[int, ...] | None:
    """Return a rank, lower is better: changed rules or specs, state bytes per device, size of the change.

    Return None if JAX would reject the layout.
    """
    state = touched = 0
    for (naming, shape, size, is_state), count in arrays.items():
        spec = spec_of(naming, len(shape), candidate.layout)
        if spec != spec_of(naming, len(shape), layout):
            touched += count
        if nnx.refusals(spec, mesh) or any(sharding.indivisible(shape, spec, mesh)):
            return None
        if is_state:
            state += count * (size or 0) * sharding.replicas(spec, mesh) // mesh.size
    return candidate.count, state, *candidate.size, touched, candidate.order
