"""The tree of arrays with a column per layout: PartitionSpecs, and bytes on each device as bars.

The bar of a subtree is the sum of its arrays, in the colors of their specs, so one scale holds for all bars.
"""

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from inspector.figures import block_map, cells, frame, labels, palette
from inspector.figures.palette import Fill
from inspector.figures.tree_rows import BarMeasure, LayoutColumn, TreeRow, measure_of, rows_of
from inspector.records.snapshot import Array, Mesh
from inspector.sharding import sharding_text
from inspector.text.formatting import counted

CHANGED, GONE = "≠", "absent"
_GONE_AS_IN_BASELINE = "–"  # short, because a layout may lack most arrays of the others
_OPEN, _CLOSED = "▾ ", "▸ "
_ROW_PX = 30
_BAR_PX = 7
_TEXT_PX = 12
_INDENT_PX = 12
_MOST_INDENT_SHARE = 0.4  # of the room for paths, for the deepest
_LEAST_SPEC = 14  # characters; a spec that is cut to fewer says nothing
_NAME_SHARE = (0.3, 0.22)  # of the width, at most, for the paths: of few layouts, and of many
_GAP_PX = 14
_MOST_NAME_LINES = 2
_FADED = 0.35
_BETWEEN_PX = 14  # amount, copies and spec

Place = tuple[float, float]


@dataclass(frozen=True)
class _Cell:
    """One layout's part of a row.

    Attributes:
      leaf: the first array of a leaf; None for a subtree, or if the layout lacks the array.
      size: the sum over all arrays of the row; None if one of them is unknown.
      amount: in words, or that the layout has no such arrays; empty if unknown.
      count: the copies of an array, or the arrays of a closed subtree, in words.
      mark: whether it is marked as different.
      bars: the parts of the bar as (size, style, whether it is in full color instead of faded).
      hover: escaped.
    """

    leaf: Array | None
    size: int | None
    amount: str
    count: str
    mark: bool
    bars: tuple[tuple[int, Fill, bool], ...]
    hover: str


def spec_tree(
    columns: Sequence[LayoutColumn],
    mesh: Mesh | None,
    *,
    toggled: Collection[str] | None = None,
    width_px: int = 960,
) -> go.Figure | None:
    """Return the tree with its columns; None if there are no arrays.

    Selecting gives the path of an array, or that of a subtree and a slash.

    Args:
      mesh: that of the arrays. None if they are on several: then a mesh axis of size 1 has its color, too.
      toggled: the keys of rows that the user has opened or closed; None if this is not possible.
    """
    rows = rows_of(columns, toggled or ())
    if not rows:
        return None
    measure = measure_of(columns)
    names = [_name(row, toggled is not None) for row in rows]
    left = min(_widest_px(rows, names) + 10, width_px * _NAME_SHARE[len(columns) > 4])
    column_px = (width_px - left - 4) / len(columns)
    lefts = [left + number * column_px for number in range(len(columns))]
    by_path = [{array.path: array for array in column.arrays} for column in columns]
    table = [
        _cell(row, column, arrays, measure, mesh)
        for row in rows
        for column, arrays in zip(columns, by_path, strict=True)
    ]
    places = [(x, y * _ROW_PX) for y in range(len(rows)) for x in lefts]
    height = _ROW_PX * len(rows)
    heads = [_head_lines(column, column_px) for column in columns] if len(columns) > 1 else []
    return frame.plot(
        [
            _bars(table, places, column_px - _GAP_PX),
            _names(rows, names, left),
            _texts(table, places, column_px - _GAP_PX, _SPECS[len(columns) > 1 :]),
            _areas(rows, table, [0, *lefts, width_px - 4], toggled is not None),
        ],
        width_px,
        height,
        heading="Tree of PartitionSpecs",
        notes=[_note(columns, table, measure)],
        amounts=[
            f"{column.name or rows[0].node.title}: {measure.exact_text(cell.size)}"
            for column, cell in zip(columns, table, strict=False)
        ],
        bottom=6,
        pad=0,
        above=8 + frame.NOTE_LINE_PX * max(map(len, heads), default=0),
        xaxis=frame.axis(range=[0, width_px - 4], showticklabels=False, fixedrange=True),
        yaxis=frame.axis(range=[height, 0], showticklabels=False, fixedrange=True),
        barmode="overlay",
        annotations=[
            frame.on_paper("<br>".join(lines), x / (width_px - 4), 1, yanchor="bottom", yshift=3)
            for lines, x in zip(heads, lefts, strict=False)
        ],
    )


def _cell(
    row: TreeRow,
    column: LayoutColumn,
    by_path: Mapping[str, Array],
    measure: BarMeasure,
    mesh: Mesh | None,
) -> _Cell:
    arrays = tuple(by_path[path] for path in row.paths if path in by_path)
    sizes = [measure.of(array) for array in arrays]
    known = [max(size, 0) for size in sizes if size is not None]
    total = sum(known) if arrays and len(known) == len(arrays) else None
    parts: dict[tuple[Fill, bool], int] = {}
    for array, size in zip(arrays, known if total else (), strict=False):
        look = (
            palette.fill_of_spec(array.spec, mesh),
            column.changed is None or array.path in column.changed,
        )
        parts[look] = parts.get(look, 0) + size
    changed = sum(path in (column.changed or ()) for path in row.paths)
    mark = bool(changed) and not row.is_open
    leaf = arrays[0] if arrays and row.node.fold is not None else None
    amount = "" if total is None else measure.text(total)
    if not arrays and not row.is_open:
        amount = GONE if mark else _GONE_AS_IN_BASELINE
    count = ""
    if leaf is not None and leaf.replicas is not None:
        count = counted(leaf.replicas, "copy", "copies")
    elif leaf is None and arrays and not row.is_open:
        count = counted(len(arrays), "array")
    return _Cell(
        leaf,
        total,
        amount=amount,
        count=count,
        mark=mark,
        bars=tuple((size, *look) for look, size in parts.items() if size),
        hover=_hover(row, column, arrays, total, changed, measure),
    )


def _name(row: TreeRow, can_toggle: bool) -> str:
    if row.node.fold is not None or not can_toggle:
        return row.node.title
    return (_OPEN if row.is_open else _CLOSED) + row.node.title


def _widest_px(rows: Sequence[TreeRow], names: Sequence[str]) -> float:
    """Return the width of the widest name with its indent."""
    rows_and_names = zip(rows, names, strict=True)
    return max(labels.width_px(name, _TEXT_PX) + _INDENT_PX * row.depth for row, name in rows_and_names)


def _names(rows: Sequence[TreeRow], names: Sequence[str], left: float) -> go.Scatter:
    """Return the names, indented; a name without enough room is cut, not its indent."""
    deepest = max(row.depth for row in rows) or 1
    indent = min(_INDENT_PX, left * _MOST_INDENT_SHARE / deepest)
    rooms = [labels.fitting(left - 8 - indent * row.depth, _TEXT_PX) for row in rows]
    return cells.texts(
        [(indent * row.depth, (place + 0.5) * _ROW_PX - 3) for place, row in enumerate(rows)],
        [labels.escape(labels.middle_cut(name, room)) for name, room in zip(names, rooms, strict=True)],
    )


def _areas(
    rows: Sequence[TreeRow], table: Sequence[_Cell], edges: Sequence[float], can_select: bool
) -> go.Bar:
    """Return the invisible areas of names and cells, which have the hover texts and are selected."""
    texts = [
        text
        for number, row in enumerate(rows)
        for text in (
            frame.hover([row.node.fold.path if row.node.fold else row.node.path or row.node.name]),
            *(cell.hover for cell in table[number * (len(edges) - 2) :][: len(edges) - 2]),
        )
    ]
    across = len(edges) - 1
    return go.Bar(
        orientation="h",
        base=list(edges[:-1]) * len(rows),
        x=[stop - start for start, stop in itertools.pairwise(edges)] * len(rows),
        y=[(place // across + 0.5) * _ROW_PX for place in range(across * len(rows))],
        width=_ROW_PX,
        marker={"color": frame.TRANSPARENT, "line": {"width": 0}},
        customdata=[row.key for row in rows for _ in range(across)] if can_select else None,
        hovertext=texts,
        hovertemplate="%{hovertext}<extra></extra>",
    )


# A spec in words, the longest first. Several layouts of a model have the same logical axes.
_SPECS: tuple[Callable[[Array], str], ...] = (
    lambda array: block_map.about(array)[1],
    sharding_text.array_spec_text,
    lambda array: sharding_text.array_spec_text(array).replace("'", "").replace("None", "·"),
)


def _texts(
    table: Sequence[_Cell],
    places: Sequence[Place],
    room_px: float,
    specs_of: Sequence[Callable[[Array], str]],
) -> go.Scatter:
    """Return amounts, copies and specs, each in a column; bold if they differ from the baseline.

    The first form of the specs that has room is shown. The copies make room for the last one.
    """
    firsts = [(f"{CHANGED} " if cell.mark else "") + cell.amount for cell in table]
    amounts_px = _BETWEEN_PX + max(labels.width_px(text, _TEXT_PX) for text in firsts)
    counts_px = _BETWEEN_PX + max(labels.width_px(cell.count, _TEXT_PX) for cell in table)
    forms = [(spec_of, amounts_px + counts_px) for spec_of in specs_of]
    for spec_of, start_px in (*forms, (specs_of[-1], amounts_px)):
        specs = ["" if cell.leaf is None else spec_of(cell.leaf) for cell in table]
        room = labels.fitting(room_px - start_px, _TEXT_PX)
        if max(map(len, specs)) <= room:
            break
    texts: list[tuple[Place, str]] = []
    for cell, first, spec, (x, y) in zip(table, firsts, specs, places, strict=True):
        if cell.amount:
            parts = [(x, first)]
            parts += [(x + amounts_px, cell.count)] if start_px > amounts_px else []
            parts += [(x + start_px, labels.middle_cut(spec, room))] if room >= _LEAST_SPEC else []
        else:
            parts = [(x, labels.middle_cut(first + spec, labels.fitting(room_px, _TEXT_PX)))]
        # When Plotly redraws a figure, a text that was empty stays invisible.
        for left, text in parts:
            escaped = labels.escape(text)
            place = (left, y + _ROW_PX / 2 - 3)
            texts += [(place, f"<b>{escaped}</b>" if cell.mark else escaped)] if text else []
    return cells.texts([place for place, _ in texts], [text for _, text in texts])


def _bars(table: Sequence[_Cell], places: Sequence[Place], most_px: float) -> go.Bar:
    """Return the bars; a part is as wide as its size, and at least a pixel."""
    px_per_unit = most_px / max(1, *(cell.size or 0 for cell in table))
    bars = []
    for cell, (x, y) in zip(table, places, strict=True):
        start = 0
        for size, style, marked in cell.bars:
            bars.append((x + 1 + start * px_per_unit, y, max(size * px_per_unit, 1), style, marked))
            start += size
    return go.Bar(
        orientation="h",
        base=[round(x, 2) for x, *_ in bars],
        x=[round(width, 2) for _, _, width, *_ in bars],
        y=[y + _ROW_PX - 3 - _BAR_PX / 2 for _, y, *_ in bars],
        width=_BAR_PX,
        marker={
            "color": [
                style.color if marked else palette.faded(style.color, _FADED) for *_, style, marked in bars
            ],
            "pattern": {
                "shape": [style.hatch for *_, style, _ in bars],
                "fgcolor": [style.over or frame.MIDDLE_GREY for *_, style, _ in bars],
                "fillmode": "overlay",
                "size": 6,
                "solidity": 0.3,
            },
            "line": {"width": 0},
        },
        hoverinfo="skip",
    )


def _hover(
    row: TreeRow,
    column: LayoutColumn,
    arrays: Sequence[Array],
    size: int | None,
    changed: int,
    measure: BarMeasure,
) -> str:
    path = row.node.fold.path if row.node.fold else row.node.path or row.node.name
    lines = [labels.middle_cut(path, 90), *([column.name] if column.name else [])]
    if not arrays:
        return frame.hover([*lines, GONE])
    if row.node.fold is None:
        lines.append(counted(len(arrays), "array"))
    else:
        lines += block_map.about(arrays[0], len(arrays))
        if arrays[0].replicas is not None:
            lines.append(f"each element on {counted(arrays[0].replicas, 'device')}")
    lines.append(f"{measure.exact_text(size)} {measure.where}")
    if column.changed is not None:
        lines.append(f"{changed:,} of {counted(len(row.paths), 'array')} changed")
    return frame.hover(lines)


def _head_lines(column: LayoutColumn, column_px: float) -> list[str]:
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


def _note(columns: Sequence[LayoutColumn], table: Sequence[_Cell], measure: BarMeasure) -> str:
    powers = "" if measure.unit == "bytes" else " (k, M, G: powers of 1000)"
    parts = [f"bars: {measure.unit} {measure.where}{powers}, colored by PartitionSpec"]
    if any(column.changed is not None for column in columns):
        parts.append(f"{CHANGED} differs from the baseline; faded bars are equal to it")
    if any(cell.amount == _GONE_AS_IN_BASELINE for cell in table):
        parts.append(f"{_GONE_AS_IN_BASELINE} is {GONE}")
    if any(not cell.amount for cell in table):
        parts.append(f"no amount: the {measure.unit} are unknown")
    return "; ".join(parts)
