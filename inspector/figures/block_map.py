"""One array cut into its blocks, to scale, each labelled with the devices that hold it.

`block_grid` finds what is where (tested alone), `block_map` draws it. An array of more than two
dimensions is laid out by those that are split: nested, the outer ones parted by gaps. The others are
named in the subtitle, or sliced with `at`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import plotly.graph_objects as go

from inspector.core import formatting, sharding
from inspector.core.errors import InvalidInput
from inspector.core.sharding import Placement
from inspector.core.snapshot import Array, Mesh
from inspector.figures import (
    cells,
    frame,
    holdings,
    labels,
    lattice,
    mesh_fold,
)
from inspector.figures.lattice import Sheet, Side

# An array is drawn to scale if it then stands between these.
_LEAST_HEIGHT_PX = 64
_MOST_HEIGHT_PX = 460
_TALLEST = 2.5  # height ÷ width; up to here a tall array is drawn narrower than the figure
# A side whose slots would be narrower than this is wrapped: alone it loses nothing, with another it
# loses the picture of both together, so that is put off for longer.
_NARROWEST_ALONE_PX, _NARROWEST_PX = 14, 5
_FLATTEST = 1 / 6  # height ÷ width of an array of one dimension
_NESTED_ROW_PX = 24
_WRAPPED_ROW_PX = 40
_LINE = {"columns": "line", "rows": "column"}


@dataclass(frozen=True)
class GridSide:
    """One side of a BlockGrid: the dimensions laid out along it, outer first, and how they are cut.

    cuts: for each dimension its pieces, as half-open (start, stop) in order.
    """

    dimensions: tuple[int, ...]
    cuts: tuple[tuple[tuple[int, int], ...], ...]

    @property
    def slots(self) -> int:
        return math.prod(map(len, self.cuts))


@dataclass(frozen=True)
class BlockGrid:
    """An array in rows and columns of blocks.

    block: (rows, columns) number of the block that covers each cell, −1 where no device holds it.
    holders: for each block, the devices that hold it, in mesh order.
    whole: dimensions that are neither laid out nor sliced, because they are not split.
    at: the index at which each sliced dimension is cut through.
    """

    rows: GridSide
    columns: GridSide
    block: np.ndarray
    holders: tuple[tuple[int, ...], ...]
    whole: tuple[int, ...]
    at: Mapping[int, int] = field(default_factory=dict)


def why_no_map(array: Array, mesh: Mesh) -> str | None:
    """Why this array has no shard map, in a sentence; None if it has one."""
    if array.shape is None:
        return f"The shape of {array.path} is not known, only how it is split, so it has no map."
    if math.prod(array.shape) == 0:
        return f"{array.path} has no elements: its shape is {formatting.shape_text(array.shape)}."
    placement = sharding.place_array(array, mesh)
    if placement is not None:
        if placement.blocks > mesh_fold.MOST_CELLS:
            return (
                f"{array.path} lies in {placement.blocks:,} blocks, and a map shows at most "
                f"{mesh_fold.MOST_CELLS:,}."
            )
        folded = mesh_fold.folded_axes(mesh, [placement.block])
        if mesh_fold.cells(mesh, folded) > mesh_fold.MOST_CELLS:
            return (
                f"{array.path} changes along mesh axes of {mesh_fold.cells(mesh, folded):,} devices, "
                f"and a map shows at most {mesh_fold.MOST_CELLS:,}."
            )
        # Only a list of shards can overlap; a spec cuts every dimension cleanly.
        if array.shards is not None and _overlap(placement):
            return (
                f"{array.path} has blocks that overlap without being equal, which no map can show."
            )
        return None
    if array.shards is not None:
        return (
            f"{array.path} has no shard on some devices of the mesh, so it has no map of this mesh."
        )
    if array.spec is None:
        return (
            f"Where {array.path} lies is not known: it has no PartitionSpec and no list of shards."
        )
    uneven = next(sharding.indivisible(array.shape, array.spec, mesh))
    return (
        f"{array.path} cannot be split evenly: dimension {uneven.dimension} has {uneven.size} rows, "
        f"{uneven.ways} ways ({' × '.join(uneven.axes)}) do not divide it."
    )


def split_dimensions(array: Array, mesh: Mesh) -> tuple[int, ...]:
    """The dimensions that lie on the mesh in more than one piece."""
    placement = sharding.place_array(array, mesh)
    if placement is None:
        return ()
    return tuple(
        dimension for dimension, pieces in enumerate(_cuts(array, placement)) if len(pieces) > 1
    )


def block_grid(
    array: Array,
    mesh: Mesh,
    rows: tuple[int, ...] | None = None,
    columns: tuple[int, ...] | None = None,
    at: Mapping[int, int] | None = None,
) -> BlockGrid | None:
    """The array in rows and columns of blocks; None if `why_no_map` has a reason.

    Args:
      rows, columns: dimensions to lay out along each side, outer first. By default the split
        dimensions, alternating between the sides, and the last ones to fill up.
      at: an index for each dimension to slice. A split dimension that is neither laid out nor given
        here is sliced at 0.
    Raises:
      InvalidInput: a dimension does not exist or is used twice, or an index is outside of its dimension.
    """
    if why_no_map(array, mesh) is not None:
        return None
    placement = sharding.place_array(array, mesh)
    assert placement is not None  # `why_no_map` has just placed it
    cuts = _cuts(array, placement)
    split = [dimension for dimension, pieces in enumerate(cuts) if len(pieces) > 1]
    sliced = dict(at or {})
    if rows is None and columns is None:
        rows, columns = _arrange(split, len(array.shape), sliced)
    rows, columns = rows or (), columns or ()
    _check(array, rows, columns, sliced)
    for dimension in split:
        if dimension not in (*rows, *columns):
            sliced.setdefault(dimension, 0)
    whole = tuple(
        dimension
        for dimension in range(len(array.shape))
        if dimension not in (*rows, *columns) and dimension not in sliced
    )
    row_side, column_side = (
        GridSide(dimensions, tuple(cuts[dimension] for dimension in dimensions))
        for dimensions in (rows, columns)
    )
    return BlockGrid(
        row_side,
        column_side,
        _blocks(placement, row_side, column_side, sliced, cuts),
        tuple(sharding.devices_by_block(placement, mesh)),
        whole,
        sliced,
    )


def block_map(
    array: Array,
    mesh: Mesh,
    rows: tuple[int, ...] | None = None,
    columns: tuple[int, ...] | None = None,
    at: Mapping[int, int] | None = None,
    *,
    highlight: int | None = None,
    width_px: int = 480,
) -> go.Figure | None:
    """The shard map of one array; None if `why_no_map` has a reason. Selecting gives block numbers.

    Args:
      rows, columns, at: as for `block_grid`.
      highlight: a block to emphasise.
      width_px: the width for which texts are chosen; the figure may be stretched later.
    Raises:
      InvalidInput: as `block_grid`.
    """
    grid = block_grid(array, mesh, rows, columns, at)
    if grid is None:
        return None
    placement = sharding.place_array(array, mesh)
    assert placement is not None  # else there were no grid
    plan = layout(grid, width_px)
    numbers = grid.block.reshape(-1).tolist()
    column_edges = plan.sheet.columns.edges(plan.width_px)
    row_edges = plan.sheet.rows.edges(plan.height_px)
    text = _cell_text(grid, numbers, plan.sheet, column_edges, row_edges)
    hover = holdings.hover_of_blocks(array, mesh, placement)
    traces = [
        *cells.heatmaps(
            plan.sheet, column_edges, row_edges, numbers, placement.blocks, text, highlight
        ),
        cells.selection(
            plan.sheet, column_edges, row_edges, numbers, [hover[number] for number in numbers]
        ),
    ]
    row_ticks = _ticks(grid.rows, plan.sheet, "rows", row_edges, room_px=14)
    column_ticks = _ticks(
        grid.columns,
        plan.sheet,
        "columns",
        column_edges,
        room_px=max(
            (labels.width_px(t, frame.TICK_PX) for t in _tick_texts(grid.columns)), default=0
        )
        + 6,
    )
    column_note = _side_title(array, mesh, grid.columns, "→")
    notes = [*subtitle(array, mesh, grid), _side_title(array, mesh, grid.rows, "↓")]
    return frame.map_figure(
        traces,
        width_px,
        plan.width_px,
        plan.height_px,
        heading=array.path,
        notes=[note for note in notes if note],
        below=[note for note in (column_note, plan.remark) if note],
        row_ticks=row_ticks,
        column_ticks=column_ticks,
        to_scale=plan.to_scale,
    )


@dataclass(frozen=True)
class MapLayout:
    """Where a grid is drawn: its sheet, its size in pixels, and what must be said about the scale."""

    sheet: Sheet
    width_px: float
    height_px: float
    to_scale: bool
    remark: str


def layout(grid: BlockGrid, figure_width_px: float) -> MapLayout:
    """Lay a grid out in about `figure_width_px`: to scale if that can be read, else wrapped or pressed."""
    width = figure_width_px - 52  # tick labels and margins
    sheet = lattice.sheet(_side(grid.rows), _side(grid.columns))
    if not grid.rows.dimensions:
        ratio = _FLATTEST if grid.columns.dimensions else 0
    else:
        ratio = sum(sheet.rows.sizes) / sum(sheet.columns.sizes)
    highest = max(_MOST_HEIGHT_PX, width * 0.6)
    height = min(max(ratio * width, _LEAST_HEIGHT_PX), highest)
    alone = 1 in sheet.cells.shape
    wrapped = lattice.wrap_narrow(
        sheet,
        width,
        height,
        narrowest=_NARROWEST_ALONE_PX if alone else _NARROWEST_PX,
        lowest=lattice.LOWEST_PX if alone else _NARROWEST_PX,
    )
    if wrapped.wrapped is not None:
        remark = f"wrapped, {wrapped.line} blocks a {_LINE[wrapped.wrapped]}"
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
    """The height of a wrapped sheet: square cells, as far as the text and the page allow."""
    down, across = sheet.cells.shape
    share = max(_MOST_HEIGHT_PX / down, lattice.LOWEST_PX)
    return min(width_px / across, share, _WRAPPED_ROW_PX) * down + sheet.rows.gaps_px


def subtitle(array: Array, mesh: Mesh, grid: BlockGrid) -> list[str]:
    """Lines about the array: shape and spec, blocks and copies, the dimensions not laid out."""
    copies = {len(devices) for devices in grid.holders}
    on = str(copies.pop()) if len(copies) == 1 else f"{min(copies)} to {max(copies)}"
    on += " device" if on == "1" else " devices"
    count = len(grid.holders)
    spec = f" · {formatting.spec_text(array.spec)}" if array.spec is not None else ""
    first = f"{formatting.shape_text(array.shape)} {formatting.dtype_text(array.dtype)}{spec}"
    folded = [f"{formatting.dimension_text(array, mesh, one)}, whole" for one in grid.whole] + [
        f"{formatting.dimension_text(array, mesh, one)}, sliced at {index}"
        for one, index in sorted(grid.at.items())
    ]
    whole = f"whole on {on}" if on == "1 device" else f"whole on each of {on}"
    blocks = whole if count == 1 else f"{count} blocks, each on {on}"
    return [first, blocks, *([f"not drawn: {'; '.join(folded)}"] if folded else [])]


def _cuts(array: Array, placement: Placement) -> list[tuple[tuple[int, int], ...]]:
    """Each dimension's pieces: from every border of a shard to the next."""
    cuts = []
    for dimension, size in enumerate(array.shape):
        borders = np.unique(
            np.concatenate(
                [placement.starts[:, dimension], placement.stops[:, dimension], [0, size]]
            )
        ).tolist()
        cuts.append(tuple(itertools.pairwise(borders)))
    return cuts


def _overlap(placement: Placement) -> bool:
    """Whether two different blocks share an element."""
    _, first = np.unique(placement.block, return_index=True)
    starts, stops = placement.starts[first], placement.stops[first]
    lower = np.maximum(starts[:, None], starts[None])
    upper = np.minimum(stops[:, None], stops[None])
    shared = np.all(lower < upper, axis=-1)
    return bool(np.any(shared & ~np.eye(len(first), dtype=bool)))


def _arrange(
    split: Sequence[int], rank: int, sliced: Mapping[int, int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The dimensions to lay out: every split one, and the last others to make two."""
    free = [dimension for dimension in range(rank) if dimension not in sliced]
    chosen = [dimension for dimension in free if dimension in split]
    for dimension in reversed(free):
        if len(chosen) >= 2:
            break
        if dimension not in chosen:
            chosen.append(dimension)
    return alternate(sorted(chosen))


def alternate(dimensions: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(rows, columns): from the inside out a column, a row, a column … so that pictures nest.

    The outermost of an odd number goes to the rows, because a page has more height than width.
    """
    rows: list[int] = []
    columns: list[int] = []
    for place, dimension in enumerate(reversed(dimensions)):
        odd_one_out = place == len(dimensions) - 1 and place >= 2
        (rows if place % 2 or odd_one_out else columns).insert(0, dimension)
    return tuple(rows), tuple(columns)


def _check(
    array: Array, rows: Sequence[int], columns: Sequence[int], sliced: Mapping[int, int]
) -> None:
    rank = len(array.shape)
    used = [*rows, *columns, *sliced]
    for dimension in used:
        if not 0 <= dimension < rank:
            raise InvalidInput(
                f"dimension is {dimension}, but {array.path} has dimensions 0 to {rank - 1}"
                if rank
                else f"dimension is {dimension}, but {array.path} has no dimensions"
            )
    if len(set(used)) != len(used):
        raise InvalidInput(
            f"dimensions are {used}, but each may be a row, a column or a slice only once"
        )
    for dimension, index in sliced.items():
        if not 0 <= index < array.shape[dimension]:
            raise InvalidInput(
                f"the slice of dimension {dimension} is {index}, "
                f"but must be from 0 to {array.shape[dimension] - 1}"
            )


def _blocks(
    placement: Placement,
    rows: GridSide,
    columns: GridSide,
    sliced: Mapping[int, int],
    cuts: Sequence[tuple[tuple[int, int], ...]],
) -> np.ndarray:
    """(row slots, column slots): the block in each cell, painted block by block."""
    dimensions = rows.dimensions + columns.dimensions
    shape = tuple(len(cuts[dimension]) for dimension in dimensions)
    painted = np.full(shape, -1, dtype=np.int64)
    starts_of = {d: [start for start, _ in cuts[d]] for d in dimensions}
    _, first = np.unique(placement.block, return_index=True)
    for number, position in enumerate(first.tolist()):
        start, stop = placement.starts[position], placement.stops[position]
        if any(not start[d] <= index < stop[d] for d, index in sliced.items()):
            continue
        window = tuple(
            slice(*np.searchsorted(starts_of[d], [start[d], stop[d]]).tolist()) for d in dimensions
        )
        painted[window] = number
    return painted.reshape(rows.slots, columns.slots)


def _side(grid_side: GridSide) -> Side:
    return lattice.side([[stop - start for start, stop in pieces] for pieces in grid_side.cuts])


def _cell_text(
    grid: BlockGrid,
    numbers: Sequence[int],
    sheet: Sheet,
    columns: cells.Edges,
    rows: cells.Edges,
) -> lattice.Text:
    room: list[tuple[float, float]] = [(0.0, 0.0)] * len(numbers)
    for row, (top, bottom) in enumerate(rows):
        for column, (left, right) in enumerate(columns):
            if sheet.cells[row, column] >= 0:
                room[sheet.cells[row, column]] = (right - left, bottom - top)

    def form(words: Callable[[tuple[int, ...]], str]) -> Callable[[int], str]:
        return lambda cell: words(grid.holders[numbers[cell]]) if numbers[cell] >= 0 else ""

    forms = [
        form(lambda held: f"device{'s' * (len(held) > 1)}\n{formatting.devices_text(held)}"),
        form(formatting.devices_text),
        form(lambda held: formatting.devices_text(held).replace(", ", ",\n").replace(" (", "\n(")),
        form(lambda held: formatting.devices_text(held, most=1)),
        form(lambda held: str(held[0]) if len(held) == 1 else f"{held[0]} …"),
    ]
    return lattice.fit_text(forms, range(len(numbers)), room)


def _tick_texts(one: GridSide) -> list[str]:
    if len(one.cuts) != 1:
        return []
    return [str(start) for start, _ in one.cuts[0]] + [str(one.cuts[0][-1][1])]


def _ticks(
    one: GridSide, sheet: Sheet, name: str, edges: cells.Edges, room_px: float
) -> tuple[list[float], list[str]]:
    """Positions and texts: the borders of the blocks, or the outer pieces where sides are nested."""
    if not one.cuts or (sheet.wrapped is not None and sheet.wrapped == name):
        return [], []
    if sheet.wrapped is not None and len(edges) != one.slots:
        return [], []
    if len(one.cuts) == 1:
        places = [edges[0][0], *(stop for _, stop in edges)]
        return _thin(places, _tick_texts(one), room_px)
    inner = len(one.cuts[-1])
    places, texts = [], []
    for group in range(one.slots // inner):
        first, last = edges[group * inner], edges[(group + 1) * inner - 1]
        at = np.unravel_index(group, [len(pieces) for pieces in one.cuts[:-1]])
        ranges = [pieces[place] for pieces, place in zip(one.cuts[:-1], at, strict=True)]
        places.append((first[0] + last[1]) / 2)
        texts.append(", ".join(f"{start}:{stop}" for start, stop in ranges))
    wider = max(labels.width_px(text, frame.TICK_PX) for text in texts) + 6
    return _thin(places, texts, room_px if name == "rows" else wider)


def _thin(places: list[float], texts: list[str], room_px: float) -> tuple[list[float], list[str]]:
    """Every so many ticks that none touches the next, the last one always."""
    kept: list[int] = []
    for number, place in enumerate(places):
        if not kept or place - places[kept[-1]] >= room_px:
            kept.append(number)
    last = len(places) - 1
    if kept[-1] != last:
        if len(kept) > 1 and places[last] - places[kept[-1]] < room_px:
            kept.pop()
        kept.append(last)
    return [round(places[number], 2) for number in kept], [texts[number] for number in kept]


def _side_title(array: Array, mesh: Mesh, one: GridSide, arrow: str) -> str:
    if not one.dimensions:
        return ""
    named = [formatting.dimension_text(array, mesh, dimension) for dimension in one.dimensions]
    return f"{arrow} " + ", then ".join(named)
