"""One tree of paths with a column for each layout: bytes per device as bars, and what changed marked.

The rows are those of all layouts together, so that a line across the picture is one array in each of them.
Layers that are alike in every layout share a row.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import plotly.graph_objects as go

from inspector.core import formatting
from inspector.core.folding import fold
from inspector.core.snapshot import Array, Spec
from inspector.figures import frame, labels, palette, path_tree
from inspector.figures.palette import SpecStyle
from inspector.figures.path_tree import Node
from inspector.figures.spec_matrix import wrapped

CHANGED, GONE = "≠", "absent"
_GONE_AS_IN_BASELINE = "–"  # in a column of layouts that have little in common, most cells are so
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


@dataclass(frozen=True)
class Column:
    """The arrays of one layout, and the paths of those that differ from the baseline.

    changed: None of the baseline itself, where nothing is marked.
    """

    name: str
    arrays: tuple[Array, ...]
    changed: Collection[str] | None


@dataclass(frozen=True)
class Row:
    """A node of the tree: its indent, and the paths of the arrays under it."""

    node: Node
    depth: int
    paths: tuple[str, ...]


def rows_of(columns: Sequence[Column]) -> tuple[Row, ...]:
    """The rows of all layouts together; arrays share one if they are alike in every layout."""
    held = [{array.path: array for array in column.arrays} for column in columns]
    paths = dict.fromkeys(path for arrays in held for path in arrays)
    alike = []
    for path in paths:
        own = [arrays.get(path) for arrays in held]
        first = next(array for array in own if array is not None)
        # What tells arrays of a fold apart stands where the fold compares logical axes.
        facts = tuple(
            ""
            if one is None
            else repr((one.shape, one.spec, one.shard_shape, one.bytes_per_device))
            for one in own
        )
        marks = tuple(str(path in (column.changed or ())) for column in columns)
        alike.append(replace(first, logical_axes=(*facts, *marks)))
    return tuple(_walk(path_tree.grow(fold(alike)), 0))


def measure_of(columns: Sequence[Column]) -> Measure:
    """What the bars show: bytes on each device, or elements where no bytes are known."""
    known = any(array.bytes_per_device for column in columns for array in column.arrays)
    return "bytes" if known else "elements"


def marked_tree(
    columns: Sequence[Column],
    styles: Mapping[Spec | None, SpecStyle],
    *,
    width_px: int = 960,
) -> go.Figure | None:
    """The tree with its columns; None where there is no array.

    Args:
      styles: the colors of PartitionSpecs over all arrays of all layouts.
    """
    rows = rows_of(columns)
    if not rows:
        return None
    measure = measure_of(columns)
    widest = max(
        labels.width_px(_name(row.node), _TEXT_PX) + _INDENT_PX * row.depth for row in rows
    )
    left = min(widest + 10, width_px * _NAME_SHARE[len(columns) > 4])
    column_px = (width_px - left - 4) / len(columns)
    cells = [_cell(row, column, measure) for row in rows for column in columns]
    most = max((cell.size or 0 for cell in cells if cell.leaf), default=0) or 1
    notes = frame.note_lines(_notes(columns, cells, measure), width_px)
    heads = [_head_lines(column, column_px) for column in columns]
    head_px = 8 + frame.NOTE_LINE_PX * max(map(len, heads))
    top = frame.heading_px(len(notes)) + head_px
    height = _ROW_PX * len(rows)
    places = [
        (left + number * column_px, row * _ROW_PX)
        for row in range(len(rows))
        for number in range(len(columns))
    ]
    room = int((column_px - _GAP_PX) / labels.width_px("x", _TEXT_PX))
    return frame.figure(
        [
            _paths(rows, left),
            *_texts(cells, places, room, measure),
            _bars(cells, places, (column_px - _GAP_PX) / most, styles),
        ],
        width_px,
        top + height + 6,
        title=frame.title("Trees side by side", width_px),
        margin={"l": 2, "r": 2, "t": top, "b": 6},
        xaxis=frame.axis(range=[0, width_px - 4], showticklabels=False, fixedrange=True),
        yaxis=frame.axis(range=[height, 0], showticklabels=False, fixedrange=True),
        barmode="overlay",
        annotations=[
            {**frame.notes_above(notes, 2), "yshift": 7 + head_px},
            *(
                _head(lines, (left + number * column_px) / (width_px - 4))
                for number, lines in enumerate(heads)
            ),
        ],
        hovermode="closest",
    )


@dataclass(frozen=True)
class _Cell:
    """One layout's part of a row. `size` is of all arrays of the row; `mark` is ≠ or nothing."""

    array: Array | None
    size: int | None
    leaf: bool
    mark: str
    marked: bool
    hover: str


def _cell(row: Row, column: Column, measure: Measure) -> _Cell:
    by_path = {array.path: array for array in column.arrays}
    held = [by_path[path] for path in row.paths if path in by_path]
    sizes = [_size(array, measure) for array in held]
    known = [size for size in sizes if size is not None]
    size = sum(known) if held and len(known) == len(held) else None
    leaf = row.node.fold is not None
    differs = sum(path in (column.changed or ()) for path in row.paths)
    mark = CHANGED if differs and leaf else ""
    first = held[0] if held and leaf else None
    hover = _hover(row, column, held, size, differs, measure)
    return _Cell(first, size, leaf, mark, bool(differs) or column.changed is None, hover)


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


def _walk(nodes: Iterable[Node], depth: int) -> Iterable[Row]:
    for node in nodes:
        yield Row(node, depth, tuple(_paths_of(node)))
        yield from _walk(node.children, depth + 1)


def _paths_of(node: Node) -> Iterable[str]:
    if node.fold is not None:
        yield from (array.path for array in node.fold.arrays)
    for child in node.children:
        yield from _paths_of(child)


def _name(node: Node) -> str:
    count = f" ×{node.fold.count}" if node.fold is not None and node.fold.count > 1 else ""
    return f"{node.name}{count}"


def _paths(rows: Sequence[Row], left: float) -> go.Scatter:
    """The names, indented; where there is no room it is the name that is cut, not what tells its place."""
    deepest = max(row.depth for row in rows) or 1
    indent = min(_INDENT_PX, left * _MOST_INDENT_SHARE / deepest)
    names = [_name(row.node) for row in rows]
    most = [int((left - 8 - indent * row.depth) / labels.width_px("x", _TEXT_PX)) for row in rows]
    return go.Scatter(
        x=[indent * row.depth for row in rows],
        y=[(place + 0.5) * _ROW_PX for place in range(len(names))],
        mode="text",
        text=[
            labels.escape(labels.middle_cut(name, room))
            for name, room in zip(names, most, strict=True)
        ],
        textposition="middle right",
        textfont={"size": _TEXT_PX},
        cliponaxis=False,
        customdata=[labels.escape(name) for name in names],
        hovertemplate="%{customdata}<extra></extra>",
    )


def _texts(
    cells: Sequence[_Cell], places: Sequence[tuple[float, float]], room: int, measure: Measure
) -> list[go.Scatter]:
    """The words of each cell: what is as in the baseline in grey, the rest as the page writes."""
    made = []
    for marked in (True, False):
        own = [
            (cell, place)
            for cell, place in zip(cells, places, strict=True)
            if cell.marked == marked
        ]
        if own:
            color = {} if marked else {"color": frame.MIDDLE_GREY}
            made.append(
                go.Scatter(
                    x=[x for _, (x, _) in own],
                    y=[y + _ROW_PX / 2 - 2 for _, (_, y) in own],
                    mode="text",
                    text=[_words(cell, room, measure) for cell, _ in own],
                    textposition="middle right",
                    textfont={"size": _TEXT_PX, **color},
                    cliponaxis=False,
                    customdata=[cell.hover for cell, _ in own],
                    hovertemplate="%{customdata}<extra></extra>",
                )
            )
    return made


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
        said = f"{labels.middle_cut(spec, beside)}  {amount}"
    elif cell.size is None and (len(spec) <= alone or alone >= _LEAST_SPEC):
        said = labels.middle_cut(spec, alone)  # of the two, the spec is what is known
    else:
        said = amount
    text = labels.escape(f"{mark}{said}")
    return f"<b>{text}</b>" if cell.mark else text


def _bars(
    cells: Sequence[_Cell],
    places: Sequence[tuple[float, float]],
    px_per_unit: float,
    styles: Mapping[Spec | None, SpecStyle],
) -> go.Bar:
    own = [
        (cell, place)
        for cell, place in zip(cells, places, strict=True)
        if cell.array is not None and cell.size
    ]
    looks = [styles[palette.without_trailing(cell.array.spec)] for cell, _ in own]
    return go.Bar(
        orientation="h",
        base=[x + 3 for _, (x, _) in own],
        x=[max((cell.size or 0) * px_per_unit, 1) for cell, _ in own],
        y=[y + _ROW_PX - 4 - _BAR_PX / 2 for _, (_, y) in own],
        width=_BAR_PX,
        marker={
            "color": [
                look.color if cell.marked else palette.faded(look.color, 0.35)
                for look, (cell, _) in zip(looks, own, strict=True)
            ],
            "line": {"width": 0},
        },
        customdata=[cell.hover for cell, _ in own],
        hovertemplate="%{customdata}<extra></extra>",
    )


def _hover(
    row: Row,
    column: Column,
    held: Sequence[Array],
    size: int | None,
    differs: int,
    measure: Measure,
) -> str:
    path = row.node.fold.path if row.node.fold else row.node.path
    rows = [f"<b>{labels.escape(labels.middle_cut(path, 90))}</b>", labels.escape(column.name)]
    if not held:
        return "<br>".join([*rows, GONE])
    if row.node.fold is not None:
        rows.append(labels.escape(f"{formatting.shape_text(held[0].shape)} {held[0].dtype}"))
        rows.append(labels.escape(formatting.spec_text(held[0].spec)))
    unit = "" if measure == "bytes" else " elements"
    rows.append(f"{_amount(size, measure)}{unit} on each device")
    if column.changed is not None:
        rows.append(f"{differs:,} of {formatting.counted(len(row.paths), 'array')} changed")
    return "<br>".join(rows)


def _head_lines(column: Column, column_px: float) -> list[str]:
    """The layout's name, and under it how much of it differs. Not escaped."""
    said = "baseline"
    if column.changed is not None:
        held = sum(array.path in column.changed for array in column.arrays)
        said = f"{CHANGED} {held:,} of {len(column.arrays):,}" if held else "as the baseline"
    if not column.arrays:
        said = "no such arrays" if column.changed is not None else "baseline, no such arrays"
    most = max(int((column_px - 6) / labels.width_px("x", frame.NOTE_PX)), 6)
    return [*wrapped(column.name, most, _MOST_NAME_LINES), labels.cut(said, most)]


def _head(lines: Sequence[str], left: float) -> dict[str, Any]:
    *name, said = map(labels.escape, lines)
    return {
        "text": "<br>".join([*(f"<b>{one}</b>" for one in name), said]),
        "showarrow": False,
        "x": left,
        "xref": "paper",
        "xanchor": "left",
        "y": 1,
        "yref": "paper",
        "yanchor": "bottom",
        "yshift": 3,
        "align": "left",
        "font": {"size": frame.NOTE_PX},
    }


def _notes(columns: Sequence[Column], cells: Sequence[_Cell], measure: Measure) -> list[str]:
    said = (
        "bars: bytes on each device"
        if measure == "bytes"
        else "bars: elements on each device, for no bytes are known (k, M, G: powers of 1000)"
    )
    said += ", colored by PartitionSpec"
    if any(column.changed is not None for column in columns):
        said += f"; {CHANGED} is not as in the baseline, grey is as there"
    leaves = [cell for cell in cells if cell.leaf]
    if any(cell.array is None and not cell.mark for cell in leaves):
        said += f"; {_GONE_AS_IN_BASELINE} is {GONE}"
    if any(cell.array is not None and cell.size is None for cell in leaves):
        said += f"; where there is no amount, the {measure} are unknown"
    return [said]
