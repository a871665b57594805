"""All arrays at once as small maps of the mesh, each colored by the block that a device holds.

One heatmap holds all maps: a browser draws it at once, where a chart for each takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from inspector.core import formatting, sharding
from inspector.core.folding import Fold, fold
from inspector.core.snapshot import Array, Mesh
from inspector.figures import (
    frame,
    labels,
    lattice,
    mesh_fold,
    mesh_map,
    palette,
)
from inspector.figures.block_map import why_no_map
from inspector.figures.lattice import Sheet

_TILE_PX = 200  # the width for which a map is laid out, at least
_TILE_GAP_PX = 18
_TITLE_PX = 46  # two lines above each map, and the space before them
_MAP_HEIGHT_PX = (28, 96)
_LABEL_PX = 12
_SMALLEST_LABELLED_PX = 17  # cells at least so wide and high show their block's number
MOST_MAPS = 120  # a page of more maps is not read; the largest arrays are kept

# All maps share these colors: grey, the eight of few blocks, and shades for many.
_SHADES = 32
_COLORS = (
    palette.REPLICATED,
    *palette.TOL_LIGHT,
    *palette.colors_of_blocks(_SHADES),
)


@dataclass(frozen=True)
class Tile:
    """One small map: folded arrays, and the block that each device holds, in mesh order."""

    fold: Fold
    block: np.ndarray
    blocks: int


def tiles(arrays: Iterable[Array], mesh: Mesh) -> tuple[Tile, ...]:
    """A map for each fold whose placement is known, in the order of the arrays."""
    found = []
    for one in fold(arrays):
        if why_no_map(one.first, mesh) is None:
            placement = sharding.place_array(one.first, mesh)
            assert placement is not None  # `why_no_map` has just placed it
            found.append(Tile(one, placement.block, placement.blocks))
    return tuple(found)


def color_numbers(tile: Tile) -> np.ndarray:
    """For each device the place of its block's color among the shared colors, uint8."""
    if tile.blocks == 1:
        return np.zeros(tile.block.shape, dtype=np.uint8)
    few = len(palette.TOL_LIGHT)
    if tile.blocks <= few:
        return (1 + tile.block).astype(np.uint8)
    return (1 + few + tile.block * (_SHADES - 1) // (tile.blocks - 1)).astype(np.uint8)


def small_multiples(
    arrays: Iterable[Array], mesh: Mesh, *, most_maps: int = MOST_MAPS, width_px: int = 1000
) -> go.Figure | None:
    """One figure of all maps; None if no array has a map. Selecting gives the first array's path."""
    arrays = tuple(arrays)
    found = tiles(arrays, mesh)
    if not found:
        return None
    shown = _largest(found, most_maps)
    drawn = [tile.block for tile in shown]
    folded = mesh_fold.folded_axes(mesh, drawn)
    if mesh_fold.cells(mesh, folded) > mesh_fold.MOST_CELLS:
        return None
    across = max(1, min(int((width_px + _TILE_GAP_PX) / (_TILE_PX + _TILE_GAP_PX)), len(shown)))
    tile_px = (width_px - 4 - _TILE_GAP_PX * (max(across, 3 if width_px > 700 else 1) - 1)) / max(
        across, 3 if width_px > 700 else 1
    )
    sheet, map_px = _map_layout(mesh, drawn, tile_px)
    down = -(-len(shown) // across)
    columns = [
        edge
        for tile in range(across)
        for edge in _shift(sheet.columns.edges(tile_px), tile * (tile_px + _TILE_GAP_PX))
    ]
    rows = [
        edge
        for tile in range(down)
        for edge in _shift(sheet.rows.edges(map_px), tile * (map_px + _TITLE_PX) + _TITLE_PX)
    ]
    left_out = len(arrays) - sum(tile.fold.count for tile in shown)
    rest = f"; {left_out:,} not drawn" if left_out else ""
    shades = (
        f"; beyond {_SHADES} blocks, neighbours share a shade"
        if any(tile.blocks > _SHADES for tile in shown)
        else ""
    )
    notes = frame.note_lines(
        [
            f"mesh {mesh_map.axes_text(mesh)}; within a map, the same color is the same block{shades}{rest}",
            mesh_fold.text(mesh, folded),
        ],
        width_px,
    )
    top = frame.heading_px(len(notes)) - 4
    height = down * (map_px + _TITLE_PX)
    width = across * tile_px + (across - 1) * _TILE_GAP_PX
    return frame.figure(
        [
            _heatmap(shown, mesh, sheet, columns, rows, across),
            _titles(shown, across, tile_px, map_px),
            _selection(shown, mesh, across, tile_px, map_px),
        ],
        width + 4,
        top + height + 8,
        title=frame.title("What each device holds of every array", width_px),
        margin={"l": 2, "r": 2, "t": top, "b": 8},
        xaxis=frame.axis(range=[0, width], showticklabels=False),
        yaxis=frame.axis(range=[height, 0], showticklabels=False),
        annotations=[frame.notes_above(notes, 2)],
        hovermode="closest",
        hoverdistance=-1,
    )


def _largest(found: Sequence[Tile], most: int) -> Sequence[Tile]:
    """The largest folds, still in the order in which they came."""
    if len(found) <= most:
        return found
    by_size = sorted(range(len(found)), key=lambda place: -(found[place].fold.bytes or 0))
    return [found[place] for place in sorted(by_size[:most])]


def _map_layout(mesh: Mesh, drawn: Sequence[np.ndarray], width_px: float) -> tuple[Sheet, float]:
    """(sheet of device positions, height) of one small map; cells of a pixel may touch, none is cut."""
    grid = mesh_map.mesh_grid(mesh, drawn)
    rows, columns = (
        lattice.side([[1.0] * mesh.shape[axis] for axis in axes])
        for axes in (grid.rows, grid.columns)
    )
    low, high = _MAP_HEIGHT_PX
    sheet = lattice.Sheet(rows, columns, grid.position)
    down, across = sheet.cells.shape
    if across > 4 * width_px / 10:
        sheet = lattice.wrap_columns(sheet, lattice.line_length(across, int(width_px / 6)))
    elif down > high / 2 and across * 2 <= width_px / 6:
        groups = int(width_px / 6 / across)
        sheet = lattice.wrap_rows(sheet, -(-down // groups))
    down, across = sheet.cells.shape
    cell = (width_px - sheet.columns.gaps_px) / across
    height = min(max(cell * down * 0.75, low), high)
    return sheet, max(height, 2 * down) + sheet.rows.gaps_px


def _heatmap(
    shown: Sequence[Tile],
    mesh: Mesh,
    sheet: Sheet,
    columns: list[tuple[float, float]],
    rows: list[tuple[float, float]],
    across: int,
) -> go.Heatmap:
    empty = 255  # the number of a gap: above zmax, and drawn see-through
    x, column_slots = _borders(columns)
    y, row_slots = _borders(rows)
    z = np.full((len(row_slots), len(column_slots)), empty, dtype=np.uint8)
    text = np.full(z.shape, "", dtype=object)
    down, wide = sheet.cells.shape
    labelled = (
        min(stop - start for start, stop in columns) >= _SMALLEST_LABELLED_PX
        and min(stop - start for start, stop in rows) >= _SMALLEST_LABELLED_PX
    )
    row_of = np.array([place for place, slot in enumerate(row_slots) if slot is not None])
    column_of = np.array([place for place, slot in enumerate(column_slots) if slot is not None])
    held = sheet.cells >= 0
    for number, tile in enumerate(shown):
        numbers = np.where(held, color_numbers(tile)[sheet.cells], empty)
        at_rows = row_of[(number // across) * down : (number // across + 1) * down]
        at_columns = column_of[(number % across) * wide : (number % across + 1) * wide]
        z[np.ix_(at_rows, at_columns)] = numbers
        if labelled and tile.blocks <= len(palette.TOL_LIGHT):
            names = np.where(held, tile.block[sheet.cells].astype(str), "")
            text[np.ix_(at_rows, at_columns)] = names
    # The last band is the gaps': color 255 is cut off at zmax.
    scale = palette.steps((*_COLORS, frame.TRANSPARENT))
    parted = min(stop - start for start, stop in columns + rows) >= 5
    return go.Heatmap(
        x=x,
        y=y,
        z=z,
        zmin=-0.5,
        zmax=len(_COLORS) + 0.5,
        colorscale=scale,
        showscale=False,
        text=text.tolist() if labelled else None,
        texttemplate="%{text}" if labelled else None,
        textfont={"size": 10, "color": palette.BLACK},
        xgap=1 if parted else 0,
        ygap=1 if parted else 0,
        hoverinfo="skip",
    )


def _titles(shown: Sequence[Tile], across: int, tile_px: float, map_px: float) -> go.Scatter:
    most = int(tile_px / labels.width_px("x", _LABEL_PX))
    return go.Scatter(
        x=[(number % across) * (tile_px + _TILE_GAP_PX) for number in range(len(shown))],
        y=[
            (number // across) * (map_px + _TITLE_PX) + _TITLE_PX - 3
            for number in range(len(shown))
        ],
        mode="text",
        text=[
            f"{labels.escape(_name(tile.fold, most))}<br>"
            f"{labels.escape(labels.cut(formatting.spec_text(tile.fold.first.spec), most))}"
            for tile in shown
        ],
        textposition="top right",
        textfont={"size": _LABEL_PX},
        cliponaxis=False,
        hoverinfo="skip",
    )


def _name(one: Fold, most: int) -> str:
    count = f" ×{one.count}" if one.count > 1 else ""
    return labels.middle_cut(one.path, most - len(count)) + count


def _selection(
    shown: Sequence[Tile], mesh: Mesh, across: int, tile_px: float, map_px: float
) -> go.Scatter:
    """One invisible point a map; hovering says what it is of."""
    return go.Scatter(
        x=[
            (number % across) * (tile_px + _TILE_GAP_PX) + tile_px / 2
            for number in range(len(shown))
        ],
        y=[
            (number // across) * (map_px + _TITLE_PX) + _TITLE_PX + map_px / 2
            for number in range(len(shown))
        ],
        mode="markers",
        marker={"size": 12},
        opacity=0,
        customdata=[tile.fold.first.path for tile in shown],
        text=[_hover(tile, mesh) for tile in shown],
        hovertemplate="%{text}<extra></extra>",
    )


def _hover(tile: Tile, mesh: Mesh) -> str:
    one = tile.fold.first
    copies = mesh.size // tile.blocks
    logical = formatting.logical_text(one.logical_axes)
    rows = [
        f"{formatting.shape_text(one.shape)} {one.dtype}",
        f"{f'{logical} → ' if logical else ''}{formatting.spec_text(one.spec)}",
        f"{tile.blocks} block{'s' * (tile.blocks != 1)} on {mesh.size} devices"
        + (f", {copies} copies of each" if copies > 1 and one.shards is None else ""),
    ]
    if tile.blocks <= 4:
        for number in range(tile.blocks):
            devices = [
                device
                for device, held in zip(mesh.devices, tile.block, strict=True)
                if held == number
            ]
            rows.append(f"block {number}: devices {formatting.devices_text(devices)}")
    return "<br>".join([f"<b>{labels.escape(tile.fold.path)}</b>", *map(labels.escape, rows)])


def _shift(edges: list[tuple[float, float]], by: float) -> list[tuple[float, float]]:
    return [(start + by, stop + by) for start, stop in edges]


def _borders(edges: list[tuple[float, float]]) -> tuple[list[float], list[int | None]]:
    """All borders in order, and for each piece between two the slot that it is, None for a gap."""
    borders, slots = [edges[0][0]], []
    for number, (start, stop) in enumerate(edges):
        if start > borders[-1] + 1e-6:
            borders.append(start)
            slots.append(None)
        borders.append(stop)
        slots.append(number)
    return [round(border, 2) for border in borders], slots
