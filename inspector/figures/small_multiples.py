"""All arrays at once as small maps of the mesh, each colored by the block that a device holds.

One heatmap holds all maps: a browser draws it at once, but takes seconds for a chart per map.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from inspector.core import formatting
from inspector.core.folding import Fold, fold
from inspector.core.formatting import mesh_text
from inspector.core.snapshot import Array, Mesh
from inspector.figures import cells, frame, holdings, labels, lattice, mesh_layout, palette
from inspector.figures.block_grid import placed

_TILE_PX = 200  # the minimum width of a map
_TILE_GAP_PX = 18
_TITLE_PX = 46  # two lines above each map, and the space before them
_MAP_HEIGHT_PX = (28, 96)
_LABEL_PX = 12
_SMALLEST_LABELLED_PX = 17  # cells at least this wide and high show the number of their block
MOST_MAPS = 120  # of more arrays, the largest are drawn

_FEW = 8  # maps of at most this many blocks name the block in each cell


@dataclass(frozen=True)
class Tile:
    """One small map: folded arrays, and the block that each device holds, in mesh order."""

    fold: Fold
    block: np.ndarray
    blocks: int


@dataclass(frozen=True)
class _Plan:
    """The places of the maps in pixels, and the cells of each map."""

    sheet: lattice.Sheet
    count: int
    across: int
    tile_px: float
    map_px: float

    @property
    def size(self) -> tuple[float, float]:
        down = -(-self.count // self.across)
        return (
            self.across * (self.tile_px + _TILE_GAP_PX) - _TILE_GAP_PX,
            down * (self.map_px + _TITLE_PX),
        )

    def corner(self, number: int) -> tuple[float, float]:
        """Return the upper left corner of a map, below its title."""
        row, column = divmod(number, self.across)
        return (column * (self.tile_px + _TILE_GAP_PX), row * (self.map_px + _TITLE_PX) + _TITLE_PX)

    def edges(self) -> tuple[cells.Edges, cells.Edges]:
        """Return the columns and the rows of all maps."""
        columns, rows = self.sheet.columns.edges(self.tile_px), self.sheet.rows.edges(self.map_px)
        lefts = [self.corner(number)[0] for number in range(self.across)]
        tops = [self.corner(number)[1] for number in range(0, self.count, self.across)]
        return (
            [(left + start, left + stop) for left in lefts for start, stop in columns],
            [(top + start, top + stop) for top in tops for start, stop in rows],
        )


def tiles(arrays: Iterable[Array], mesh: Mesh) -> tuple[Tile, ...]:
    """Return a map for each fold that has a shard map, in the order of the arrays."""
    found = []
    for folded in fold(arrays):
        on_mesh = placed(folded.first, mesh)
        if on_mesh is not None and not on_mesh.why_no_map:
            found.append(Tile(folded, on_mesh.placement.block, on_mesh.placement.blocks))
    return tuple(found)


def small_multiples(
    arrays: Iterable[Array], mesh: Mesh, *, most_maps: int = MOST_MAPS, width_px: int = 1000
) -> go.Figure | None:
    """Return one figure of all maps; None if no array has a map. Selecting gives an array's path.

    If there are more than `most_maps`, the smallest arrays are left out.
    """
    arrays = tuple(arrays)
    if not mesh_layout.has_devices(mesh):
        return None
    shown = _largest(tiles(arrays, mesh), most_maps)
    if not shown:
        return None
    drawn = [tile.block for tile in shown]
    folded = mesh_layout.folded_axes(mesh, drawn)
    if mesh_layout.cell_count(mesh, folded) > mesh_layout.MOST_CELLS:
        return None
    plan = _plan(mesh, drawn, width_px)
    left_out = len(arrays) - sum(tile.fold.count for tile in shown)
    note = f"mesh {mesh_text(mesh)}; within a map, the same color is the same block"
    if any(tile.blocks > palette.SHADES for tile in shown):
        note += f"; beyond {palette.SHADES} blocks, neighbors share a shade"
    if left_out:
        note += f"; {left_out:,} not drawn"
    width, height = plan.size
    return frame.plot(
        [_heatmap(shown, plan, mesh), _titles(shown, plan), _selection(shown, plan, mesh)],
        width_px,
        height,
        heading="What each device holds of every array",
        notes=[note, mesh_layout.folding_text(mesh, folded)],
        right=max(width_px - 2 - width, 2),
        pad=0,
        xaxis=frame.axis(range=[0, width], showticklabels=False),
        yaxis=frame.axis(range=[height, 0], showticklabels=False),
        hoverdistance=-1,
    )


def _largest(tiles: Sequence[Tile], most: int) -> Sequence[Tile]:
    """Return the largest folds in their original order."""
    if len(tiles) <= most:
        return tiles
    by_size = sorted(range(len(tiles)), key=lambda place: -(tiles[place].fold.bytes or 0))
    return [tiles[place] for place in sorted(by_size[:most])]


def _plan(mesh: Mesh, drawn: Sequence[np.ndarray], width_px: int) -> _Plan:
    """Place the maps; their cells may touch if they are a pixel wide, but none is left out."""
    fitting = max(1, int((width_px + _TILE_GAP_PX) / (_TILE_PX + _TILE_GAP_PX)))
    across = min(fitting, len(drawn))
    columns = max(across, 3 if width_px > 700 else 1)  # a single map does not fill a wide page
    tile_px = (width_px - 4 - _TILE_GAP_PX * (columns - 1)) / columns
    grid = mesh_layout.mesh_grid(mesh, drawn)
    sheet = dataclasses.replace(grid.sheet(mesh), cells=grid.position)
    low, high = _MAP_HEIGHT_PX
    down, wide = sheet.cells.shape
    if wide > 4 * tile_px / 10:
        sheet = lattice.wrap_columns(sheet, lattice.line_length(wide, int(tile_px / 6)))
    elif down > high / 2 and wide * 2 <= tile_px / 6:
        sheet = lattice.wrap_rows(sheet, -(-down // int(tile_px / 6 / wide)))
    down, wide = sheet.cells.shape
    cell = (tile_px - sheet.columns.gaps_px) / wide
    map_px = max(min(max(cell * down * 0.75, low), high), 2 * down) + sheet.rows.gaps_px
    return _Plan(sheet, len(drawn), across, tile_px, map_px)


def _heatmap(shown: Sequence[Tile], plan: _Plan, mesh: Mesh) -> go.Heatmap:
    columns, rows = plan.edges()
    positions = plan.sheet.cells
    shape = (len(shown), *positions.shape)
    at, x, y = cells.panel_places(np.arange(np.prod(shape)).reshape(shape), plan.across, columns, rows)
    smallest = min(stop - start for start, stop in columns + rows)
    labelled = smallest >= _SMALLEST_LABELLED_PX
    colors: dict[str, int] = {frame.TRANSPARENT: 0}
    numbers = []
    for tile in shown:
        shades = palette.colors_of_blocks(tile.block, mesh)
        of_block = np.array([colors.setdefault(shade, len(colors)) for shade in shades])
        numbers.append(np.where(positions >= 0, of_block[tile.block[positions]], 0))
    z = np.append(np.ravel(numbers), 0)[at].astype(np.uint8 if len(colors) < 256 else np.uint16)
    names = [
        np.where((positions >= 0) & (tile.blocks <= _FEW), tile.block[positions].astype(str), "")
        for tile in shown
    ]
    text = np.append(np.ravel(names).astype(object), "")[at]
    separator = 1 if cells.separator_px(columns, rows) else 0
    return go.Heatmap(
        x=x,
        y=y,
        z=z,
        **palette.coloring(tuple(colors)),
        showscale=False,
        text=text.tolist() if labelled else None,
        texttemplate="%{text}" if labelled else None,
        textfont={"size": 10, "color": palette.BLACK},
        xgap=separator,
        ygap=separator,
        hoverinfo="skip",
    )


def _titles(shown: Sequence[Tile], plan: _Plan) -> go.Scatter:
    most = labels.fitting(plan.tile_px, _LABEL_PX)
    corners = [plan.corner(number) for number in range(len(shown))]
    titles = []
    for tile in shown:
        count = f" ×{tile.fold.count}" if tile.fold.count > 1 else ""
        name = labels.middle_cut(tile.fold.path, most - len(count)) + count
        spec = labels.cut(formatting.spec_text(tile.fold.first.spec), most)
        titles.append(labels.lines(f"{name}\n{spec}"))
    return cells.texts([(x, y - 3) for x, y in corners], titles, "top right", _LABEL_PX)


def _selection(shown: Sequence[Tile], plan: _Plan, mesh: Mesh) -> go.Scatter:
    """Return one invisible point per map."""
    corners = [plan.corner(number) for number in range(len(shown))]
    return cells.hover_points(
        [(x + plan.tile_px / 2, y + plan.map_px / 2) for x, y in corners],
        [_hover(tile, mesh) for tile in shown],
        [tile.fold.first.path for tile in shown],
    )


def _hover(tile: Tile, mesh: Mesh) -> str:
    array = tile.fold.first
    copies = mesh.size // tile.blocks
    lines = [
        tile.fold.path,
        *holdings.about(array),
        f"{formatting.counted(tile.blocks, 'block')} on {mesh.size} devices"
        + (f", {copies} copies of each" if copies > 1 and array.shards is None else ""),
    ]
    if tile.blocks <= 4:
        for number in range(tile.blocks):
            devices = [mesh.devices[at] for at in np.flatnonzero(tile.block == number).tolist()]
            lines.append(f"block {number}: devices {formatting.devices_text(devices)}")
    return frame.hover(lines)
