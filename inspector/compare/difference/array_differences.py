"""Two Snapshots compared array by array."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from inspector.compare.splits import Split, parts, same_placement, split_of, trimmed
from inspector.records.snapshot import Array, Mesh, Snapshot, Spec
from inspector.sharding.folding import fold
from inspector.sharding.sharding_text import spec_text
from inspector.sharding.totals import STATE_GROUPS
from inspector.text.formatting import logical_text

EXPLICIT = "explicit shards"


@dataclass(frozen=True)
class SpecDifference:
    """Arrays that have the same spec in each Snapshot.

    title: their paths in short, `params/layer_{0…3}/kernel and 8 more`.
    specs: one per Snapshot, without axes of size 1. None if the Snapshot has no such array. The number of
      parts follows if the same spec splits differently on the other meshes.
    logical: their logical axes as text, without repetition.
    """

    title: str
    paths: tuple[str, ...]
    specs: tuple[str | None, ...]
    differs: bool
    logical: tuple[str, ...] = ()


# The text of a spec, and the parts of each dimension if known. None without the array.
_Cell = tuple[str, tuple[int, ...] | None] | None


def spec_rows(snapshots: Sequence[Snapshot]) -> tuple[SpecDifference, ...]:
    """Return all rows: those that differ first, the rows that lack an array last among them."""
    by_path: dict[str, list[Array | None]] = {}
    for place, snapshot in enumerate(snapshots):
        for array in snapshot.arrays:
            if array.group in STATE_GROUPS:
                by_path.setdefault(array.path, [None] * len(snapshots))[place] = array
    by_cells: dict[tuple[_Cell, ...], list[str]] = {}
    for path, arrays in by_path.items():
        # Without a shape, it is unknown whether a spec omits unsharded dimensions at its end.
        trim = any(array is not None and array.shape is None for array in arrays)
        cells = tuple(
            _cell(array, snapshot.mesh_of(array) if array else None, trim)
            for array, snapshot in zip(arrays, snapshots, strict=True)
        )
        by_cells.setdefault(cells, []).append(path)
    rows = [_row(cells, paths, by_path) for cells, paths in by_cells.items()]
    return tuple(sorted(rows, key=lambda row: (not row.differs, row.specs.count(None), -len(row.paths))))


def title(arrays: Sequence[Array]) -> str:
    """Return the path of the first fold and the number of other arrays."""
    folds = fold(arrays)
    first = next((folded for folded in folds if folded.first.group == "params"), folds[0])
    more = len(arrays) - first.count
    return first.path + (f" and {more:,} more" if more else "")


def _cell(array: Array | None, mesh: Mesh | None, trim: bool) -> _Cell:
    if array is None:
        return None
    if array.spec is None:
        return (EXPLICIT if array.shards is not None else "unknown"), None
    split = split_of(array, mesh)
    if split is None:
        return spec_text(array.spec), None
    split = trimmed(split) if trim else split
    spec: Spec = tuple(tuple(name for name, _ in axes) or None for axes in split)
    return spec_text(spec), tuple(parts(axes) for axes in split)


def _row(
    cells: tuple[_Cell, ...], paths: list[str], by_path: dict[str, list[Array | None]]
) -> SpecDifference:
    known = {cell for cell in cells if cell}
    repeated = [text for text, _ in known]
    texts = tuple(
        cell and cell[0] + (_parts_text(cell[1]) if repeated.count(cell[0]) > 1 else "") for cell in cells
    )
    arrays = [next(array for array in by_path[path] if array is not None) for path in paths]
    logical = dict.fromkeys(logical_text(array.logical_axes) for array in arrays)
    return SpecDifference(
        title(arrays), tuple(paths), texts, len(set(cells)) > 1, tuple(filter(None, logical))
    )


def _parts_text(ways: tuple[int, ...] | None) -> str:
    """Return the number of parts of the split dimensions: `, 16 parts`, `, 2×8 parts`."""
    if not ways:
        return ""
    return f", {'×'.join(str(count) for count in ways if count > 1) or '1'} parts"


# What can differ between two arrays with the same path, in display order.
FACTS = (
    *("group", "shape", "dtype", "logical axes", "spec"),
    *("placement", "bytes", "bytes per device", "replicas"),
)
# `other names`: mesh axes with other names or sizes put the same blocks on the same devices.
Placement = Literal["same", "other names", "other", "unknown"]
UNKNOWN = "unknown"  # the dtype of an array whose file does not record one
# Files and states without the names of groups have this one.
UNGROUPED = {"group": "other"}
ONLY_BEFORE, ONLY_AFTER = "only before", "only after"


@dataclass(frozen=True)
class ArrayDifference:
    """One array path in two Snapshots.

    before, after: the array, or None if this Snapshot does not have the path.
    changed: the entries of `FACTS` that differ, or `only before` or `only after`. A value that is unknown
      in one Snapshot does not count as a difference.
    split_before, split_after: the mesh axes that split each dimension, or None without a spec.
    """

    path: str
    before: Array | None
    after: Array | None
    changed: tuple[str, ...]
    placement: Placement = "unknown"
    split_before: Split | None = None
    split_after: Split | None = None

    @property
    def either(self) -> Array:
        """The array after, or else before."""
        array = self.after or self.before
        assert array is not None
        return array

    @property
    def same_placement(self) -> bool:
        """Whether each device is known to hold the same index ranges of both arrays."""
        return self.placement in ("same", "other names")

    def split_dimensions(self) -> Iterator[int]:
        """Yield the dimensions that are split by other mesh axes, or into another number of parts."""
        was, now = self.split_before, self.split_after
        if was is None or now is None or ("shape" in self.changed and len(was) != len(now)):
            return
        for dimension, (old, new) in enumerate(itertools.zip_longest(was, now, fillvalue=())):
            if old != new:
                yield dimension


def arrays(before: Snapshot, after: Snapshot) -> tuple[ArrayDifference, ...]:
    """Pair the arrays by path: first in the order of `before`, then those that only `after` has."""
    old, new = ({array.path: array for array in snapshot.arrays} for snapshot in (before, after))
    # Of each pair of meshes once: it compares all their devices.
    same = {
        (was, now): same_placement(old_mesh, new_mesh)
        for was, old_mesh in before.indexed_meshes()
        for now, new_mesh in after.indexed_meshes()
    }
    array_differences = []
    for path in {**old, **new}:
        was, now = old.get(path), new.get(path)
        splits = (
            split_of(was, before.mesh_of(was) if was else None),
            split_of(now, after.mesh_of(now) if now else None),
        )
        changed: tuple[str, ...] = (ONLY_BEFORE if was else ONLY_AFTER,)
        placement: Placement = "unknown"
        if was and now:
            changed, placement = _changed(was, now, splits, same[was.mesh, now.mesh](was, now))
        array_differences.append(ArrayDifference(path, was, now, changed, placement, *splits))
    return tuple(array_differences)


def _changed(
    before: Array, after: Array, splits: tuple[Split | None, Split | None], same: bool | None
) -> tuple[tuple[str, ...], Placement]:
    was, now = splits
    other_spec = was is not None and now is not None and trimmed(was) != trimmed(now)
    differs = {"spec": other_spec, "placement": same is False}
    for fact in FACTS:
        if fact not in differs:
            values = [getattr(array, fact.replace(" ", "_")) for array in (before, after)]
            unknown = any(value in (None, UNKNOWN, UNGROUPED.get(fact)) for value in values)
            differs[fact] = not unknown and values[0] != values[1]
    placement: Placement = "same"
    if not same:
        placement = "unknown" if same is None else "other"
    elif other_spec:
        placement = "other names"
    return tuple(fact for fact in FACTS if differs[fact]), placement
