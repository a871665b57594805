"""The same array in every layout, side by side: its blocks in index space, with axes that zoom together.

All maps show the same pair of dimensions, so that the same place in each map is the same elements. Every
other dimension is sliced at an index, the same for all maps, or left whole if no layout splits it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from inspector.figures import block_map, cells, frame, labels, palette, ticks
from inspector.figures.block_grid import (
    Arrangement,
    BlockGrid,
    GridSide,
    Pieces,
    block_grid,
    placed,
    split_dimensions,
    why_no_map,
)
from inspector.records.snapshot import Array, Mesh
from inspector.sharding import sharding_text
from inspector.text import formatting

_GAP_PX = 26
_NARROWEST_PX = 230  # a map and its labels cannot be read if narrower
_HEIGHT_PX = (110, 300)
_FLAT_PX = 70  # the height of an array of one dimension
_HEAD_PX = 60  # name, spec and blocks above each map
_FOOT_PX = 34  # tick labels, and room before the next row
_LEFT_PX = 44
_SENTENCE_PX = 30  # the height of a row in which no layout has a map
_MOST_HOVERS = 1024  # per map; beyond, the hover text has only the block


@dataclass(frozen=True)
class Panel:
    """One layout's map of the array: its blocks, or `absent`, the reason why there are none."""

    name: str
    array: Array | None
    mesh: Mesh | None
    grid: BlockGrid | None
    absent: str = ""


@dataclass(frozen=True)
class Cut:
    """The dimensions drawn as rows and as columns, and the index at which others are sliced.

    An array of one dimension has no rows (None), and a scalar also no columns.
    """

    rows: int | None
    columns: int | None
    at: Mapping[int, int]


@dataclass(frozen=True)
class _Box:
    """The place of one map or text in the plot, in pixels from its upper left corner."""

    left: float
    right: float
    top: float
    bottom: float


def cut_of(arrays: Sequence[tuple[Array, Mesh]]) -> Cut | None:
    """Choose the two dimensions that most layouts split, else the last two; None if no shape is known."""
    known = [(array, mesh) for array, mesh in arrays if array.shape is not None]
    if not known:
        return None
    rank = len(known[0][0].shape or ())
    count = [0] * rank
    for array, mesh in known:
        if len(array.shape or ()) == rank:
            for dimension in split_dimensions(array, mesh):
                count[dimension] += 1
    ranked = sorted(range(rank), key=lambda dimension: (-count[dimension], -dimension))
    shown = sorted(ranked[:2])
    rows, columns = (None, None) if not shown else (shown[0] if rank > 1 else None, shown[-1])
    at = {dimension: 0 for dimension in range(rank) if dimension not in shown and count[dimension]}
    return Cut(rows, columns, at)


def panel(name: str, array: Array | None, mesh: Mesh | None, cut: Cut, shape: Sequence[int]) -> Panel:
    """Return the map of one layout, or a panel that says why there is none.

    `shape` is the array's shape in the layout that `cut` was chosen for.
    """
    reason = _why_absent(array, mesh, shape)
    if reason or array is None or mesh is None or array.shape is None:
        return Panel(name, array, mesh, None, reason)
    rows = () if cut.rows is None else (cut.rows,)
    columns = () if cut.columns is None else (cut.columns,)
    at = ((dimension, min(index, array.shape[dimension] - 1)) for dimension, index in cut.at.items())
    arrangement = Arrangement(rows, columns, tuple(at))
    return Panel(name, array, mesh, block_grid(array, mesh, arrangement))


def linked_maps(panels: Sequence[Panel], heading: str, cut: Cut, *, width_px: int = 960) -> go.Figure | None:
    """Return one figure of all panels, whose maps zoom together; None if there are no panels."""
    if not panels:
        return None
    across = max(1, min(len(panels), int((width_px + _GAP_PX) / (_NARROWEST_PX + _GAP_PX)), 4))
    across = math.ceil(len(panels) / math.ceil(len(panels) / across))
    tile_px = (width_px - 4 - _GAP_PX * (across - 1)) / across
    extent = [
        max((_length(panel, dimension) for panel in panels if panel.grid is not None), default=1)
        for dimension in (cut.columns, cut.rows)
    ]
    # Plotly drops the last label, below the edge of its map, if it does not fit into the figure.
    right_px = labels.width_px(str(extent[0]), frame.TICK_PX) / 2
    plot_px = tile_px - _LEFT_PX - right_px
    low, high = _HEIGHT_PX
    map_px = _FLAT_PX if cut.rows is None else min(max(plot_px * extent[1] / extent[0], low), high)
    tops = [0.0]
    for first in range(0, len(panels), across):
        mapped = any(panel.grid is not None for panel in panels[first : first + across])
        tops.append(tops[-1] + _HEAD_PX + (map_px + _FOOT_PX if mapped else _SENTENCE_PX))
    size = (width_px - 4, tops[-1])
    axes: dict[str, Any] = {}
    traces: list[go.Heatmap] = []
    annotations = []
    for number, panel in enumerate(panels):
        left = (number % across) * (tile_px + _GAP_PX)
        top, bottom = tops[number // across], tops[number // across + 1]
        annotations.append(_text(_head(panel, tile_px), _Box(left, left, top, top), size, "top"))
        if panel.grid is None:
            lines = map(labels.escape, frame.note_lines([panel.absent], tile_px - 10))
            box = _Box(left, left, top + _HEAD_PX / 2, bottom)
            annotations.append(_text(lines, box, size, "middle"))
            continue
        upper = top + _HEAD_PX
        box = _Box(left + _LEFT_PX, left + tile_px - right_px, upper, upper + map_px)
        suffix = "" if not traces else str(number + 1)
        traces += _map(panel, panel.grid, suffix, extent, (plot_px, map_px))
        axes |= _axes(panel.grid, suffix, box, extent, size, cut)
    if not traces:
        axes = {"xaxis": {"visible": False}, "yaxis": {"visible": False}}
    return frame.plot(
        traces,
        width_px,
        size[1],
        heading=heading,
        notes=_notes(panels, cut),
        bottom=4,
        pad=0,
        annotations=annotations,
        hoverdistance=-1,
        **axes,
    )


def _why_absent(array: Array | None, mesh: Mesh | None, shape: Sequence[int]) -> str:
    if array is None:
        return "This layout has no array with this path."
    if mesh is None:
        return "The mesh is unknown."
    if array.shape is None:
        return "The shape is unknown."
    if len(array.shape) != len(shape):
        return (
            f"The array has {formatting.counted(len(array.shape), 'dimension')} in this layout, "
            f"{formatting.shape_text(array.shape)}, and {len(shape)} in the others."
        )
    return why_no_map(array, mesh) or ""


def _length(panel: Panel, dimension: int | None) -> int:
    if dimension is None or panel.array is None or panel.array.shape is None:
        return 1
    return panel.array.shape[dimension]


def _pieces(side: GridSide) -> Pieces:
    return side.cuts[0] if side.cuts else ((0, 1),)


def _map(
    panel: Panel, grid: BlockGrid, suffix: str, extent: Sequence[int], size_px: tuple[float, float]
) -> list[go.Heatmap]:
    row_pieces, column_pieces = _pieces(grid.rows), _pieces(grid.columns)
    numbers = grid.block.reshape(-1).tolist()
    widths = [(stop - start) / extent[0] * size_px[0] for start, stop in column_pieces]
    heights = [(stop - start) / extent[1] * size_px[1] for start, stop in row_pieces]
    columns, rows = [(0.0, width) for width in widths], [(0.0, height) for height in heights]
    sheet = block_map.sheet_of(grid)
    text = block_map.cell_text(grid, numbers, sheet, columns, rows)
    on_mesh = placed(panel.array, panel.mesh) if panel.array and panel.mesh else None
    assert on_mesh is not None  # it has a grid
    colors = palette.colors_of_blocks(on_mesh.placement.block, on_mesh.mesh)
    heatmaps = cells.heatmaps(sheet, list(column_pieces), list(row_pieces), numbers, colors, text)
    separator = cells.separator_px(columns, rows)
    hover = _hover(panel, grid)
    for heatmap in heatmaps:
        heatmap.update(
            xaxis=f"x{suffix}",
            yaxis=f"y{suffix}",
            xgap=separator,
            ygap=separator,
            hoverinfo=None,
            hoverongaps=False,
            customdata=[hover[at : at + len(widths)] for at in range(0, len(hover), len(widths))],
            hovertemplate=frame.HOVER_TEXT,
        )
    return heatmaps


def _hover(panel: Panel, grid: BlockGrid) -> list[str]:
    """Return the escaped hover text of each cell; in large maps only the number of the block."""
    on_mesh = placed(panel.array, panel.mesh) if panel.array and panel.mesh else None
    texts = [f"block {number}" for number in range(len(grid.holders))]
    if on_mesh is not None and grid.block.size <= _MOST_HOVERS:
        name = frame.hover([labels.cut(panel.name, 40)])
        texts = [f"{name}<br>{text}" for text in block_map.hover_of_blocks(on_mesh)]
    return [texts[number] if number >= 0 else "no device holds these elements" for number in grid.block.flat]


def _axes(
    grid: BlockGrid,
    suffix: str,
    box: _Box,
    extent: Sequence[int],
    size: tuple[float, float],
    cut: Cut,
) -> dict[str, Any]:
    """Return the axes of one map. Those after the first match it, so that all maps zoom together."""
    width, height = size
    return {
        f"xaxis{suffix}": frame.axis(
            range=[0, extent[0]],
            domain=[box.left / width, min(box.right / width, 1)],
            anchor=f"y{suffix}",
            showticklabels=cut.columns is not None,
            **_ticks(grid.columns, (box.right - box.left) / extent[0]),
            **({"matches": "x"} if suffix else {}),
        ),
        f"yaxis{suffix}": frame.axis(
            range=[extent[1], 0],
            domain=[max(1 - box.bottom / height, 0), 1 - box.top / height],
            anchor=f"x{suffix}",
            showticklabels=cut.rows is not None,
            **_ticks(grid.rows, (box.bottom - box.top) / extent[1], upright=True),
            **({"matches": "y"} if suffix else {}),
        ),
    }


def _ticks(side: GridSide, px_per_index: float, upright: bool = False) -> dict[str, Any]:
    """Return the borders of the blocks that have room for a label."""
    texts = list(map(str, side.borders))
    return ticks.settings(*ticks.of_borders(side.borders, texts, px_per_index, upright=upright))


def _head(panel: Panel, tile_px: float) -> list[str]:
    """Return the escaped lines above a map: name, spec, blocks and bytes."""
    most = labels.fitting(tile_px, frame.NOTE_PX)
    lines = [f"<b>{labels.escape(labels.cut(panel.name, most - 2))}</b>"]
    if panel.array is not None:
        lines.append(labels.escape(labels.cut(sharding_text.spec_text(panel.array.spec), most)))
    if panel.grid is not None and panel.array is not None:
        count, size = len(panel.grid.holders), panel.array.bytes_per_device
        blocks = "whole on each device" if count == 1 else formatting.counted(count, "block")
        held = f"{formatting.bytes_text(size)} per device" if size is not None else "bytes unknown"
        lines.append(labels.escape(labels.cut(f"{blocks}, {held}", most)))
    return lines


def _text(lines: Any, box: _Box, size: tuple[float, float], yanchor: str) -> dict[str, Any]:
    """Return escaped lines at the upper edge of a box, or in its middle."""
    y = 1 - (box.top + box.bottom) / 2 / size[1]
    return frame.on_paper("<br>".join(lines), box.left / size[0], y, yanchor=yanchor)


def _notes(panels: Sequence[Panel], cut: Cut) -> list[str]:
    array = next((panel.array for panel in panels if panel.array and panel.grid is not None), None)
    if array is None or array.shape is None:
        return []

    def named(dimension: int) -> str:
        logical = array.logical_axes[dimension] if array.logical_axes else None
        return f"dim {dimension}" + (f" ({logical})" if logical else "")

    parts = [f"{formatting.shape_text(array.shape)} {formatting.dtype_text(array.dtype)}"]
    if cut.rows is not None:
        parts.append(f"↓ {named(cut.rows)}")
    if cut.columns is not None:
        parts.append(f"→ {named(cut.columns)}")
    parts += [f"{named(dimension)} sliced at {index}" for dimension, index in sorted(cut.at.items())]
    drawn = (cut.rows, cut.columns, *cut.at)
    whole = [named(number) for number in range(len(array.shape)) if number not in drawn]
    parts += [f"{', '.join(whole)} whole"] if whole else []
    return [" · ".join(parts) + "; the numbers in the blocks are devices"]
