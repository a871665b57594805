"""The PartitionSpecs of every array of the train state in several Snapshots, equal rows folded."""

from collections.abc import Sequence
from dataclasses import dataclass

from inspector.compare.splits import parts, split_of, trimmed
from inspector.core.folding import fold
from inspector.core.formatting import logical_text
from inspector.core.sharding_text import spec_text
from inspector.core.snapshot import Array, Mesh, Snapshot, Spec
from inspector.core.totals import STATE_GROUPS

EXPLICIT = "explicit shards"


@dataclass(frozen=True)
class SpecRow:
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


def spec_rows(snapshots: Sequence[Snapshot]) -> tuple[SpecRow, ...]:
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


def _row(cells: tuple[_Cell, ...], paths: list[str], by_path: dict[str, list[Array | None]]) -> SpecRow:
    known = {cell for cell in cells if cell}
    repeated = [text for text, _ in known]
    texts = tuple(
        cell and cell[0] + (_parts_text(cell[1]) if repeated.count(cell[0]) > 1 else "") for cell in cells
    )
    arrays = [next(array for array in by_path[path] if array is not None) for path in paths]
    logical = dict.fromkeys(logical_text(array.logical_axes) for array in arrays)
    return SpecRow(title(arrays), tuple(paths), texts, len(set(cells)) > 1, tuple(filter(None, logical)))


def _parts_text(ways: tuple[int, ...] | None) -> str:
    """Return the number of parts of the split dimensions: `, 16 parts`, `, 2×8 parts`."""
    if not ways:
        return ""
    return f", {'×'.join(str(count) for count in ways if count > 1) or '1'} parts"
