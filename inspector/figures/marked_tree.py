"""One tree of paths with a column per layout: bytes per device as bars, with changes marked.

The rows are the paths of all layouts, so a row is the same array in each of them. Layers that are alike in
every layout share a row.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import plotly.graph_objects as go

from inspector.core import formatting
from inspector.core.folding import fold
from inspector.core.snapshot import Array, Spec
from inspector.figures import cells, frame, labels, palette, path_tree
from inspector.figures.palette import SpecStyle
from inspector.figures.path_tree import Node

CHANGED, GONE = "≠", "absent"
_GONE_AS_IN_BASELINE = "–"  # short, because a layout may lack most arrays of the others
_ROW_PX = 30
_BAR_PX = 5
_TEXT_PX = 12
_INDENT_PX = 10
_MOST_INDENT_SHARE = 0.4  # of the room for paths, for the deepest
_LEAST_SPEC = 14  # characters; a spec that is cut to fewer says nothing
_NAME_SHARE = (0.3, 0.22)  # of the width, at most, for the paths: of few layouts, and of many
_GAP_PX = 14
_MOST_NAME_LINES = 2

Measure = Literal["bytes", "elements"]
Place = tuple[float, float]


@dataclass(frozen=True)
class Column:
    """The arrays of one layout, and the paths of those that differ from the baseline.

    changed: None for the baseline itself.
    """

    name: str
    arrays: tuple[Array, ...]
    changed: Collection[str] | None


@dataclass(frozen=True)
class Row:
    """A node of the tree: its indent, and the paths of the arrays below it."""

    node: Node
    depth: int
    paths: tuple[str, ...]


@dataclass(frozen=True)
class _Cell:
    """One layout's part of a row.

    array: the first array of a leaf; None if the layout lacks it. size: the sum over all arrays of the row.
    marked: drawn in full color instead of faded.
    """

    array: Array | None
    size: int | None
    leaf: bool
    mark: str
    marked: bool
    hover: str


def rows_of(columns: Sequence[Column]) -> tuple[Row, ...]:
    """Return the rows of all layouts; arrays share a row if they are alike in every layout."""
    held = [{array.path: array for array in column.arrays} for column in columns]
    alike = []
    for path in dict.fromkeys(path for arrays in held for path in arrays):
        versions = [arrays.get(path) for arrays in held]
        first = next(array for array in versions if array is not None)
        # `fold` compares logical axes, so everything that must be equal is put there.
        facts = [
            ""
            if one is None
            else repr((one.shape, one.spec, one.shard_shape, one.bytes_per_device))
            for one in versions
        ]
        marks = [str(path in (column.changed or ())) for column in columns]
        alike.append(replace(first, logical_axes=(*facts, *marks)))
    return tuple(_walk(path_tree.grow(fold(alike)), 0))


def measure_of(columns: Sequence[Column]) -> Measure:
    """Return the measure of the bars: bytes on each device, or elements if no bytes are known."""
    known = any(array.bytes_per_device for column in columns for array in column.arrays)
    return "bytes" if known else "elements"


def marked_tree(
    columns: Sequence[Column], styles: Mapping[Spec | None, SpecStyle], *, width_px: int = 960
) -> go.Figure | None:
    """Return the tree with its columns; None if there are no arrays."""
    rows = rows_of(columns)
    if not rows:
        return None
    measure = measure_of(columns)
    widest = max(labels.width_px(row.node.title, _TEXT_PX) + _INDENT_PX * row.depth for row in rows)
    left = min(widest + 10, width_px * _NAME_SHARE[len(columns) > 4])
    column_px = (width_px - left - 4) / len(columns)
    by_path = [{array.path: array for array in column.arrays} for column in columns]
    table = [
        _cell(row, column, arrays, measure)
        for row in rows
        for column, arrays in zip(columns, by_path, strict=True)
    ]
    most = max((cell.size or 0 for cell in table if cell.leaf), default=0) or 1
    heads = [_head_lines(column, column_px) for column in columns]
    lefts = [left + number * column_px for number in range(len(columns))]
    placed = list(
        zip(table, [(x, y * _ROW_PX) for y in range(len(rows)) for x in lefts], strict=True)
    )
    height = _ROW_PX * len(rows)
    return frame.plot(
        [
            _paths(rows, left),
            _texts(placed, labels.fitting(column_px - _GAP_PX, _TEXT_PX), measure),
            _bars(placed, (column_px - _GAP_PX) / most, styles),
        ],
        width_px,
        height,
        heading="Trees side by side",
        notes=[_note(columns, table, measure)],
        bottom=6,
        pad=0,
        above=8 + frame.NOTE_LINE_PX * max(map(len, heads)),
        xaxis=frame.axis(range=[0, width_px - 4], showticklabels=False, fixedrange=True),
        yaxis=frame.axis(range=[height, 0], showticklabels=False, fixedrange=True),
        barmode="overlay",
        annotations=[
            frame.on_paper("<br>".join(lines), x / (width_px - 4), 1, yanchor="bottom", yshift=3)
            for lines, x in zip(heads, lefts, strict=True)
        ],
    )


def _walk(nodes: Iterable[Node], depth: int) -> Iterable[Row]:
    for node in nodes:
        yield Row(node, depth, tuple(array.path for one in node.folds() for array in one.arrays))
        yield from _walk(node.children, depth + 1)


def _cell(row: Row, column: Column, arrays: Mapping[str, Array], measure: Measure) -> _Cell:
    held = [arrays[path] for path in row.paths if path in arrays]
    known = [size for array in held if (size := _size(array, measure)) is not None]
    size = max(sum(known), 0) if held and len(known) == len(held) else None
    leaf = row.node.fold is not None
    changed = sum(path in (column.changed or ()) for path in row.paths)
    return _Cell(
        held[0] if held and leaf else None,
        size,
        leaf,
        CHANGED if changed and leaf else "",
        bool(changed) or column.changed is None,
        _hover(row, column, held, size, changed, measure),
    )


def _size(array: Array, measure: Measure) -> int | None:
    if measure == "bytes":
        return array.bytes_per_device
    return None if array.shard_shape is None else math.prod(array.shard_shape)


def _amount(size: int | None, measure: Measure) -> str:
    if size is None:
        return "unknown"
    if measure == "bytes":
        return formatting.bytes_text(size)
    for unit, scale in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return str(size)


def _paths(rows: Sequence[Row], left: float) -> go.Scatter:
    """Return the names, indented; a name without enough room is cut, not its indent."""
    deepest = max(row.depth for row in rows) or 1
    indent = min(_INDENT_PX, left * _MOST_INDENT_SHARE / deepest)
    names = [
        labels.middle_cut(row.node.title, labels.fitting(left - 8 - indent * row.depth, _TEXT_PX))
        for row in rows
    ]
    return cells.texts(
        [(indent * row.depth, (place + 0.5) * _ROW_PX) for place, row in enumerate(rows)],
        [labels.escape(name) for name in names],
        hoverinfo=None,
        customdata=[labels.escape(row.node.title) for row in rows],
        hovertemplate=frame.HOVER_TEXT,
    )


def _texts(placed: Sequence[tuple[_Cell, Place]], room: int, measure: Measure) -> go.Scatter:
    """Return the texts of the cells; those that differ from the baseline are bold."""
    return cells.texts(
        [(x, y + _ROW_PX / 2 - 2) for _, (x, y) in placed],
        [_words(cell, room, measure) for cell, _ in placed],
        hoverinfo=None,
        customdata=[cell.hover for cell, _ in placed],
        hovertemplate=frame.HOVER_TEXT,
    )


def _words(cell: _Cell, room: int, measure: Measure) -> str:
    if not cell.leaf:
        return f"<i>{_amount(cell.size, measure)}</i>" if cell.size is not None else ""
    if cell.array is None:
        return f"{cell.mark} {GONE}" if cell.mark else _GONE_AS_IN_BASELINE
    spec = formatting.spec_text(cell.array.spec).replace("'", "").replace("None", "·")
    amount = _amount(cell.size, measure)
    mark = f"{cell.mark} " if cell.mark else ""
    alone = room - len(mark)
    beside = alone - len(amount) - 2
    if len(spec) <= beside or beside >= _LEAST_SPEC:
        text = f"{labels.middle_cut(spec, beside)}  {amount}"
    elif cell.size is None and (len(spec) <= alone or alone >= _LEAST_SPEC):
        text = labels.middle_cut(spec, alone)  # the amount is unknown, so the spec gets the room
    else:
        text = amount
    text = labels.escape(f"{mark}{text}")
    return f"<b>{text}</b>" if cell.mark else text


def _bars(
    placed: Sequence[tuple[_Cell, Place]],
    px_per_unit: float,
    styles: Mapping[Spec | None, SpecStyle],
) -> go.Bar:
    bars = [
        (cell.size, place, palette.style_of(cell.array.spec, styles).color, cell)
        for cell, place in placed
        if cell.array is not None and cell.size
    ]
    return go.Bar(
        orientation="h",
        base=[x + 3 for _, (x, _), *_ in bars],
        x=[max(size * px_per_unit, 1) for size, *_ in bars],
        y=[y + _ROW_PX - 4 - _BAR_PX / 2 for _, (_, y), *_ in bars],
        width=_BAR_PX,
        marker={
            "color": [
                color if cell.marked else palette.faded(color, 0.35) for *_, color, cell in bars
            ],
            "line": {"width": 0},
        },
        customdata=[cell.hover for *_, cell in bars],
        hovertemplate=frame.HOVER_TEXT,
    )


def _hover(
    row: Row,
    column: Column,
    held: Sequence[Array],
    size: int | None,
    changed: int,
    measure: Measure,
) -> str:
    path = row.node.fold.path if row.node.fold else row.node.path
    lines = [labels.middle_cut(path, 90), column.name]
    if not held:
        return frame.hover([*lines, GONE])
    if row.node.fold is not None:
        lines.append(f"{formatting.shape_text(held[0].shape)} {held[0].dtype}")
        lines.append(formatting.spec_text(held[0].spec))
    unit = "" if measure == "bytes" else " elements"
    lines.append(f"{_amount(size, measure)}{unit} on each device")
    if column.changed is not None:
        lines.append(f"{changed:,} of {formatting.counted(len(row.paths), 'array')} changed")
    return frame.hover(lines)


def _head_lines(column: Column, column_px: float) -> list[str]:
    """Return the escaped lines above a column: the layout's name and the number of arrays that differ."""
    text = "baseline"
    if column.changed is not None:
        held = sum(array.path in column.changed for array in column.arrays)
        text = f"{CHANGED} {held:,} of {len(column.arrays):,}" if held else "as the baseline"
    if not column.arrays:
        text = "no such arrays" if column.changed is not None else "baseline, no such arrays"
    most = max(labels.fitting(column_px - 6, frame.NOTE_PX), 6)
    name = labels.wrapped(column.name, most, _MOST_NAME_LINES)
    return [
        *(f"<b>{labels.escape(line)}</b>" for line in name),
        labels.escape(labels.cut(text, most)),
    ]


def _note(columns: Sequence[Column], table: Sequence[_Cell], measure: Measure) -> str:
    note = "bars: bytes on each device"
    if measure == "elements":
        note = "bars: elements on each device (k, M, G: powers of 1000), because no bytes are known"
    parts = [f"{note}; colored by PartitionSpec"]
    if any(column.changed is not None for column in columns):
        parts.append(f"{CHANGED} differs from the baseline; faded bars are equal to it")
    leaves = [cell for cell in table if cell.leaf]
    if any(cell.array is None and not cell.mark for cell in leaves):
        parts.append(f"{_GONE_AS_IN_BASELINE} is {GONE}")
    if any(cell.array is not None and cell.size is None for cell in leaves):
        parts.append(f"no amount: the {measure} are unknown")
    return "; ".join(parts)
