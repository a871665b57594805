"""The same array in every layout, side by side: its blocks in index space, with axes that zoom together.

All maps share one pair of dimensions, so that a place in one is the same elements in every other. The
other dimensions are cut through at an index, the same for all, or lie whole where nothing splits them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from inspector.core import formatting, sharding
from inspector.core.snapshot import Array, Mesh
from inspector.figures import cells, frame, labels, lattice
from inspector.figures.block_map import BlockGrid, block_grid, split_dimensions, why_no_map
from inspector.figures.lattice import Side

_GAP_PX = 26
_NARROWEST_PX = 230  # a map and its labels cannot be read in less
_HEIGHT_PX = (110, 300)
_FLAT_PX = 70  # the height of an array of one dimension
_HEAD_PX = 60  # name, spec and blocks above each map
_FOOT_PX = 34  # tick labels, and room before the next row
_LEFT_PX = 44
_SENTENCE_PX = 30  # the height of a row of layouts none of which has a map
_DEVICES_A_LINE = 2
_PARTED_PX = 5  # cells at least so large are parted by a line
_MOST_HOVERS = 1024  # of one map; of more, the hover says only which block


@dataclass(frozen=True)
class Panel:
    """One layout's map of the array: its blocks, or why there are none. `name` is the layout's."""

    name: str
    array: Array | None
    mesh: Mesh | None
    grid: BlockGrid | None
    absent: str = ""


@dataclass(frozen=True)
class Cut:
    """Which dimension runs down and which across, and where all the others are cut.

    rows: None where the array has one dimension; columns: None where it has none.
    """

    rows: int | None
    columns: int | None
    at: Mapping[int, int]


def cut_of(arrays: Sequence[tuple[Array, Mesh]]) -> Cut | None:
    """The two dimensions that are split in most of these layouts, else the last; None without a shape."""
    known = [(array, mesh) for array, mesh in arrays if array.shape is not None]
    if not known:
        return None
    rank = len(known[0][0].shape)
    count = [0] * rank
    for array, mesh in known:
        if len(array.shape) == rank:
            for dimension in split_dimensions(array, mesh):
                count[dimension] += 1
    ranked = sorted(range(rank), key=lambda dimension: (-count[dimension], -dimension))
    shown = sorted(ranked[:2])
    rows, columns = (None, None) if not shown else (shown[0] if rank > 1 else None, shown[-1])
    at = {dimension: 0 for dimension in range(rank) if dimension not in shown and count[dimension]}
    return Cut(rows, columns, at)


def panel(
    name: str, array: Array | None, mesh: Mesh | None, cut: Cut, shape: Sequence[int]
) -> Panel:
    """The map of one layout, or a sentence in its place.

    Args:
      shape: of the array in the layout that `cut` was chosen for.
    """
    reason = _why_absent(array, mesh, cut, shape)
    if reason or array is None or mesh is None:
        return Panel(name, array, mesh, None, reason)
    rows = () if cut.rows is None else (cut.rows,)
    columns = () if cut.columns is None else (cut.columns,)
    at = {dimension: min(index, array.shape[dimension] - 1) for dimension, index in cut.at.items()}
    return Panel(name, array, mesh, block_grid(array, mesh, rows, columns, at))


def linked_maps(
    panels: Sequence[Panel], heading: str, cut: Cut, *, width_px: int = 960
) -> go.Figure:
    """One figure of all panels, whose maps zoom together.

    Args:
      heading: the array's path, not escaped.
    """
    across = max(1, min(len(panels), int((width_px + _GAP_PX) / (_NARROWEST_PX + _GAP_PX)), 4))
    across = math.ceil(len(panels) / math.ceil(len(panels) / across))
    down = math.ceil(len(panels) / across)
    tile_px = (width_px - 4 - _GAP_PX * (across - 1)) / across
    shape = [
        max((_length(one, dimension) for one in panels if one.grid is not None), default=1)
        for dimension in (cut.rows, cut.columns)
    ]
    # The last label stands under the edge of its map; Plotly leaves out what does not fit in the figure.
    right_px = labels.width_px(str(shape[1]), frame.TICK_PX) / 2
    plot_px = tile_px - _LEFT_PX - right_px
    low, high = _HEIGHT_PX
    map_px = _FLAT_PX if cut.rows is None else min(max(plot_px * shape[0] / shape[1], low), high)
    notes = frame.note_lines(_notes(panels, cut), width_px)
    top = frame.heading_px(len(notes))
    tops = [0.0]
    for row in range(down):
        mapped = any(one.grid is not None for one in panels[row * across : (row + 1) * across])
        tops.append(tops[-1] + _HEAD_PX + (map_px + _FOOT_PX if mapped else _SENTENCE_PX))
    body = tops[-1]
    height = top + body + 4
    layout: dict[str, Any] = {}
    traces: list[Any] = []
    annotations = [frame.notes_above(notes, 2)]
    for number, one in enumerate(panels):
        left = (number % across) * (tile_px + _GAP_PX)
        above, below = tops[number // across], tops[number // across + 1]
        annotations.append(_head(one, left, above, tile_px, width_px, body))
        if one.grid is None:
            # Under its name, or in the middle of the maps beside it.
            box = (left, left + tile_px, above + _HEAD_PX / 2, below)
            annotations.append(_sentence(one, box, width_px, body))
            continue
        upper = above + _HEAD_PX
        box = (left + _LEFT_PX, left + tile_px - right_px, upper, upper + map_px)
        suffix = "" if not traces else str(number + 1)
        traces += _map(one, suffix, (shape[1], shape[0]), (plot_px, map_px))
        layout |= _axes(one, suffix, box, shape, (width_px, body), cut)
    if not traces:
        layout |= {"xaxis": {"visible": False}, "yaxis": {"visible": False}}
    return frame.figure(
        traces,
        width_px,
        height,
        title=frame.title(heading, width_px),
        margin={"l": 2, "r": 2, "t": top, "b": 4},
        annotations=annotations,
        hovermode="closest",
        hoverdistance=-1,
        **layout,
    )


def _why_absent(array: Array | None, mesh: Mesh | None, cut: Cut, shape: Sequence[int]) -> str:
    if array is None:
        return "This layout has no array of this path."
    if mesh is None:
        return "No mesh is known, so that no device can be named."
    if array.shape is None:
        return "How large it is, is not known here."
    if len(array.shape) != len(shape):
        return (
            f"It has {formatting.counted(len(array.shape), 'dimension')} here, "
            f"{formatting.shape_text(array.shape)}, and {len(shape)} in the others."
        )
    return why_no_map(array, mesh) or ""


def _length(one: Panel, dimension: int | None) -> int:
    return 1 if dimension is None or one.array is None else one.array.shape[dimension]


def _map(
    one: Panel, suffix: str, extent: tuple[int, int], size_px: tuple[float, float]
) -> list[go.Heatmap]:
    array, mesh, grid = one.array, one.mesh, one.grid
    assert array is not None and mesh is not None and grid is not None
    placement = sharding.place_array(array, mesh)
    assert placement is not None  # else there were no grid
    row_pieces = grid.rows.cuts[0] if grid.rows.cuts else ((0, 1),)
    column_pieces = grid.columns.cuts[0] if grid.columns.cuts else ((0, 1),)
    sheet = lattice.sheet(_side(row_pieces), _side(column_pieces))
    numbers = grid.block.reshape(-1).tolist()
    room = [
        (
            (right - left) / extent[0] * size_px[0],
            (bottom - upper) / extent[1] * size_px[1],
        )
        for upper, bottom in row_pieces
        for left, right in column_pieces
    ]
    text = lattice.fit_text(
        [
            lambda cell: _held(grid, numbers[cell], "device{s} {devices}", 4),
            lambda cell: _held(grid, numbers[cell], "device{s}\n{devices}", 4),
            lambda cell: _held(grid, numbers[cell], "device{s}\n{devices}", 4, _in_lines),
            lambda cell: _held(grid, numbers[cell], "{devices}", 4),
            lambda cell: _held(grid, numbers[cell], "{devices}", 1),
        ],
        range(len(numbers)),
        room,
    )
    parted = min(min(width, height) for width, height in room) >= _PARTED_PX
    hover = [
        _hover(one, grid, numbers, cell, row_pieces, column_pieces) for cell in sheet.cells.flat
    ]
    across = len(column_pieces)
    rows = [hover[start : start + across] for start in range(0, len(hover), across)]
    found = cells.heatmaps(
        sheet, list(column_pieces), list(row_pieces), numbers, placement.blocks, text, None
    )
    for trace in found:
        trace.update(
            xaxis=f"x{suffix}",
            yaxis=f"y{suffix}",
            xgap=1.5 if parted else 0,
            ygap=1.5 if parted else 0,
            hoverinfo=None,
            hoverongaps=False,
            customdata=rows,
            hovertemplate="%{customdata}<extra></extra>",
        )
    return found


def _side(pieces: Sequence[tuple[int, int]]) -> Side:
    return Side(tuple(float(stop - start) for start, stop in pieces), (0,) * len(pieces))


def _held(
    grid: BlockGrid,
    number: int,
    words: str,
    most: int,
    arranged: Callable[[str], str] = lambda devices: devices,
) -> str:
    if number < 0:
        return ""
    devices = grid.holders[number]
    text = arranged(formatting.devices_text(devices, most=most))
    return words.format(s="s" * (len(devices) > 1), devices=text)


def _in_lines(devices: str) -> str:
    """The same devices on more lines: `0, 4,` and `8, 12`."""
    parts = devices.split(", ")
    starts = range(0, len(parts), _DEVICES_A_LINE)
    return ",\n".join(", ".join(parts[start : start + _DEVICES_A_LINE]) for start in starts)


def _hover(
    one: Panel,
    grid: BlockGrid,
    numbers: Sequence[int],
    cell: int,
    rows: Sequence[tuple[int, int]],
    columns: Sequence[tuple[int, int]],
) -> str:
    number = numbers[cell]
    if number < 0:
        return "no device holds it"
    if len(numbers) > _MOST_HOVERS:
        return f"block {number}"
    row, column = divmod(int(cell), len(columns))
    index = [columns[column]] if not grid.rows.dimensions else [rows[row], columns[column]]
    devices = formatting.devices_text(grid.holders[number], most=8)
    parts = [f"<b>{labels.escape(labels.cut(one.name, 40))}</b>", f"block {number}"]
    if grid.columns.dimensions:
        parts.append(formatting.ranges_text(index))
    return "<br>".join([*parts, f"on {devices}"])


def _axes(
    one: Panel,
    suffix: str,
    box: tuple[float, float, float, float],
    shape: Sequence[int],
    size_px: tuple[float, float],
    cut: Cut,
) -> dict[str, Any]:
    """The pair of axes of one map. Those after the first follow it, so that one zoom is for all."""
    left, right, top, bottom = box
    width, body = size_px
    grid = one.grid
    assert grid is not None
    follow = {"matches": "x"} if suffix else {}
    follow_y = {"matches": "y"} if suffix else {}
    return {
        f"xaxis{suffix}": frame.axis(
            range=[0, shape[1]],
            domain=[left / (width - 4), min(right / (width - 4), 1)],
            anchor=f"y{suffix}",
            showticklabels=cut.columns is not None,
            **_ticks(_borders(grid.columns.cuts), shape[1], right - left, 40),
            tickangle=0,
            **follow,
        ),
        f"yaxis{suffix}": frame.axis(
            range=[shape[0], 0],
            domain=[max(1 - bottom / body, 0), 1 - top / body],
            anchor=f"x{suffix}",
            showticklabels=cut.rows is not None,
            **_ticks(_borders(grid.rows.cuts), shape[0], bottom - top, 16),
            **follow_y,
        ),
    }


def _borders(cuts: Sequence[Sequence[tuple[int, int]]]) -> list[int]:
    return [] if not cuts else [cuts[0][0][0], *(stop for _, stop in cuts[0])]


def _ticks(borders: list[int], extent: int, length_px: float, room_px: float) -> dict[str, Any]:
    """The borders of the blocks, as many as there is room for; the last one always."""
    kept: list[int] = []
    for border in borders:
        if not kept or (border - kept[-1]) / extent * length_px >= room_px:
            kept.append(border)
    if borders and kept[-1] != borders[-1]:
        kept[-1 if len(kept) > 1 else len(kept) :] = [borders[-1]]
    return {"tickvals": kept, "ticktext": [str(border) for border in kept]}


def _head(
    one: Panel, left: float, above: float, tile_px: float, width_px: float, body: float
) -> dict[str, Any]:
    most = int(tile_px / labels.width_px("x", frame.NOTE_PX))
    lines = [f"<b>{labels.escape(labels.cut(one.name, most - 2))}</b>"]
    if one.array is not None:
        lines.append(labels.escape(labels.cut(formatting.spec_text(one.array.spec), most)))
    if one.grid is not None and one.array is not None:
        count = len(one.grid.holders)
        known = one.array.bytes_per_device is not None
        each = f"{formatting.bytes_text(one.array.bytes_per_device)} per device"
        blocks = "whole on each device" if count == 1 else formatting.counted(count, "block")
        said = f"{blocks}, {each if known else 'bytes unknown'}"
        lines.append(labels.escape(labels.cut(said, most)))
    return {
        "text": "<br>".join(lines),
        "showarrow": False,
        "x": left / (width_px - 4),
        "xref": "paper",
        "xanchor": "left",
        "y": 1 - above / body,
        "yref": "paper",
        "yanchor": "top",
        "align": "left",
        "font": {"size": frame.NOTE_PX},
    }


def _sentence(
    one: Panel, box: tuple[float, float, float, float], width_px: float, body: float
) -> dict[str, Any]:
    left, right, top, bottom = box
    lines = frame.note_lines([one.absent], right - left - 10)
    return {
        "text": "<br>".join(map(labels.escape, lines)),
        "showarrow": False,
        "x": left / (width_px - 4),
        "xref": "paper",
        "xanchor": "left",
        "y": 1 - (top + bottom) / 2 / body,
        "yref": "paper",
        "yanchor": "middle",
        "align": "left",
        "font": {"size": frame.NOTE_PX, "color": frame.MIDDLE_GREY},
    }


def _notes(panels: Sequence[Panel], cut: Cut) -> list[str]:
    drawn = next((one for one in panels if one.array is not None and one.grid is not None), None)
    if drawn is None or drawn.array is None:
        return []
    array = drawn.array

    def named(dimension: int) -> str:
        logical = array.logical_axes[dimension] if array.logical_axes else None
        return f"dim {dimension}" + (f" ({logical})" if logical else "")

    said = []
    if cut.rows is not None:
        said.append(f"↓ {named(cut.rows)}")
    if cut.columns is not None:
        said.append(f"→ {named(cut.columns)}")
    said += [f"{named(dimension)} cut at {index}" for dimension, index in sorted(cut.at.items())]
    whole = [
        named(dimension)
        for dimension in range(len(array.shape))
        if dimension not in (cut.rows, cut.columns, *cut.at)
    ]
    said += [f"{', '.join(whole)} whole"] if whole else []
    dtype = formatting.dtype_text(array.dtype)
    shape = f"{formatting.shape_text(array.shape)} {dtype}"
    return [" · ".join([shape, *said]) + "; the numbers in the blocks are devices"]
