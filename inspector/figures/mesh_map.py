"""The mesh, devices in mesh order, colored by the block of an array that each one holds.

The colors are those of the block map: the same color is the same data. One mesh axis is a row, wrapped
if it is long; two are rows and columns; more are nested with gaps.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from inspector.core import formatting, sharding
from inspector.core.snapshot import Array, Mesh
from inspector.figures import block_map as blocks
from inspector.figures import (
    cells,
    frame,
    holdings,
    labels,
    lattice,
    mesh_fold,
    palette,
)
from inspector.figures.lattice import Sheet

_CELL_HEIGHT_PX = (15, 88)
_MOST_HEIGHT_PX = 480
_TALLEST_PX = 1_000  # a mesh that is taller with texts in its cells has lower cells without
_LOWEST_PX = 5  # more than the line between processes
_BORDER_PX = (
    4  # the line between processes: more than the gap between cells, less than a small cell
)
_MOST_PROCESSES_NAMED = 8
_NARROWEST_PX = 4  # columns of a mesh of several axes are wrapped only when narrower than this


@dataclass(frozen=True)
class MeshGrid:
    """The mesh in rows and columns: which mesh axes lie along each side, outer first.

    position: (rows, columns) place of each cell's device in mesh order, of the first one where a cell is
      several devices.
    folded: mesh axes along which all is the same, and which are drawn once for their size.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    position: np.ndarray
    folded: tuple[int, ...] = ()


def mesh_grid(mesh: Mesh, drawn: Sequence[np.ndarray] = (), first: int = 0) -> MeshGrid:
    """Lay the mesh's axes out along rows and columns; of many axes, those of size 1 are left out.

    Args:
      drawn: what is drawn of every device, (devices,) each, by which a mesh too large to draw is folded.
      first: a position in mesh order that has a cell of its own, or is the one that stands for its cell.
    """
    axes = holdings.axes_shown(mesh)
    folded = mesh_fold.folded_axes(mesh, drawn)
    laid_out = tuple(axis for axis in axes if axis not in folded)
    rows, columns = blocks.alternate(laid_out)
    sizes = [mesh.shape[axis] for axis in axes]
    order = np.arange(mesh.size).reshape(sizes)
    place = np.unravel_index(first, sizes)
    order = order[
        tuple(at if axis in folded else slice(None) for axis, at in zip(axes, place, strict=True))
    ]
    order = order.transpose([laid_out.index(axis) for axis in rows + columns])
    down = int(np.prod([mesh.shape[axis] for axis in rows], dtype=np.int64))
    return MeshGrid(rows, columns, order.reshape(down, -1), folded)


def mesh_map(
    array: Array,
    mesh: Mesh,
    *,
    highlight: int | None = None,
    width_px: int = 480,
) -> go.Figure | None:
    """The mesh colored by what each device holds of `array`; None if `why_no_map` has a reason.

    Selecting gives device ids. `highlight` is a block to emphasise; texts are chosen for `width_px`.
    """
    if blocks.why_no_map(array, mesh) is not None:
        return None
    placement = sharding.place_array(array, mesh)
    assert placement is not None  # `why_no_map` has just placed it
    grid = mesh_grid(mesh, [placement.block])
    sheet, width, height, remark = layout(grid, mesh, width_px)
    positions = grid.position.reshape(-1).tolist()
    columns, rows = sheet.columns.edges(width), sheet.rows.edges(height)
    block = [int(placement.block[position]) for position in positions]
    devices = [mesh.devices[position] for position in positions]
    hover = holdings.hover_of_devices(array, mesh, placement, positions, grid.folded)
    process = None if grid.folded else processes_of(mesh)
    owners = [process[position] for position in positions] if process else None
    several = mesh_fold.devices_a_cell(mesh, grid.folded)
    text = _cell_text(devices, block, several, columns, rows, owners)
    traces = [
        *cells.heatmaps(sheet, columns, rows, block, placement.blocks, text, highlight),
        *([_borders(sheet, columns, rows, owners)] if owners else []),
        cells.selection(sheet, columns, rows, devices, hover),
    ]
    row_ticks = _ticks(mesh, grid.rows, sheet, "rows", rows)
    column_ticks = _ticks(mesh, grid.columns, sheet, "columns", columns)
    below = [_side_title(mesh, grid.columns, "→"), remark]
    notes = [
        *subtitle(array, mesh, placement.blocks),
        mesh_fold.text(mesh, grid.folded),
        _side_title(mesh, grid.rows, "↓"),
    ]
    return frame.map_figure(
        traces,
        width_px,
        width,
        height,
        heading=f"Mesh {axes_text(mesh)}",
        notes=[note for note in notes if note],
        below=[note for note in below if note],
        row_ticks=row_ticks,
        column_ticks=column_ticks,
        to_scale=False,
    )


def processes_of(mesh: Mesh) -> tuple[int, ...] | None:
    """The process of each device in mesh order; None where all are of one, or it is not known."""
    return mesh.processes if mesh.processes and len(set(mesh.processes)) > 1 else None


def processes_text(mesh: Mesh) -> str:
    """Which devices each process has: `process 0 has 0–3, process 1 has 2048–2051`; in short for many."""
    process = processes_of(mesh) or ()
    own: dict[int, list[int]] = {}
    for number, device in zip(process, mesh.devices, strict=True):
        own.setdefault(number, []).append(device)
    if len(own) > _MOST_PROCESSES_NAMED:
        return f"in {len(own)} processes, parted by thick lines"
    return ", ".join(
        f"process {number} has {formatting.devices_text(sorted(held), most=2)}"
        for number, held in sorted(own.items())
    )


def axes_text(mesh: Mesh) -> str:
    """The mesh's axes and their sizes: `data 2 × model 4`; of many: `fsdp 16, and 11 axes of size 1`."""
    shown = holdings.axes_shown(mesh)
    text = " × ".join(f"{mesh.axes[axis].name} {mesh.axes[axis].size}" for axis in shown)
    rest = len(mesh.axes) - len(shown)
    return f"{text}, and {formatting.counted(rest, 'axis', 'axes')} of size 1" if rest else text


def subtitle(array: Array, mesh: Mesh, count: int) -> list[str]:
    """Lines about the mesh: how many devices, and what the colors mean."""
    order = "" if mesh.size == 1 else " in mesh order"
    devices = [f"{formatting.counted(mesh.size, 'device')}{order}"]
    if processes_of(mesh):
        devices.append(processes_text(mesh))
    if count == 1:
        held = "it holds" if mesh.size == 1 else "all hold"
        return [*devices, f"{held} the whole of {array.path}"]
    order = "" if count <= len(palette.TOL_LIGHT) else ", light to dark"
    return [*devices, f"colored by the block held: {count} blocks{order}"]


def layout(grid: MeshGrid, mesh: Mesh, figure_width_px: float) -> tuple[Sheet, float, float, str]:
    """(sheet, width, height, remark) of a mesh in a figure so wide; a long side is wrapped."""
    width = figure_width_px - 52  # tick labels and margins
    rows, columns = (
        lattice.side([[1.0] * mesh.shape[axis] for axis in axes])
        for axes in (grid.rows, grid.columns)
    )
    sheet = lattice.wrap_narrow(
        lattice.sheet(rows, columns),
        width,
        _MOST_HEIGHT_PX + rows.gaps_px,
        narrowest=_NARROWEST_PX if grid.rows else lattice.WRAPPED_CELL_PX,
        lowest=lattice.LOWEST_PX,
    )
    remark = ""
    if sheet.wrapped == "columns":
        remark = f"wrapped, {sheet.line} {'columns' if grid.rows else 'devices'} a line"
    elif sheet.wrapped == "rows":
        remark = f"wrapped, {sheet.line} rows a column"
    down, across = sheet.cells.shape
    square = (width - sheet.columns.gaps_px) / across
    low, high = _CELL_HEIGHT_PX
    if down * low > _TALLEST_PX:
        low = max(_TALLEST_PX / down, _LOWEST_PX)
    cell = min(max(square, low), high, max(_MOST_HEIGHT_PX / down, low))
    return sheet, width, cell * down + sheet.rows.gaps_px, remark


def _cell_text(
    devices: Sequence[int],
    block: Sequence[int],
    several: int,
    columns: cells.Edges,
    rows: cells.Edges,
    owners: Sequence[int] | None,
) -> lattice.Text:
    """What stands in each cell, which is `several` devices, the first of them given."""
    size = (
        min(right - left for left, right in columns),
        min(bottom - top for top, bottom in rows),
    )
    forms: list[Callable[[int], str]] = [
        lambda cell: f"device {devices[cell]}\nblock {block[cell]}",
        lambda cell: f"{devices[cell]}\nblock {block[cell]}",
        lambda cell: str(devices[cell]),
    ]
    if several > 1:
        forms = [
            lambda cell: f"block {block[cell]}\n{several:,} devices",
            lambda cell: f"block {block[cell]}",
            lambda cell: str(block[cell]),
        ]
    elif owners is not None:
        forms.insert(
            0, lambda cell: f"device {devices[cell]}\nblock {block[cell]}\nprocess {owners[cell]}"
        )
    return lattice.fit_text(forms, range(len(devices)), [size] * len(devices))


def _borders(
    sheet: Sheet, columns: cells.Edges, rows: cells.Edges, owners: Sequence[int]
) -> go.Scatter:
    """Thick lines between cells whose devices are of different processes."""

    def owner(row: int, column: int) -> int | None:
        inside = row < len(rows) and column < len(columns)
        cell = int(sheet.cells[row, column]) if inside else -1
        return owners[cell] if cell >= 0 else None

    x: list[float | None] = []
    y: list[float | None] = []
    for row, column in itertools.product(range(len(rows)), range(len(columns))):
        (left, right), (top, bottom) = columns[column], rows[row]
        here, beside, below = owner(row, column), owner(row, column + 1), owner(row + 1, column)
        if here is not None and beside is not None and here != beside:
            middle = (right + columns[column + 1][0]) / 2
            x += [middle, middle, None]
            y += [top, bottom, None]
        if here is not None and below is not None and here != below:
            middle = (bottom + rows[row + 1][0]) / 2
            x += [left, right, None]
            y += [middle, middle, None]
    return go.Scatter(
        x=[None if place is None else round(place, 2) for place in x],
        y=[None if place is None else round(place, 2) for place in y],
        mode="lines",
        line={"color": frame.MIDDLE_GREY, "width": _BORDER_PX},
        hoverinfo="skip",
        showlegend=False,
        name="process border",
    )


def _ticks(
    mesh: Mesh, axes: tuple[int, ...], sheet: Sheet, name: str, edges: cells.Edges
) -> tuple[list[float], list[str]]:
    """Coordinates at the middle of the slots; on nested axes outer and inner ones, `0,1`."""
    if not axes:
        if sheet.wrapped is None or sheet.wrapped == name:
            return [], []
        count, step = len(edges), sheet.line
        texts = [str(line * step) for line in range(count)]
    else:
        sizes = [mesh.shape[axis] for axis in axes]
        count = int(np.prod(sizes))
        if sheet.wrapped is not None and len(edges) != count:
            return [], []
        places = zip(*np.unravel_index(np.arange(count), sizes), strict=True)
        texts = [",".join(map(str, place)) for place in places]
    middles = [(start + stop) / 2 for start, stop in edges]
    room = (
        14.0 if name == "rows" else max(labels.width_px(text, frame.TICK_PX) for text in texts) + 4
    )
    every = 1
    pitch = min((b - a for a, b in itertools.pairwise(middles)), default=room)
    while pitch * every < room:
        every *= 2
    return [round(middle, 2) for middle in middles[::every]], texts[::every]


def _side_title(mesh: Mesh, axes: tuple[int, ...], arrow: str) -> str:
    if not axes:
        return ""
    return f"{arrow} " + ", then ".join(
        f"{mesh.axes[axis].name} ({mesh.axes[axis].size})" for axis in axes
    )
