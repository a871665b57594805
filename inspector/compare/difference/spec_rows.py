"""Parameter × layout: the specs of every array of the train state, equal rows folded into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inspector.compare.difference.splitting import parts, split_of, trimmed
from inspector.core.folding import fold
from inspector.core.formatting import logical_text, spec_text
from inspector.core.snapshot import Array, Mesh, Snapshot, Spec
from inspector.core.totals import STATE_GROUPS

EXPLICIT = "explicit shards"


@dataclass(frozen=True)
class SpecRow:
    """Arrays whose specs are the same in each Snapshot.

    title: their paths in short, `params/layer_{0…3}/kernel and 8 more`.
    specs: one a Snapshot, without axes of size 1; None where it has no such array, `unknown` where it
      does not say. Where one text splits differently, because the mesh has other sizes, the parts follow it.
    logical: the logical axes that they have, as text, each once.
    """

    title: str
    paths: tuple[str, ...]
    specs: tuple[str | None, ...]
    differs: bool
    logical: tuple[str, ...] = ()


def spec_rows(snapshots: Sequence[Snapshot]) -> tuple[SpecRow, ...]:
    """All rows: first those that differ, of them last what not every Snapshot has, then the equal ones."""
    by_path: dict[str, list[Array | None]] = {}
    for place, found in enumerate(snapshots):
        for array in found.arrays:
            if array.group in STATE_GROUPS:
                by_path.setdefault(array.path, [None] * len(snapshots))[place] = array
    meshes = [found.mesh for found in snapshots]
    together: dict[tuple, list[str]] = {}
    for path, row in by_path.items():
        # A file that tells no shapes leaves out the whole dimensions at the end, or not.
        trim = any(array is not None and array.shape is None for array in row)
        cells = tuple(_cell(array, mesh, trim) for array, mesh in zip(row, meshes, strict=True))
        together.setdefault(cells, []).append(path)
    rows = [_row(cells, paths, by_path) for cells, paths in together.items()]
    return tuple(
        sorted(rows, key=lambda row: (not row.differs, row.specs.count(None), -len(row.paths)))
    )


# The text of a spec, and the parts of each dimension where these are known.
_Cell = tuple[str, tuple[int, ...] | None] | None


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
) -> SpecRow:
    splits: dict[str, set] = {}
    for cell in cells:
        if cell is not None:
            splits.setdefault(cell[0], set()).add(cell[1])
    texts = tuple(
        None if cell is None
        else f"{cell[0]}, {_parts_text(cell[1])}"
        if cell[1] and len(splits[cell[0]]) > 1
        else cell[0]
        for cell in cells
    )  # fmt: skip
    arrays = [next(one for one in by_path[path] if one is not None) for path in paths]
    logical = dict.fromkeys(logical_text(one.logical_axes) for one in arrays)
    return SpecRow(
        title(arrays),
        tuple(paths),
        texts,
        len(set(cells)) > 1,
        tuple(text for text in logical if text),
    )


def _parts_text(dimensions: tuple[int, ...]) -> str:
    """The parts of the dimensions that are split: `16 parts`, `2×8 parts`."""
    return f"{'×'.join(str(count) for count in dimensions if count > 1) or '1'} parts"


def title(arrays: Sequence[Array]) -> str:
    """Some arrays in short: the first of them with its layers folded, and how many more there are."""
    folds = fold(arrays)
    first = next((one for one in folds if one.first.group == "params"), folds[0])
    more = len(arrays) - first.count
    return first.path + (f" and {more:,} more" if more else "")
