"""Find the smallest change of a layout that fixes a finding: a size, one rule, or a few PartitionSpecs.

Nothing is traced or run. The arrays of the Snapshot are planned again with the changed layout, and the audit
decides whether the finding is gone.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from inspector.audit import mesh_axes, replicated, uneven_shards, unused_rules
from inspector.audit.checks import CHECKS, audit
from inspector.layout import Layout, changes
from inspector.layout.changes import Proposed
from inspector.layout.plan import INDIVISIBLE, plan
from inspector.model import Names, SizeValue
from inspector.records.snapshot import Array, Change, Finding, Mesh, Snapshot, Spec
from inspector.sharding import placement
from inspector.sharding.abstract import AbstractArray, AbstractState
from inspector.sharding.rules import linen, nnx
from inspector.sharding.totals import STATE_GROUPS, state_totals
from inspector.text.errors import InvalidInput

LogicalAxes = tuple[str | None, ...]

# The partition whose only dimension a scan puts before the dimensions of each parameter.
STACK = "layer"


@dataclass(frozen=True)
class NamedPartition:
    """A partition of a model with device axes. `stacked`: a scan has stacked the arrays of all blocks."""

    name: str
    stacked: bool


# None for an array without names, which is replicated.
Naming = LogicalAxes | NamedPartition | None


def naming_of(array: Array, layout: Layout) -> Naming:
    """Return what decides the array's spec in any layout of this model."""
    if layout.entry.has_rules:
        return array.logical_axes
    keys = tuple(array.path.split("/"))
    for end, name in layout.entry.partition_paths.items():
        more = len(array.shape or ()) - len(layout.entry.partitions[name])
        if keys[-len(end) :] == end and more in (0, 1):
            return NamedPartition(name, stacked=more == 1)
    return None


def axes_of(array: Array, layout: Layout) -> LogicalAxes:
    """Return the logical axis of each dimension, None for one without."""
    naming = naming_of(array, layout)
    if isinstance(naming, NamedPartition):
        stack = layout.entry.partitions[STACK] if naming.stacked else ()
        return (*stack, *layout.entry.partitions[naming.name])
    return naming or (None,) * len(array.shape or ())


def spec_of(naming: Naming, rank: int, layout: Layout) -> Spec:
    """Return the spec that the layout gives an array with `rank` dimensions.

    Raises:
      ValueError: if a logical axis occurs twice, which Linen does not support.
    """
    if naming is None:
        return (None,) * rank
    if isinstance(naming, NamedPartition):
        stack = layout.specs[STACK] if naming.stacked else ()
        return (*(stack or ()), *(layout.specs[naming.name] or ()))
    of_nnx = layout.entry.rules_semantics == "nnx"
    partition_spec = nnx.partition_spec if of_nnx else linen.partition_spec
    return partition_spec(naming, layout.rules)


_NOT_FIXABLE = {code for check in CHECKS if not check.fixable for code in check.codes} | {
    *uneven_shards.TOO_LARGE_CODES
}
_PLANNED = (*STATE_GROUPS, "batch", "output")
_DATA = ("batch", "output")
# Warnings about devices that compute the same.
_REPEATED_WORK = (mesh_axes.UNUSED, mesh_axes.BATCH)
# Changes of equally many specs: only the best are planned and audited.
_MOST_PLANNED = 24
_MOST_AXES_PER_DIMENSION = 3


@dataclass(frozen=True)
class Fix(Change):
    """A change of sizes, rules or PartitionSpecs that fixes a finding.

    saves: the bytes of train state per device that it saves; None if the current bytes are unknown.
    arrays: the number of arrays of the train state that need other bytes per device. A rule applies to all
      arrays with its logical axis, so they can be more than those of the finding.
    repeated_work: the findings about devices that compute the same because of the change.
    """

    saves: int | None = None
    arrays: int = 0
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
    for kind, label, changed in itertools.chain(_small(now, finding, layout), _ranked(now, finding, layout)):
        after = replanned(snapshot, changed)
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
        plain = changed.to_json()
        return Fix(kind, label, plain, saves=saves, arrays=_changed(now, after), repeated_work=repeated)
    return None


def _small(now: Snapshot, finding: Finding, layout: Layout) -> Iterator[Proposed]:
    """Yield changes that keep mesh and parameters: of sizes that axes do not divide, or of the optimizer."""
    if finding.code == INDIVISIBLE and (multiples := _multiples(now, layout)) is not None:
        yield from changes.raised(layout, multiples)
    if finding.code in (replicated.MOMENT, replicated.NOT_FOLLOWING):
        yield from changes.on_optimizer_axes(layout)


def _ranked(now: Snapshot, finding: Finding, layout: Layout) -> Iterator[Proposed]:
    """Yield the best changes of rules or specs that may fix the finding, before they are planned."""
    assert now.mesh is not None
    arrays = Counter(
        (naming_of(array, layout), array.shape, array.bytes, array.group in STATE_GROUPS)
        for array in now.arrays
        if array.shape is not None
    )
    proposed = (_rules if layout.entry.has_rules else _specs)(now, finding, layout)
    scored = [
        (score, number, change)
        for number, change in enumerate(proposed)
        if (score := _score(change[2], arrays, layout, now.mesh)) is not None
    ]
    scored.sort(key=lambda row: row[:2])
    for _, same_count in itertools.groupby(scored, key=lambda row: row[0][0]):
        yield from (change for *_, change in itertools.islice(same_count, _MOST_PLANNED))


def _choices(finding: Finding, layout: Layout) -> list[tuple[str, ...]]:
    """Return mesh axes for a dimension: one or more of the finding's axes, or of all."""
    sizes = dict(zip(layout.axis_names, layout.mesh_shape, strict=True))
    axes = [axis for axis in finding.axes or layout.axis_names if sizes.get(axis, 1) > 1]
    counts = range(1, min(len(axes), _MOST_AXES_PER_DIMENSION) + 1)
    return [choice for count in counts for choice in itertools.combinations(axes, count)]


def _rules(now: Snapshot, finding: Finding, layout: Layout) -> Iterator[Proposed]:
    """Yield changes of the rules for the finding's logical axes, its array's, or all parameters'."""
    names = finding.logical_axes
    if names is None and finding.code in (unused_rules.NEVER_USED, unused_rules.ABSENT_AXIS):
        if finding.rule is not None and finding.rule < len(layout.rules):
            yield from changes.other_name(layout, finding.rule)
        return
    if names is None:
        about = [array for array in now.arrays if array.path == finding.array]
        about = about or [array for array in now.arrays if array.group == "params"]
        names = tuple(name for array in about for name in array.logical_axes or () if name)
    yield from changes.other_rules(layout, names, _choices(finding, layout))


def _specs(now: Snapshot, finding: Finding, layout: Layout) -> Iterator[Proposed]:
    """Yield changes of specs that affect the finding's array, and pad no more activations.

    Activations with the same logical axis and the same mesh axes keep the same ones.
    """
    assert now.mesh is not None
    mesh, sizes, groups = now.mesh, dict[str | None, int](), dict[str, list[str]]()
    for array in now.arrays:
        if isinstance(naming := naming_of(array, layout), NamedPartition):
            sizes |= dict(zip(axes_of(array, layout), array.shape or (), strict=True))
            groups[array.path] = [*((STACK,) if naming.stacked else ()), naming.name]
        elif array.path == finding.array:
            groups[array.path] = []
    places = dict.fromkeys(place for of_array in groups.values() for place in of_array)
    state = (groups.get(array.path, ()) for array in now.arrays if array.group in STATE_GROUPS)
    parameters = dict.fromkeys(place for of_array in state for place in of_array)
    activations = [place for place in layout.entry.partitions if place not in parameters and place != STACK]

    def fits(place: str, layout: Layout) -> bool:
        # A size of 0 is unknown, and any number of devices divides it.
        shape = [sizes.get(name, 0) for name in layout.entry.partitions[place]]
        uneven = placement.indivisible(shape, layout.specs[place] or (), mesh)
        return place in layout.unconstrained or not any(uneven)

    padded = [place for place in activations if finding.level != "error" and not fits(place, layout)]
    together = [[spot for spot in spots if spot[0] in activations] for spots in changes.alike_spots(layout)]
    about = groups.get(finding.array or "")
    for proposed in changes.other_specs(
        layout, places, parameters, _choices(finding, layout), finding.level == "error"
    ):
        changed = proposed[2]
        if (
            (about is None or any(changed.specs[place] != layout.specs[place] for place in about))
            and all(len({changes.axes_at(changed, spot) for spot in spots}) < 2 for spots in together)
            and all(place in padded or fits(place, changed) for place in activations)
        ):
            yield proposed


def _multiples(now: Snapshot, layout: Layout) -> dict[str, int] | None:
    """Return what each size must be a multiple of. None if a dimension has not the length of a size."""
    assert now.mesh is not None
    multiples: dict[str, int] = {}
    for array in now.arrays:
        for uneven in placement.indivisible(array.shape or (), array.spec or (), now.mesh):
            name = _size_name(axes_of(array, layout)[uneven.dimension], layout)
            if name is None or layout.sizes[name] != uneven.size:
                return None
            multiples[name] = math.lcm(multiples.get(name, 1), uneven.ways)
    return multiples


def _resized(array: Array, before: Mapping[str, SizeValue], layout: Layout) -> tuple[int, ...]:
    """Return the shape of an array after a change of the sizes from `before` to those of the layout."""
    names = [_size_name(axis, layout) for axis in axes_of(array, layout)]
    return tuple(
        layout.sizes[name] if name is not None and before.get(name) == length else length  # type: ignore[misc]
        for name, length in zip(names, array.shape or (), strict=True)
    )


def _size_name(axis: str | None, layout: Layout) -> str | None:
    """Return the size that is the extent of a logical axis. In a user's model, it has the same name."""
    name = layout.entry.extents.get(axis or "", axis)
    return name if name is not None and isinstance(layout.sizes.get(name), int) else None


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
        shape = array.shape if before == layout.sizes else _resized(array, before, layout)
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


def _score(changed: Layout, arrays: Counter[_Key], layout: Layout, mesh: Mesh) -> tuple[int, ...] | None:
    """Return a rank, lower is better: changed specs, state bytes per device, then the size of the change.

    Return None if JAX would reject the layout.
    """
    state = touched = 0
    for (naming, shape, size, is_state), count in arrays.items():
        spec = spec_of(naming, len(shape), changed)
        touched += count * (spec != spec_of(naming, len(shape), layout))
        if nnx.refusals(spec, mesh) or any(placement.indivisible(shape, spec, mesh)):
            return None
        if is_state:
            state += count * (size or 0) * placement.replicas(spec, mesh) // mesh.size
    specs = [(layout.specs[place] or (), spec or ()) for place, spec in changed.specs.items()]
    own = [axes or () for old, new in specs for was, axes in zip(old, new, strict=True) if was != axes]
    axes = sum(map(len, own)) + sum(len(axes) for _, axes in changed.rules)
    # A rule more changes less than another rule in its place.
    return sum(old != new for old, new in specs), state, len(own) - len(changed.rules), axes, touched
