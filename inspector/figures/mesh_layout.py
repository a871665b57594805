"""The layout of a mesh in a figure: which mesh axes are rows, which are columns, and which are folded.

One mesh axis is a row, which is wrapped if it is long. Two axes are rows and columns; more are nested with
gaps. Of a mesh too large to draw, axes along which all devices look the same are drawn once ("folded").
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from inspector.figures import cells, ticks
from inspector.records.snapshot import Mesh
from inspector.text import formatting

MOST_CELLS = 9_216  # the chips of the largest TPU slice that can be bought, of TPU7x
SIDES_PX = 52  # tick labels and margins of a figure of a mesh
_FEW_AXES = 3  # a heading has no room for more
_CELL_HEIGHT_PX = (15, 88)
_MOST_HEIGHT_PX = 480
_TALLEST_PX = 1_000  # a mesh that is taller with texts gets lower cells without texts
_LOWEST_PX = 5  # more than the line between processes
_BORDER_PX = 4  # of the line between processes: wider than a gap, narrower than a small cell
_MOST_PROCESSES_NAMED = 8
_NARROWEST_PX = 4  # narrower columns of a mesh of several axes are wrapped


@dataclass(frozen=True)
class MeshGrid:
    """The mesh in rows and columns.

    rows, columns: the numbers of the mesh axes along each side, outer first.
    position: (rows, columns) the place in mesh order of the device that each cell shows. A cell of
      several devices shows one of them.
    folded: the mesh axes that are drawn once.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    position: np.ndarray
    folded: tuple[int, ...] = ()

    def sheet(self, mesh: Mesh) -> cells.Sheet:
        """Return the cells, numbered row by row, with gaps between groups."""
        rows, columns = (
            cells.side_of([[1.0] * mesh.shape[axis] for axis in axes]) for axes in (self.rows, self.columns)
        )
        return cells.sheet_of(rows, columns)


def has_devices(mesh: Mesh) -> bool:
    """Return whether the mesh names one device per place; a damaged file may not."""
    return bool(mesh.axes) and len(set(mesh.devices)) == mesh.size


def known_processes(mesh: Mesh) -> tuple[int, ...] | None:
    """Return the process of each device in mesh order; None if they are unknown."""
    return mesh.processes if mesh.processes and len(mesh.processes) == mesh.size else None


def axes_shown(mesh: Mesh) -> tuple[int, ...]:
    """Return the numbers of the mesh axes to show: all of a few, of many only those larger than 1.

    Some frameworks name a dozen axes and use two or three.
    """
    numbers = tuple(range(len(mesh.axes)))
    if len(numbers) <= _FEW_AXES:
        return numbers
    return tuple(number for number in numbers if mesh.axes[number].size > 1) or numbers[:1]


def coordinates_text(mesh: Mesh, position: int, folded: Sequence[int] = ()) -> str:
    """Return the mesh coordinates of a device, `data 0, model 3`; of folded axes, `all of data`."""
    texts = []
    for number in reversed(axes_shown(mesh)):
        axis = mesh.axes[number]
        position, at = divmod(position, axis.size)
        texts.append(f"all of {axis.name}" if number in folded else f"{axis.name} {at}")
    return ", ".join(reversed(texts))


def folded_axes(mesh: Mesh, drawn: Sequence[np.ndarray]) -> tuple[int, ...]:
    """Return the mesh axes to draw once; none if the mesh has at most `MOST_CELLS` devices.

    `drawn` are the values that the figure shows: arrays of shape (devices,) in mesh order.
    """
    if mesh.size <= MOST_CELLS or not drawn:
        return ()
    axes = [axis for axis in axes_shown(mesh) if mesh.shape[axis] > 1]
    grids = [values.reshape([mesh.shape[axis] for axis in axes]) for values in drawn]
    return tuple(
        axis
        for place, axis in enumerate(axes)
        if all(np.array_equal(np.roll(grid, 1, place), grid) for grid in grids)
    )


def cell_count(mesh: Mesh, folded: Sequence[int]) -> int:
    """Return the number of cells of the mesh if these axes are folded."""
    return mesh.size // devices_per_cell(mesh, folded)


def devices_per_cell(mesh: Mesh, folded: Sequence[int]) -> int:
    """Return the number of devices per cell."""
    return math.prod(mesh.shape[axis] for axis in folded)


def folding_text(mesh: Mesh, folded: Sequence[int]) -> str:
    """Return a note that names the folded axes; empty if there are none."""
    if not folded:
        return ""
    names, sizes = zip(*((mesh.axes[axis].name, mesh.shape[axis]) for axis in folded), strict=True)
    along = formatting.mesh_sizes_text(names, sizes)
    return f"equal along {along}: each cell is {devices_per_cell(mesh, folded):,} devices"


def mesh_grid(mesh: Mesh, drawn: Sequence[np.ndarray] = (), first: int = 0) -> MeshGrid:
    """Return the mesh axes along rows and columns, with `folded_axes` of `drawn` left out.

    `first` is a position in mesh order that its cell shows even if axes are folded.
    """
    axes = axes_shown(mesh)
    folded = folded_axes(mesh, drawn)
    laid_out = tuple(axis for axis in axes if axis not in folded)
    rows, columns = alternate(laid_out)
    sizes = [mesh.shape[axis] for axis in axes]
    place = np.unravel_index(first, sizes)
    order = np.arange(mesh.size).reshape(sizes)[
        tuple(at if axis in folded else slice(None) for axis, at in zip(axes, place, strict=True))
    ]
    order = order.transpose([laid_out.index(axis) for axis in rows + columns])
    down = math.prod(mesh.shape[axis] for axis in rows)
    return MeshGrid(rows, columns, order.reshape(down, -1), folded)


def alternate(dimensions: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return (rows, columns): dimensions alternate from the innermost outward, which is a column.

    The outermost of an odd number is a row, because a page has more height than width.
    """
    rows: list[int] = []
    columns: list[int] = []
    for place, dimension in enumerate(reversed(dimensions)):
        odd_one_out = place == len(dimensions) - 1 and place >= 2
        (rows if place % 2 or odd_one_out else columns).insert(0, dimension)
    return tuple(rows), tuple(columns)


def layout(grid: MeshGrid, mesh: Mesh, figure_width_px: float) -> tuple[cells.Sheet, float, float, str]:
    """Return (sheet, width, height, note) of a mesh in a figure of this width; a long side is wrapped."""
    width = figure_width_px - SIDES_PX
    unwrapped = grid.sheet(mesh)
    sheet = cells.wrap_narrow(
        unwrapped,
        width,
        _MOST_HEIGHT_PX + unwrapped.rows.gaps_px,
        narrowest=_NARROWEST_PX if grid.rows else cells.WRAPPED_CELL_PX,
        lowest=cells.LOWEST_PX,
    )
    note = ""
    if sheet.wrapped == "columns":
        note = f"wrapped, {sheet.line} {'columns' if grid.rows else 'devices'} per line"
    elif sheet.wrapped == "rows":
        note = f"wrapped, {sheet.line} rows per column"
    down, across = sheet.cells.shape
    square = (width - sheet.columns.gaps_px) / across
    low, high = _CELL_HEIGHT_PX
    if down * low > _TALLEST_PX:
        low = max(_TALLEST_PX / down, _LOWEST_PX)
    cell = min(max(square, low), high, max(_MOST_HEIGHT_PX / down, low))
    return sheet, width, cell * down + sheet.rows.gaps_px, note


def draw(
    mesh: Mesh,
    grid: MeshGrid,
    values: np.ndarray,
    colors: Sequence[str],
    forms: Sequence[Callable[[int], str]],
    hover: Callable[[Sequence[int]], Sequence[str]],
    *,
    heading: str,
    notes: Sequence[str],
    highlight: int | None = None,
    borders: bool = False,
    width_px: int,
) -> go.Figure:
    """Return the mesh with a colored, labelled cell per device. Selecting gives device ids.

    Args:
      values, colors: (devices,) color numbers in mesh order, and the colors as for `cells.heatmaps`.
      forms: texts of a cell by its position in mesh order, the most informative first.
      hover: from positions in mesh order to escaped hover texts.
      borders: separate the devices of different processes.
    """
    sheet, width, height, wrapping = layout(grid, mesh, width_px)
    positions = grid.position.reshape(-1).tolist()
    columns, rows = sheet.columns.edges(width), sheet.rows.edges(height)
    size = (min(b - a for a, b in columns), min(b - a for a, b in rows))
    text = cells.fit_text(forms, positions, [size] * len(positions))
    numbers = [int(values[position]) for position in positions]
    traces = [
        *cells.heatmaps(
            sheet, columns, rows=rows, numbers=numbers, colors=colors, text=text, highlight=highlight
        )
    ]
    owners = processes_of(mesh) if borders and not grid.folded else None
    if owners is not None:
        traces.append(_borders(sheet, columns, rows, np.array([owners[position] for position in positions])))
    devices = [mesh.devices[position] for position in positions]
    traces.append(cells.selection(sheet, columns, rows, devices, hover(positions)))
    return cells.map_figure(
        traces,
        width_px,
        width,
        height,
        heading=heading,
        notes=[*notes, folding_text(mesh, grid.folded), _side_title(mesh, grid.rows, "↓")],
        below=[note for note in (_side_title(mesh, grid.columns, "→"), wrapping) if note],
        row_ticks=_ticks(mesh, grid.rows, sheet, "rows", rows),
        column_ticks=_ticks(mesh, grid.columns, sheet, "columns", columns),
    )


def device_forms(mesh: Mesh, detail: Callable[[int], str]) -> list[Callable[[int], str]]:
    """Return texts of a device's cell by its position, with `detail` in a second line if it fits."""
    return [
        lambda at: f"device {mesh.devices[at]}\n{detail(at)}",
        lambda at: f"{mesh.devices[at]}\n{detail(at)}",
        lambda at: str(mesh.devices[at]),
    ]


def processes_of(mesh: Mesh) -> tuple[int, ...] | None:
    """Return the process of each device in mesh order; None if there is one, or they are unknown."""
    processes = known_processes(mesh)
    return processes if processes and len(set(processes)) > 1 else None


def processes_text(mesh: Mesh) -> str:
    """Return the devices of each process: `process 0 has 0–3, process 1 has 2048–2051`."""
    owned: dict[int, list[int]] = {}
    for number, device in zip(known_processes(mesh) or (), mesh.devices, strict=False):
        owned.setdefault(number, []).append(device)
    if len(owned) > _MOST_PROCESSES_NAMED:
        return f"in {len(owned)} processes, separated by thick lines"
    return ", ".join(
        f"process {number} has {formatting.devices_text(sorted(devices), most=2)}"
        for number, devices in sorted(owned.items())
    )


def _borders(sheet: cells.Sheet, columns: cells.Edges, rows: cells.Edges, owners: np.ndarray) -> go.Scatter:
    """Return thick lines between neighboring cells whose devices belong to different processes."""
    owner = np.where(sheet.cells >= 0, owners[sheet.cells], -1)
    lines = []
    for row, column in itertools.product(range(len(rows)), range(len(columns))):
        (left, right), (top, bottom) = columns[column], rows[row]
        here = owner[row, column]
        if column + 1 < len(columns) and -1 != here != owner[row, column + 1] != -1:
            middle = (right + columns[column + 1][0]) / 2
            lines.append([(middle, top), (middle, bottom)])
        if row + 1 < len(rows) and -1 != here != owner[row + 1, column] != -1:
            middle = (bottom + rows[row + 1][0]) / 2
            lines.append([(left, middle), (right, middle)])
    return cells.strokes(lines, _BORDER_PX, "process border")


def _ticks(
    mesh: Mesh, axes: tuple[int, ...], sheet: cells.Sheet, side: str, edges: cells.Edges
) -> ticks.Ticks:
    """Return mesh coordinates at the middle of the slots; for nested axes outer and inner, `0,1`."""
    if not axes:
        if sheet.wrapped is None or sheet.wrapped == side:
            return ticks.NO_TICKS
        texts = [str(line * sheet.line) for line in range(len(edges))]
    else:
        sizes = [mesh.shape[axis] for axis in axes]
        if sheet.wrapped is not None and len(edges) != math.prod(sizes):
            return ticks.NO_TICKS
        places = zip(*np.unravel_index(np.arange(math.prod(sizes)), sizes), strict=True)
        texts = [",".join(map(str, place)) for place in places]
    middles = [(start + stop) / 2 for start, stop in edges]
    return ticks.every_nth(middles, texts, upright=side == "rows")


def _side_title(mesh: Mesh, axes: tuple[int, ...], arrow: str) -> str:
    if not axes:
        return ""
    return f"{arrow} " + ", then ".join(f"{mesh.axes[axis].name} ({mesh.axes[axis].size})" for axis in axes)
