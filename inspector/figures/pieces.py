"""An array in pieces on the host, on the devices, and joined; and host-local arrays of several processes.

The color of a number is the block in which it was loaded. So a number in the wrong place can be seen, and
after a reshard the color shows where each part came from.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from inspector.figures import cells, frame, labels, palette
from inspector.figures.mesh_layout import mesh_grid
from inspector.guides.assembly import Assembled, Assembly, Stage, pieces
from inspector.guides.processes import Exchanged, HostLocal, ProcessView
from inspector.sharding import placement as sharding
from inspector.sharding import sharding_text
from inspector.sharding.sharding_text import mesh_text
from inspector.text import formatting
from inspector.text.formatting import counted, shape_text

_LABEL_PX = 19  # the line above a tile
_LOWEST_PX, _HIGHEST_PX = 15, 26  # the height of a row of numbers
_MANY_LINES, _LOW_PX = 4, 18  # with more lines of tiles than this, rows are low
_MOST_HEIGHT_PX = 620
_WHOLE_TILE_PX = (26, 52)  # the height of a tile that is drawn as one cell
_NARROWEST_TILE_PX = 40
_MOST_CELLS = 2048  # more numbers than this are slow to draw and too small to read


@dataclass(frozen=True)
class PieceTile:
    """One piece, device or block: its label, its numbers, and whether it is wrong.

    block: (rows, columns) the block that each number was loaded in; None for an empty tile.
    values: (rows, columns) the numbers; None if `text` is drawn instead.
    """

    label: str
    block: np.ndarray | None
    values: np.ndarray | None
    hover: Sequence[str]
    text: str = ""
    wrong: bool = False


@dataclass(frozen=True)
class _Plan:
    """How finely tiles are drawn: the ranges of rows and columns that form a cell, and the text."""

    rows: list[tuple[int, int]]
    columns: list[tuple[int, int]]
    row_px: float  # the height of one row of numbers
    font_px: int
    write: Callable[[PieceTile, slice, slice], str]  # from rows and columns of a tile to their text


Box = tuple[float, float, float, float]  # left, right, top and bottom of a tile in pixels


def as_rows(values: np.ndarray) -> np.ndarray:
    """Return the values [..., columns] as [rows, columns]; a single dimension is one row."""
    return values.reshape(-1, values.shape[-1]) if values.ndim else values.reshape(1, 1)


def tiles_figure(
    tiles: Sequence[PieceTile],
    across: int,
    colors: Sequence[str],
    heading: str,
    note: str,
    width_px: int,
    *,
    whole: bool = False,
    most_height_px: float = _MOST_HEIGHT_PX,
) -> go.Figure:
    """Return tiles in rows of `across`, or fewer if they would be too narrow.

    `colors` has that of each block. `whole` draws each tile as one cell with its text.
    """
    width = width_px - frame.PAD_PX - 16  # the margins of a map without tick labels
    across = max(1, min(across, len(tiles)))
    if across * _NARROWEST_TILE_PX > width:
        across = cells.line_length(across, int(width / _NARROWEST_TILE_PX))
    down = -(-len(tiles) // across)
    tile_px = (width - cells.GAP_PX * (across - 1)) / across
    plan = (
        _plan_whole(tiles, tile_px)
        if whole
        else _plan(tiles, down, most_height_px / down - _LABEL_PX, tile_px)
    )
    row_sizes = [float(_LABEL_PX), *[plan.row_px * (stop - start) for start, stop in plan.rows]]
    rows = cells.side_of([[1.0] * down, row_sizes])
    columns = cells.side_of([[1.0] * across, [stop - start for start, stop in plan.columns]])
    height = down * sum(row_sizes) + rows.gaps_px
    row_edges, column_edges = rows.edges(height), columns.edges(width)
    numbers, texts = _fill(tiles, across, down, plan)
    text = cells.CellTexts(tuple(texts), plan.font_px)
    boxes = _boxes(len(tiles), across, plan, row_edges, column_edges)
    middles = [((left + right) / 2, (top + bottom) / 2) for left, right, top, bottom in boxes]
    figure = cells.map_figure(
        [
            *cells.heatmaps(cells.sheet_of(rows, columns), column_edges, row_edges, numbers, colors, text),
            _labels(tiles, boxes),
            cells.hover_points(middles, [frame.hover(tile.hover) for tile in tiles]),
        ],
        width_px,
        width,
        height,
        heading=heading,
        notes=[note],
    )
    figure.update_layout(shapes=list(_outlines(tiles, boxes)))
    return figure


def _plan_whole(tiles: Sequence[PieceTile], tile_px: float) -> _Plan:
    """Draw each tile as one cell with its text."""
    low, high = _WHOLE_TILE_PX
    height = min(max(tile_px * 0.6, low), high)
    long = [tile.text for tile in tiles if tile.block is not None]
    short = [_shortened(text) for text in long]
    fitted = cells.fit_text(
        [long.__getitem__, short.__getitem__], range(len(long)), [(tile_px, height)] * len(long)
    )
    complete = list(fitted.texts) == long
    return _Plan(
        [(0, 1)],
        [(0, 1)],
        height,
        fitted.size_px,
        lambda tile, *_: tile.text if complete else _shortened(tile.text),
    )


def _plan(tiles: Sequence[PieceTile], down: int, room: float, tile_px: float) -> _Plan:
    """Draw as finely as texts can be read: each number, each row, or only the colors.

    room: pixels for the numbers of one of the `down` lines of tiles.
    """
    full = [tile for tile in tiles if tile.block is not None]
    blocks = [tile.block for tile in full if tile.block is not None]
    rows = max((block.shape[0] for block in blocks), default=1)
    columns = max((block.shape[1] for block in blocks), default=1)
    each_row = [(row, row + 1) for row in range(rows)]
    each_column = [(column, column + 1) for column in range(columns)]
    parts = _equal_ranges([block.T for block in blocks], columns)
    for ranges in (each_column, parts):
        if rows * len(ranges) * len(tiles) > _MOST_CELLS or room / rows < _LOWEST_PX:
            continue
        narrowest = tile_px * min(stop - start for start, stop in ranges) / columns
        highest = _HIGHEST_PX if down <= _MANY_LINES else _LOW_PX
        row_px = min(highest, max(_LOWEST_PX, narrowest), room / rows)
        texts = {
            _written(tile, slice(row, row + 1), slice(start, stop))
            for tile in full
            for row in range(rows)
            for start, stop in ranges
        }
        longest = max(texts, key=len, default="")
        widths = [(tile_px * (stop - start) / columns, row_px) for start, stop in ranges]
        repeated = [longest] * len(widths)
        fitted = cells.fit_text([repeated.__getitem__], range(len(widths)), widths)
        if all(fitted.texts):
            return _Plan(each_row, ranges, row_px, fitted.size_px, _written)
    # No text: one cell for each part that comes from one block.
    row_px = min(_LOWEST_PX, max(room / rows, 1), max(2 * tile_px / rows, 1))
    return _Plan(_equal_ranges(blocks, rows), parts, row_px, frame.TICK_PX, lambda *_: "")


def _equal_ranges(blocks: Sequence[np.ndarray], length: int) -> list[tuple[int, int]]:
    """Return the ranges of rows within which no array changes its block."""
    borders = {0, length}
    for block in blocks:
        changes = np.nonzero(np.any(block[1:] != block[:-1], axis=1))[0] + 1
        borders |= {*changes.tolist(), block.shape[0]}
    return list(itertools.pairwise(sorted(borders)))


def _fill(tiles: Sequence[PieceTile], across: int, down: int, plan: _Plan) -> tuple[list[int], list[str]]:
    """Return the block (−1 for none) and the text of each cell, row by row; labels are empty rows."""
    blocks: list[int] = []
    texts: list[str] = []
    for line in range(down):
        in_line: list[PieceTile | None] = [*tiles[line * across : (line + 1) * across]]
        in_line += [None] * (across - len(in_line))
        for window in (None, *plan.rows):
            for tile, columns in itertools.product(in_line, plan.columns):
                part = np.zeros((0, 0))
                if window is not None and tile is not None and tile.block is not None:
                    part = tile.block[slice(*window), slice(*columns)]
                blocks.append(int(part.flat[0]) if part.size else -1)
                texts.append("")
                if tile is not None and window is not None and part.size:
                    texts[-1] = plan.write(tile, slice(*window), slice(*columns))
    return blocks, texts


def _boxes(count: int, across: int, plan: _Plan, rows: cells.Edges, columns: cells.Edges) -> list[Box]:
    down, wide = 1 + len(plan.rows), len(plan.columns)
    return [
        (
            columns[column * wide][0],
            columns[column * wide + wide - 1][1],
            rows[row * down][1],
            rows[row * down + down - 1][1],
        )
        for row, column in (divmod(number, across) for number in range(count))
    ]


def _labels(tiles: Sequence[PieceTile], boxes: Sequence[Box]) -> go.Scatter:
    """Return a line above each tile; if one does not fit, all are shortened."""
    texts = [("✗ " if tile.wrong else "") + tile.label for tile in tiles]
    room = min(right - left for left, right, _, _ in boxes)
    if max(labels.width_px(text, frame.TICK_PX) for text in texts) > room:
        texts = [_shortened(text) for text in texts]
    most = max(labels.fitting(room, frame.TICK_PX), 1)
    return cells.texts(
        [(left, top - _LABEL_PX / 2) for left, _, top, _ in boxes],
        [labels.escape(labels.cut(text, most)) for text in texts],
        size_px=frame.TICK_PX,
    )


def _shortened(text: str) -> str:
    for word in ("devices ", "device ", "piece ", "call "):
        text = text.replace(word, "")
    return text


def _outlines(tiles: Sequence[PieceTile], boxes: Sequence[Box]) -> Iterator[dict[str, Any]]:
    """Yield a frame around each wrong tile, dashed around each empty one."""
    for tile, (left, right, top, bottom) in zip(tiles, boxes, strict=True):
        if tile.wrong or tile.block is None:
            edges = (left + 1, right - 1, top + 1, bottom - 1)
            yield frame.rectangle(
                *(round(edge, 2) for edge in edges),
                color=palette.BAD if tile.wrong else frame.MIDDLE_GREY,
                width=2.5 if tile.wrong else 1,
                dash="dash" if tile.block is None else "solid",
            )


def _written(tile: PieceTile, rows: slice, columns: slice) -> str:
    """Return the number in a cell, or the first and the last of several."""
    part = [] if tile.values is None else tile.values[rows, columns].ravel().tolist()
    if len(part) < 2:
        return str(part[0]) if part else ""
    return f"{part[0]} … {part[-1]}"


_MOVED_BY = {
    "pieces": "moved by you, with device_put",
    "callback": "moved by JAX",
    "device_put": "cut and moved by JAX",
}


def host_figure(assembly: Assembly, assembled: Assembled, *, width_px: int = 360) -> go.Figure:
    """Return what JAX was given: the pieces in their order, or the whole array if JAX cuts it."""
    heading = "1 · On the host"
    if not assembled.pieces:
        tile = PieceTile(
            label=shape_text(assembled.shape),
            block=np.zeros((1, 1), dtype=np.int64),
            values=None,
            text="cannot be cut",
            hover=[
                f"{shape_text(assembled.shape)} {pieces.DTYPE}",
                f"by {sharding_text.spec_text(assembly.spec)}",
            ],
            wrong=True,
        )
        return tiles_figure(
            [tile], 1, (palette.REPLICATED,), heading, "no piece was made", width_px, whole=True
        )
    if assembly.way == "device_put":
        tiles, across, note = _host_array(assembly, assembled)
        return tiles_figure(tiles, across, _colors(assembly), heading, note, width_px)
    noun = "piece" if assembly.way == "pieces" else "call"
    wrong = _wrong_devices(assembly, assembled)
    tiles = []
    for number, piece in enumerate(assembled.pieces):
        values = pieces.values_of(piece)
        shape = shape_text(piece.shape) if piece.shape is not None else "nothing"
        size = formatting.bytes_text(pieces.nbytes(piece))
        tiles.append(
            PieceTile(
                label=f"{noun} {number}",
                block=None if values is None else _origin(assembly, values),
                values=None if values is None else as_rows(values),
                hover=[
                    f"{noun} {number}: {shape} {piece.dtype}, {size}",
                    f"made for device {piece.meant_for}",
                    _numbers(piece.values),
                ],
                wrong=piece.meant_for in wrong,
            )
        )
    first = next((piece.shape for piece in assembled.pieces if piece.shape is not None), ())
    note = f"{counted(len(tiles), noun)}, each {shape_text(first)}"
    return tiles_figure(tiles, _across(assembly), _colors(assembly), heading, note, width_px)


def devices_figure(assembly: Assembly, assembled: Assembled, *, width_px: int = 360) -> go.Figure:
    """Return the mesh, and the pieces on each device."""
    mesh = assembly.mesh()
    wrong = _wrong_devices(assembly, assembled)
    on_device: dict[int, list[tuple[str, np.ndarray]]] = {device: [] for device in mesh.devices}
    for number, piece in enumerate(assembled.pieces):
        values = pieces.values_of(piece)
        if piece.on in on_device and values is not None:
            on_device[piece.on].append((f"piece {number}", _origin(assembly, values)))
    if assembly.way != "pieces" and assembled.joined is not None:
        placement = sharding.place_array(assembled.joined.array, mesh)
        for place, shard in enumerate(assembled.joined.contents):
            block = int(placement.block[place]) if placement is not None else 0
            values = np.array(shard.values).reshape(shard.shape)
            on_device[shard.device].append((f"block {block}", _origin(assembly, values)))
    tiles = []
    for position in mesh_grid(mesh).position.ravel().tolist():
        device = mesh.devices[position]
        held = on_device[device]
        text = " + ".join(name for name, _ in held) if len(held) < 3 else f"{len(held)} pieces"
        first = held[0][1].ravel()[:1] if held else np.zeros(0, dtype=np.int64)
        tiles.append(
            PieceTile(
                label=f"device {device}",
                block=first.reshape(1, 1) if first.size else None,
                values=None,
                text=text,
                hover=[f"device {device}", text or "empty"],
                wrong=device in wrong,
            )
        )
    return tiles_figure(
        tiles,
        _across(assembly),
        _colors(assembly),
        f"2 · On the devices, {mesh_text(mesh)}",
        _MOVED_BY[assembly.way] if any(on_device.values()) else "nothing was moved",
        width_px,
        whole=True,
    )


def array_figure(assembly: Assembly, stage: Stage, title: str, *, width_px: int = 360) -> go.Figure | None:
    """Return a global array block by block, with the numbers read back from its shards.

    Return None if the placement of the array is unknown.
    """
    mesh, array = assembly.mesh(), stage.array
    placement = sharding.place_array(array, mesh)
    if placement is None:
        return None
    wrong = pieces.wrong_elements(assembly, stage)
    tiles = []
    for number, devices in enumerate(sharding.devices_by_block(placement, mesh)):
        # If copies differ, show a wrong one.
        shown = next((device for device in devices if device in wrong), devices[0])
        place = mesh.devices.index(shown)
        held = stage.contents[place]
        values = np.array(held.values, dtype=np.int64).reshape(held.shape)
        ranges = list(zip(placement.starts[place].tolist(), placement.stops[place].tolist(), strict=True))
        label = f"device{'s' * (len(devices) > 1)} {formatting.devices_text(devices)}"
        differing = [device for device in devices if device in wrong]
        if differing and len(differing) < len(devices):
            label = f"device {shown} of {formatting.devices_text(devices)}"
        hover = [
            f"block {number} {formatting.ranges_text(ranges)}",
            f"{shape_text(held.shape)} {array.dtype} on {counted(len(devices), 'device')}: "
            f"{formatting.devices_text(devices, most=8)}",
            _numbers(held.values),
        ]
        if differing:
            hover.append(f"wrong on {formatting.devices_text(differing, most=8)}")
        is_wrong = bool(np.any(wrong[shown])) if shown in wrong else False
        tiles.append(PieceTile(label, _origin(assembly, values), as_rows(values), hover, wrong=is_wrong))
    across = len(set(placement.starts[:, -1].tolist())) if array.shape else 1
    spec = sharding_text.spec_text(array.spec)
    note = f"{shape_text(array.shape)} {array.dtype} · {spec}"
    return tiles_figure(tiles, across, _colors(assembly), title, note, width_px)


def _host_array(assembly: Assembly, assembled: Assembled) -> tuple[list[PieceTile], int, str]:
    """Return (tiles, tiles per line, note) of the one array that `device_put` is given."""
    (host,) = assembled.pieces
    values = pieces.values_of(host)
    assert values is not None  # device_put is given an array
    placement = pieces.placement(assembly) if values.shape == assembly.shape else None
    windows = [tuple(slice(0, size) for size in values.shape)]
    across = 1
    if placement is not None:
        first = np.unique(placement.block, return_index=True)[1].tolist()
        windows = [pieces.window(placement.starts[at], placement.stops[at]) for at in first]
        across = sharding.ways_per_dimension(assembly.spec, assembly.mesh())[-1]
    tiles = []
    for window in windows:
        part = values[window]
        index = formatting.ranges_text([(span.start, span.stop) for span in window])
        starts, stops = [span.start for span in window], [span.stop for span in window]
        wrong = placement is not None and bool(np.any(part != pieces.belonging(assembly, starts, stops)))
        hover = [index, f"{shape_text(part.shape)} {host.dtype}", _numbers(part.ravel())]
        tiles.append(PieceTile(index, _origin(assembly, part), as_rows(part), hover, wrong=wrong))
    return tiles, across, f"one {shape_text(values.shape)} {host.dtype} array"


def _wrong_devices(assembly: Assembly, assembled: Assembled) -> set[int]:
    return {device for fault in pieces.faults(assembly, assembled) for device in fault.devices}


def _numbers(values: Sequence[int] | np.ndarray, most: int = 6) -> str:
    shown = ", ".join(str(int(value)) for value in values[:most])
    return f"{shown}, …" if len(values) > most else shown or "no numbers"


def _origin(assembly: Assembly, values: np.ndarray) -> np.ndarray:
    """Return (rows, columns) the block that each number was loaded in."""
    return as_rows(pieces.blocks_of_values(assembly, values))


def _colors(assembly: Assembly) -> tuple[str, ...]:
    placement = pieces.placement(assembly)
    if placement is None:
        return (palette.REPLICATED,)
    return palette.colors_of_blocks(placement.block, assembly.mesh())


def _across(assembly: Assembly) -> int:
    """Return the tiles per line: as the mesh is drawn, unless that is one long line."""
    rows: int
    columns: int
    rows, columns = mesh_grid(assembly.mesh()).position.shape
    if rows > 1 or columns <= 4:
        return columns
    return cells.line_length(columns, math.isqrt(columns) + 2)


_MOST_LOCAL_PX = 1200  # 64 rows of the largest request, and their labels


def local_figure(
    wanted: HostLocal, views: Sequence[ProcessView], *, returned: bool = False, width_px: int = 300
) -> go.Figure | None:
    """Return the host-local array of each process, one below the other; None if there is none.

    `returned` draws the arrays that came back to the processes instead of those they started with.
    """
    tiles = []
    for number, view in enumerate(views):
        shape = view.returned_shape if returned else wanted.local_shape
        values = view.returned if returned else view.given
        if shape is None or values is None:
            return None
        rows = np.array(values).reshape(shape[0], -1)
        process = f"process {view.process}"
        tiles.append(PieceTile(process, np.full(rows.shape, number), rows, [process, shape_text(shape)]))
    if not tiles:
        return None
    heading = "3 · Returned to each process" if returned else "1 · On each process"
    note = f"{len(tiles)} host-local arrays of {shape_text(shape)}"
    return tiles_figure(
        tiles, 1, palette.neutrals(len(tiles)), heading, note, width_px, most_height_px=_MOST_LOCAL_PX
    )


def global_figure(exchanged: Exchanged, *, width_px: int = 300) -> go.Figure | None:
    """Return the global array: the numbers read from its shards, and the processes that address them.

    If copies differ, show that of the first device in mesh order. Return None if there is no global array.
    """
    if exchanged.array is None or exchanged.array.shape is None:
        return None
    shape = exchanged.array.shape
    numbers = np.zeros(shape, dtype=np.int64)
    processes: dict[tuple[int, ...], set[int]] = {}
    for view in reversed(exchanged.views):
        for held in reversed(view.addressable):
            window = tuple(slice(start, stop) for start, stop in held.index)
            numbers[window] = np.array(held.values).reshape(numbers[window].shape)
            for place in itertools.product(*(range(start, stop) for start, stop in held.index)):
                processes.setdefault(place, set()).add(view.process)
    groups: list[tuple[int, ...]] = [(view.process,) for view in exchanged.views]
    groups += sorted({tuple(sorted(holders)) for holders in processes.values()} - set(groups))
    owner = np.zeros(shape, dtype=np.int64)
    for place, holders in processes.items():
        owner[place] = groups.index(tuple(sorted(holders)))
    owners, values = (part.reshape(shape[0], -1) for part in (owner, numbers))
    tiles = []
    for _, run in itertools.groupby(range(len(owners)), key=lambda row: owners[row].tolist()):
        rows = list(run)
        part = slice(rows[0], rows[-1] + 1)
        addressed = sorted({process for group in owners[rows[0]].tolist() for process in groups[group]})
        devices = [
            held.device
            for view in exchanged.views
            for held in view.addressable
            if held.index[0][0] <= rows[0] < held.index[0][1]
        ]
        noun = "process" if len(addressed) == 1 else "processes"
        label = f"{part.start}:{part.stop} {noun} {', '.join(map(str, addressed))}"
        hover = [label, f"on device {formatting.devices_text(sorted(devices), most=8)}"]
        tiles.append(PieceTile(label, owners[part], values[part], hover))
    note = f"{shape_text(shape)}, rows by the processes that address them"
    return tiles_figure(
        tiles,
        1,
        palette.neutrals(len(groups)),
        "2 · The global array",
        note,
        width_px,
        most_height_px=_MOST_LOCAL_PX,
    )
