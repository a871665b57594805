"""The shard map: one array cut into its blocks, to scale, each labelled with the devices that hold it."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from inspector.figures import cells, frame, palette, ticks
from inspector.figures.block_grid import (
    BY_DEFAULT,
    Arrangement,
    BlockGrid,
    GridSide,
    PlacedArray,
    block_grid,
    placed,
    split_dimensions,
    why_no_map,
)
from inspector.figures.cells import Sheet
from inspector.figures.mesh_layout import coordinates_text, known_processes
from inspector.records.snapshot import Array, Mesh
from inspector.sharding import sharding_text
from inspector.sharding.sharding_text import dimension_text, spec_text
from inspector.text import formatting

_MANY_REPLICAS = 9  # with more, all holders of a block get the same list of devices


def bytes_of(array: Array, extents: Sequence[int]) -> int | None:
    """Return the bytes of a piece of the array with this shape; None if they are unknown."""
    elements = math.prod(array.shape or ())
    if array.bytes is None or array.shape is None:
        return None
    return array.bytes * math.prod(extents) // elements if elements else 0


def about(array: Array, count: int = 1) -> list[str]:
    """Return `4 × 64×32 float32`, and `(embed, mlp) → P('fsdp', 'tensor')`; `count` are alike."""
    times = f"{count} × " if count > 1 else ""
    logical = formatting.logical_text(array.logical_axes)
    return [
        f"{times}{formatting.shape_text(array.shape)} {array.dtype}",
        f"{f'{logical} → ' if logical else ''}{sharding_text.spec_text(array.spec)}",
    ]


def hover_of_blocks(on_mesh: PlacedArray) -> list[str]:
    """Return for each block: its index ranges, shard shape, bytes, devices and processes. Escaped."""
    process = dict(zip(on_mesh.mesh.devices, known_processes(on_mesh.mesh) or (), strict=False))
    texts = []
    for number, devices in enumerate(on_mesh.holders):
        count = formatting.counted(len(devices), "device")
        lines = [
            f"block {number} of {on_mesh.placement.blocks}",
            *_pieces(on_mesh)[number],
            f"on {count}: {formatting.devices_text(devices, most=8)}",
        ]
        if process:
            owners = sorted({process[device] for device in devices})
            noun = "process" if len(owners) == 1 else "processes"
            lines.append(f"{noun} {formatting.devices_text(owners, most=8)}")
        texts.append(frame.hover(lines))
    return texts


def hover_of_devices(on_mesh: PlacedArray, positions: Sequence[int], folded: Sequence[int] = ()) -> list[str]:
    """Return for each device: its coordinates, the block that it holds, and its other holders. Escaped.

    One device represents all others along the `folded` mesh axes.
    """
    mesh, placement = on_mesh.mesh, on_mesh.placement
    processes = known_processes(mesh)
    shared: dict[int, str] = {}  # the list of devices, for blocks with many replicas
    texts = []
    for position in positions:
        device, number = mesh.devices[position], int(placement.block[position])
        holders = on_mesh.holders[number]
        if len(holders) > _MANY_REPLICAS:
            if number not in shared:
                shared[number] = formatting.devices_text(holders, most=8)
            others = f"of {len(holders):,}, on {shared[number]}"
        else:
            rest = [other for other in holders if other != device]
            also = f"also on {formatting.devices_text(rest, most=8)}"
            others = f"of {len(holders)}, {also if rest else 'no other copy'}"
        place = coordinates_text(mesh, position, folded)
        lines = [
            f"{place}: as device {device}" if folded else f"device {device} · {place}",
            f"block {number} of {placement.blocks}",
            *_pieces(on_mesh)[number],
            f"replica {placement.replica[position]} {others}",
        ]
        if processes is not None and not folded:
            lines.append(f"process {processes[position]}")
        texts.append(frame.hover(lines))
    return texts


@functools.lru_cache(4)
def _pieces(on_mesh: PlacedArray) -> list[list[str]]:
    """Return for each block its index ranges, shape and bytes, once for the maps of blocks and devices."""
    array, placement = on_mesh.array, on_mesh.placement
    dtype = formatting.dtype_text(array.dtype)
    texts = []
    for starts, stops in zip(
        placement.starts[on_mesh.first].tolist(),
        placement.stops[on_mesh.first].tolist(),
        strict=True,
    ):
        extents = [stop - start for start, stop in zip(starts, stops, strict=True)]
        size = formatting.exact_bytes_text(bytes_of(array, extents))
        ranges = formatting.ranges_text(list(zip(starts, stops, strict=True)))
        texts.append([f"index {ranges}", f"shard {formatting.shape_text(extents)} {dtype}, {size}"])
    return texts


__all__ = ["block_map", "split_dimensions", "why_no_map"]

# An array is drawn to scale if its height is then within these limits.
_LEAST_HEIGHT_PX = 64
_MOST_HEIGHT_PX = 460
_TALLEST = 2.5  # height ÷ width; up to here a tall array is drawn narrower than the figure
# Narrower slots are wrapped. A single side is easy to read in lines; two sides lose their picture.
_NARROWEST_ALONE_PX, _NARROWEST_PX = 14, 5
_FLATTEST = 1 / 6  # height ÷ width of an array of one dimension
_NESTED_ROW_PX = 24
_WRAPPED_ROW_PX = 40
_LINE = {"columns": "line", "rows": "column"}


def block_map(
    array: Array,
    mesh: Mesh,
    arrangement: Arrangement = BY_DEFAULT,
    *,
    highlight: int | None = None,
    width_px: int = 480,
) -> go.Figure | None:
    """Return the shard map of one array; None if `why_no_map` has a reason.

    Selecting gives block numbers. The block `highlight` is emphasized.
    """
    grid = block_grid(array, mesh, arrangement)
    on_mesh = placed(array, mesh)
    if grid is None or on_mesh is None:
        return None
    plan = layout(grid, width_px)
    numbers = grid.block.reshape(-1).tolist()
    column_edges = plan.sheet.columns.edges(plan.width_px)
    row_edges = plan.sheet.rows.edges(plan.height_px)
    text = cell_text(grid, numbers, plan.sheet, column_edges, row_edges)
    hover = hover_of_blocks(on_mesh)
    colors = palette.colors_of_blocks(on_mesh.placement.block, mesh)
    traces = [
        *cells.heatmaps(
            plan.sheet,
            column_edges,
            rows=row_edges,
            numbers=numbers,
            colors=colors,
            text=text,
            highlight=highlight,
        ),
        cells.selection(plan.sheet, column_edges, row_edges, numbers, [hover[number] for number in numbers]),
    ]
    return cells.map_figure(
        traces,
        width_px,
        plan.width_px,
        plan.height_px,
        heading=array.path,
        notes=[*_notes(array, mesh, grid), _side_title(array, mesh, grid.rows, "↓")],
        below=[_side_title(array, mesh, grid.columns, "→"), plan.remark],
        row_ticks=_ticks(grid.rows, plan.sheet, "rows", row_edges),
        column_ticks=_ticks(grid.columns, plan.sheet, "columns", column_edges),
        to_scale=plan.to_scale,
    )


@dataclass(frozen=True)
class MapLayout:
    """The sheet of a grid, its size in pixels, and a remark about the scale."""

    sheet: Sheet
    width_px: float
    height_px: float
    to_scale: bool
    remark: str


def layout(grid: BlockGrid, figure_width_px: float) -> MapLayout:
    """Place a grid in this width: to scale if that is readable, else wrapped or not to scale."""
    width = figure_width_px - 52  # tick labels and margins
    sheet = sheet_of(grid)
    if not grid.rows.dimensions:
        ratio = _FLATTEST if grid.columns.dimensions else 0
    else:
        ratio = sum(sheet.rows.sizes) / sum(sheet.columns.sizes)
    highest = max(_MOST_HEIGHT_PX, width * 0.6)
    height = min(max(ratio * width, _LEAST_HEIGHT_PX), highest)
    alone = 1 in sheet.cells.shape
    wrapped = cells.wrap_narrow(
        sheet,
        width,
        height,
        narrowest=_NARROWEST_ALONE_PX if alone else _NARROWEST_PX,
        lowest=cells.LOWEST_PX if alone else _NARROWEST_PX,
    )
    if wrapped.wrapped is not None:
        remark = f"wrapped, {wrapped.line} blocks per {_LINE[wrapped.wrapped]}"
        return MapLayout(wrapped, width, wrapped_height(wrapped, width), False, remark)
    if not grid.rows.dimensions:
        return MapLayout(sheet, width, height, False, "")
    nested = max(len(grid.rows.cuts), len(grid.columns.cuts)) > 1
    if nested:
        low = sheet.rows.gaps_px + _NESTED_ROW_PX * len(sheet.rows.sizes)
        return MapLayout(sheet, width, max(height, min(low, highest)), False, "not to scale")
    if height > ratio * width + 0.5:
        return MapLayout(sheet, width, height, False, "not to scale: drawn taller than it is")
    if height >= ratio * width - 0.5:
        return MapLayout(sheet, width, height, True, "")
    if ratio <= _TALLEST:
        return MapLayout(sheet, height / ratio, height, True, "")
    return MapLayout(sheet, width, height, False, "not to scale: drawn shorter than it is")


def wrapped_height(sheet: Sheet, width_px: float) -> float:
    """Return the height of a wrapped sheet: square cells if text and page have room for them."""
    down, across = sheet.cells.shape
    share = max(_MOST_HEIGHT_PX / down, cells.LOWEST_PX)
    return float(min(width_px / across, share, _WRAPPED_ROW_PX) * down + sheet.rows.gaps_px)


def _notes(array: Array, mesh: Mesh, grid: BlockGrid) -> list[str]:
    """Return lines about the array: shape and spec, blocks and copies, dimensions not laid out."""
    copies = {len(devices) for devices in grid.holders}
    on = str(copies.pop()) if len(copies) == 1 else f"{min(copies)} to {max(copies)}"
    on += " device" if on == "1" else " devices"
    count = len(grid.holders)
    spec = f" · {spec_text(array.spec)}" if array.spec is not None else ""
    shape = f"{formatting.shape_text(array.shape)} {formatting.dtype_text(array.dtype)}{spec}"
    whole = f"whole on {on}" if on == "1 device" else f"whole on each of {on}"
    hidden = [f"{dimension_text(array, mesh, dimension)}, whole" for dimension in grid.whole] + [
        f"{dimension_text(array, mesh, dimension)}, sliced at {index}"
        for dimension, index in sorted(grid.at.items())
    ]
    return [
        shape,
        whole if count == 1 else f"{count} blocks, each on {on}",
        *([f"not drawn: {'; '.join(hidden)}"] if hidden else []),
    ]


def sheet_of(grid: BlockGrid) -> Sheet:
    """Return the cells of a grid, not wrapped."""
    rows, columns = (
        cells.side_of([[stop - start for start, stop in pieces] for pieces in side.cuts])
        for side in (grid.rows, grid.columns)
    )
    return cells.sheet_of(rows, columns)


def cell_text(
    grid: BlockGrid, numbers: Sequence[int], sheet: Sheet, columns: cells.Edges, rows: cells.Edges
) -> cells.CellTexts:
    """Return the devices of each block as a text for its cell."""
    room: list[tuple[float, float]] = [(0.0, 0.0)] * len(numbers)
    for row, (top, bottom) in enumerate(rows):
        for column, (left, right) in enumerate(columns):
            if sheet.cells[row, column] >= 0:
                room[sheet.cells[row, column]] = (right - left, bottom - top)

    def form(words: Callable[[tuple[int, ...]], str]) -> Callable[[int], str]:
        return lambda cell: words(grid.holders[numbers[cell]]) if numbers[cell] >= 0 else ""

    low = any(height < 2.6 * cells.FONT_PX[1] for _, height in room)
    between = " " if low else "\n"
    forms = [
        form(lambda held: f"device{'s' * (len(held) > 1)}{between}{formatting.devices_text(held)}"),
        form(formatting.devices_text),
        form(lambda held: formatting.devices_text(held).replace(", ", ",\n").replace(" (", "\n(")),
        form(lambda held: formatting.devices_text(held, most=1)),
        form(lambda held: str(held[0]) if len(held) == 1 else f"{held[0]} …"),
    ]
    return cells.fit_text(forms, range(len(numbers)), room)


def _ticks(grid_side: GridSide, sheet: Sheet, name: str, edges: cells.Edges) -> ticks.Ticks:
    """Return the borders of the blocks, or of nested dimensions the ranges of the outer pieces."""
    if not grid_side.cuts or (sheet.wrapped is not None and sheet.wrapped == name):
        return ticks.NO_TICKS
    if sheet.wrapped is not None and len(edges) != grid_side.slots:
        return ticks.NO_TICKS
    upright = name == "rows"
    if len(grid_side.cuts) == 1:
        places = [edges[0][0], *(stop for _, stop in edges)]
        return ticks.of_borders(places, list(map(str, grid_side.borders)), upright=upright)
    inner = len(grid_side.cuts[-1])
    places, texts = [], []
    for group in range(grid_side.slots // inner):
        first, last = edges[group * inner], edges[(group + 1) * inner - 1]
        at = np.unravel_index(group, [len(pieces) for pieces in grid_side.cuts[:-1]])
        ranges = [pieces[place] for pieces, place in zip(grid_side.cuts[:-1], at, strict=True)]
        places.append((first[0] + last[1]) / 2)
        texts.append(", ".join(f"{start}:{stop}" for start, stop in ranges))
    return ticks.of_borders(places, texts, upright=upright)


def _side_title(array: Array, mesh: Mesh, grid_side: GridSide, arrow: str) -> str:
    if not grid_side.dimensions:
        return ""
    named = [dimension_text(array, mesh, dimension) for dimension in grid_side.dimensions]
    return f"{arrow} " + ", then ".join(named)
