"""An array in pieces, with its numbers: on the host, on the devices, and joined.

A picture is made of *tiles*, one for each piece, device or block. Wherever a number stands, its color is
that of the block in which it was loaded, so that a number in the wrong place is seen, and after a
reshard it is seen where each part came from.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from inspector.core import formatting, sharding
from inspector.figures import cells, frame, labels, lattice
from inspector.figures.block_map import split_dimensions
from inspector.figures.mesh_map import axes_text, mesh_grid
from inspector.guides.assembly import Assembled, Assembly, Stage, pieces

WRONG = "#D55E00"  # the vermilion of Okabe and Ito; always together with a cross in the label
_LABEL_PX = 19  # the line above a tile
_LOWEST_PX, _HIGHEST_PX = 15, 26  # the height of a row of numbers
_MANY_LINES, _LOW_PX = 4, 18  # with more lines of tiles than this, rows are kept low
_MOST_HEIGHT_PX = 620
_WHOLE_TILE_PX = (26, 52)  # the height of a tile that is drawn as one cell
_NARROWEST_TILE_PX = 40
# With more numbers than this a picture is slow, and they are too small to read long before.
_MOST_CELLS = 2048


@dataclass(frozen=True)
class Tile:
    """One tile: its label, what is in it, and whether that is wrong.

    block: (rows, columns) the block that each number was loaded in; None for an empty tile.
    values: the numbers themselves; None where `text` stands for them.
    wrong: a mask of the numbers that do not belong there; True for a tile that is wrong as a whole.
    """

    label: str
    block: np.ndarray | None
    values: np.ndarray | None
    hover: Sequence[str]
    text: str = ""
    wrong: np.ndarray | bool = False

    @property
    def is_wrong(self) -> bool:
        return bool(np.any(self.wrong))


def host_figure(assembly: Assembly, made: Assembled, *, width_px: int = 360) -> go.Figure:
    """What was handed to JAX: the pieces in their order, or the whole array where JAX cuts it."""
    if not made.pieces:
        return _uncut_figure(assembly, made, width_px)
    blocks = _blocks(assembly)
    if assembly.way == "device_put":
        return _host_array_figure(assembly, made, width_px)
    bad = {device for fault in pieces.faults(assembly, made) for device in fault.devices}
    tiles = []
    for number, piece in enumerate(made.pieces):
        values = pieces.values_of(piece)
        name = f"piece {number}" if assembly.way == "pieces" else f"call {number}"
        shape = formatting.shape_text(piece.shape) if piece.shape is not None else "nothing"
        tiles.append(
            Tile(
                label=name,
                block=None if values is None else _flat(_origin(assembly, values)),
                values=None if values is None else _flat(values),
                hover=[
                    f"{name}: {shape} {piece.dtype}, {formatting.bytes_text(pieces.nbytes(piece))}",
                    f"made for device {piece.meant_for}",
                    _numbers(piece.values),
                ],
                wrong=piece.meant_for in bad,
            )
        )
    shape = next((piece.shape for piece in made.pieces if piece.shape is not None), ())
    noun = "piece" if assembly.way == "pieces" else "call"
    return _figure(
        tiles,
        _across(assembly),
        blocks,
        "1 · On the host",
        [f"{_count(len(tiles), noun)}, each {formatting.shape_text(shape)}"],
        width_px,
    )


def devices_figure(assembly: Assembly, made: Assembled, *, width_px: int = 360) -> go.Figure:
    """The mesh, and which piece lies on each device."""
    mesh = assembly.mesh()
    bad = {device for fault in pieces.faults(assembly, made) for device in fault.devices}
    lying: dict[int, list[tuple[str, np.ndarray]]] = {device: [] for device in mesh.devices}
    for number, piece in enumerate(made.pieces):
        values = pieces.values_of(piece)
        if piece.on is not None and values is not None:
            lying[piece.on].append((f"piece {number}", _origin(assembly, values)))
    if assembly.way != "pieces" and made.joined is not None:
        asked = sharding.place_array(made.joined.array, mesh)
        for place, held in enumerate(made.joined.contents):
            block = int(asked.block[place]) if asked is not None else 0
            origin = _origin(assembly, np.array(held.values).reshape(held.shape))
            lying[held.device].append((f"block {block}", origin))
    tiles = []
    for position in mesh_grid(mesh).position.ravel().tolist():
        device = mesh.devices[position]
        held = lying[device]
        text = " + ".join(name for name, _ in held) if len(held) < 3 else f"{len(held)} pieces"
        first = held[0][1].ravel()[:1] if held else np.zeros(0, dtype=np.int64)
        tiles.append(
            Tile(
                label=f"device {device}",
                block=first.reshape(1, 1) if first.size else None,
                values=None,
                text=text,
                hover=[f"device {device}", text or "nothing lies here"],
                wrong=device in bad,
            )
        )
    note = {
        "pieces": "moved by you, with device_put",
        "callback": "moved by JAX",
        "device_put": "cut and moved by JAX",
    }[assembly.way]
    if not any(lying.values()):
        note = "nothing was moved"
    return _figure(
        tiles,
        _across(assembly),
        _blocks(assembly),
        f"2 · On the devices, {axes_text(mesh)}",
        [note],
        width_px,
        tile_px=_WHOLE_TILE_PX,
    )


def array_figure(assembly: Assembly, stage: Stage, title: str, *, width_px: int = 360) -> go.Figure:
    """A global array block by block, with the numbers read back from its shards."""
    mesh = assembly.mesh()
    placement = sharding.place_array(stage.array, mesh)
    assert placement is not None  # JAX has placed it on every device
    wrong = pieces.wrong_elements(assembly, stage)
    tiles = []
    for number, devices in enumerate(sharding.devices_by_block(placement, mesh)):
        # Copies that are wrong must not hide behind one that is right.
        shown = next((device for device in devices if device in wrong), devices[0])
        place = mesh.devices.index(shown)
        held = stage.contents[place]
        values = np.array(held.values, dtype=np.int64).reshape(held.shape)
        ranges = list(
            zip(placement.starts[place].tolist(), placement.stops[place].tolist(), strict=True)
        )
        label = f"device{'s' * (len(devices) > 1)} {formatting.devices_text(devices)}"
        differing = [device for device in devices if device in wrong]
        if differing and len(differing) < len(devices):
            label = f"device {shown} of {formatting.devices_text(devices)}"
        tiles.append(
            Tile(
                label=label,
                block=_flat(_origin(assembly, values)),
                values=_flat(values),
                hover=[
                    f"block {number} {formatting.ranges_text(ranges)}",
                    f"{formatting.shape_text(held.shape)} {stage.array.dtype} on "
                    f"{_count(len(devices), 'device')}: {formatting.devices_text(devices, most=8)}",
                    _numbers(held.values),
                    *(
                        [f"wrong on {formatting.devices_text(differing, most=8)}"]
                        if differing
                        else []
                    ),
                ],
                wrong=_flat(wrong[shown]) if shown in wrong else False,
            )
        )
    split = split_dimensions(stage.array, mesh)
    last = len(stage.array.shape) - 1
    counts = [len(set(placement.starts[:, dimension].tolist())) for dimension in range(last + 1)]
    across = counts[last] if last in split else 1
    spec = formatting.spec_text(stage.array.spec)
    return _figure(
        tiles,
        across,
        _blocks(assembly),
        title,
        [f"{formatting.shape_text(stage.array.shape)} {stage.array.dtype} · {spec}"],
        width_px,
    )


def _host_array_figure(assembly: Assembly, made: Assembled, width_px: int) -> go.Figure:
    (host,) = made.pieces
    values = pieces.values_of(host)
    assert values is not None  # device_put is given an array
    found = pieces.placement(assembly) if values.shape == assembly.shape else None
    tiles, across = [], 1
    windows = [tuple(slice(0, size) for size in values.shape)]
    if found is not None:
        _, first = np.unique(found.block, return_index=True)
        windows = [
            pieces.window(found.starts[place], found.stops[place]) for place in first.tolist()
        ]
        ways = sharding.ways_per_dimension(assembly.spec, assembly.mesh())
        across = ways[-1]
    for window in windows:
        part = values[window]
        index = formatting.ranges_text([(one.start, one.stop) for one in window])
        tiles.append(
            Tile(
                label=index,
                block=_flat(_origin(assembly, part)),
                values=_flat(part),
                hover=[
                    index,
                    f"{formatting.shape_text(part.shape)} {host.dtype}",
                    _numbers(part.ravel()),
                ],
                wrong=_flat(part != pieces.belonging(assembly, *_bounds(window)))
                if found is not None
                else False,
            )
        )
    note = f"one {formatting.shape_text(values.shape)} {host.dtype} array"
    return _figure(tiles, across, _blocks(assembly), "1 · On the host", [note], width_px)


def _uncut_figure(assembly: Assembly, made: Assembled, width_px: int) -> go.Figure:
    """What cannot be cut: the array as one tile, wrong as a whole."""
    shape = formatting.shape_text(made.shape)
    tile = Tile(
        label=shape,
        block=np.zeros((1, 1), dtype=np.int64),
        values=None,
        text="cannot be cut",
        hover=[f"{shape} {pieces.DTYPE}", f"by {formatting.spec_text(assembly.spec)}"],
        wrong=True,
    )
    notes = ["no piece was made"]
    return _figure([tile], 1, 1, "1 · On the host", notes, width_px, tile_px=_WHOLE_TILE_PX)


def _figure(
    tiles: Sequence[Tile],
    across: int,
    blocks: int,
    title: str,
    notes: Sequence[str],
    width_px: int,
    tile_px: tuple[int, int] | None = None,
) -> go.Figure:
    """The tiles in rows of `across`; `tile_px` bounds the height of tiles drawn as one cell each."""
    width = width_px - frame.PAD_PX - 16  # the margins of a map without tick labels
    across = max(1, min(across, len(tiles)))
    if across * _NARROWEST_TILE_PX > width:
        across = lattice.line_length(across, int(width / _NARROWEST_TILE_PX))
    plan = _plan(tiles, across, width, tile_px)
    down = -(-len(tiles) // across)
    row_pieces = [float(_LABEL_PX), *[plan.row_px * (stop - start) for start, stop in plan.rows]]
    rows = lattice.side([[1.0] * down, row_pieces])
    columns = lattice.side([[1.0] * across, [stop - start for start, stop in plan.columns]])
    sheet = lattice.sheet(rows, columns)
    height = down * sum(row_pieces) + rows.gaps_px
    row_edges, column_edges = rows.edges(height), columns.edges(width)
    block, texts = _fill(tiles, across, plan)
    traces: list[Any] = cells.heatmaps(
        sheet,
        column_edges,
        row_edges,
        block,
        blocks,
        lattice.Text(tuple(texts), plan.font_px),
        None,
    )
    boxes = _boxes(tiles, across, plan, row_edges, column_edges)
    traces += [_labels(tiles, boxes), _hover(tiles, boxes)]
    result = frame.map_figure(
        traces,
        width_px,
        width,
        height,
        heading=title,
        notes=notes,
        below=[],
        row_ticks=([], []),
        column_ticks=([], []),
        to_scale=False,
    )
    result.update_layout(shapes=list(_outlines(tiles, boxes)))
    return result


@dataclass(frozen=True)
class _Plan:
    """How finely all tiles are drawn: the pieces of their rows and columns, and the text's size."""

    rows: list[tuple[int, int]]
    columns: list[tuple[int, int]]
    row_px: float  # the height of one row of numbers
    font_px: int
    write: Callable[[Tile, slice, slice], str]  # from a tile's rows and columns to their text


def _plan(
    tiles: Sequence[Tile], across: int, width: float, tile_px: tuple[int, int] | None
) -> _Plan:
    """The finest drawing whose texts can be read: each number, each row, or only the colors."""
    down = -(-len(tiles) // across)
    tile_width = (width - lattice.GAP_PX * (across - 1)) / across
    full = [tile for tile in tiles if tile.block is not None]
    if tile_px is not None:
        size = min(max(tile_width * 0.6, tile_px[0]), tile_px[1])
        long = [tile.text for tile in full]
        short = [_shortened(text) for text in long]
        fitted = lattice.fit_text(
            [long.__getitem__, short.__getitem__],
            range(len(full)),
            [(tile_width, size)] * len(full),
        )
        whole = list(fitted.texts) == long
        return _Plan(
            [(0, 1)],
            [(0, 1)],
            size,
            fitted.size_px,
            lambda tile, *_: tile.text if whole else _shortened(tile.text),
        )
    rows = max((tile.block.shape[0] for tile in full), default=1)
    columns = max((tile.block.shape[1] for tile in full), default=1)
    each_row = [(row, row + 1) for row in range(rows)]
    each_column = [(column, column + 1) for column in range(columns)]
    parts = _constant([tile.block for tile in full], columns, axis=1)
    room = _MOST_HEIGHT_PX / down - _LABEL_PX
    for column_pieces in (each_column, parts):
        if rows * len(column_pieces) * len(tiles) > _MOST_CELLS or room / rows < _LOWEST_PX:
            continue
        narrowest = tile_width * min(stop - start for start, stop in column_pieces) / columns
        highest = _HIGHEST_PX if down <= _MANY_LINES else _LOW_PX
        row_px = min(highest, max(_LOWEST_PX, narrowest), room / rows)
        texts = {
            _written(tile, slice(row, row + 1), slice(start, stop))
            for tile in full
            for row in range(tile.block.shape[0])
            for start, stop in column_pieces
        }
        widths = [(tile_width * (stop - start) / columns, row_px) for start, stop in column_pieces]
        longest = max(texts, key=len, default="")
        fitted = lattice.fit_text([lambda _, text=longest: text], range(len(widths)), widths)
        if all(fitted.texts):
            return _Plan(each_row, column_pieces, row_px, fitted.size_px, _written)
    # No text: a cell for each part that comes from one block.
    down_parts = _constant([tile.block for tile in full], rows, axis=0)
    row_px = min(_LOWEST_PX, max(room / rows, 1), max(2 * tile_width / rows, 1))
    return _Plan(down_parts, parts, row_px, frame.TICK_PX, lambda *_: "")


def _constant(blocks: Sequence[np.ndarray], length: int, axis: int) -> list[tuple[int, int]]:
    """The pieces of one side within which no tile changes its block."""
    borders = {0, length}
    for block in blocks:
        along = block if axis == 0 else block.T
        changes = np.nonzero(np.any(along[1:] != along[:-1], axis=1))[0] + 1
        borders |= {int(change) for change in changes} | {along.shape[0]}
    ordered = sorted(borders)
    return list(itertools.pairwise(ordered))


def _fill(tiles: Sequence[Tile], across: int, plan: _Plan) -> tuple[list[int], list[str]]:
    """The block (−1 for none) and the text of each cell of the sheet, row by row."""
    blocks: list[int] = []
    texts: list[str] = []
    down = -(-len(tiles) // across)
    for tile_row in range(down):
        row = [
            tiles[tile_row * across + place] if tile_row * across + place < len(tiles) else None
            for place in range(across)
        ]
        for window in (None, *plan.rows):
            for tile in row:
                for start, stop in plan.columns:
                    if window is None or tile is None or tile.block is None:
                        blocks.append(-1)
                        texts.append("")
                        continue
                    rows, columns = slice(*window), slice(start, stop)
                    part = tile.block[rows, columns]
                    blocks.append(int(part.flat[0]) if part.size else -1)
                    texts.append(plan.write(tile, rows, columns) if part.size else "")
    return blocks, texts


Box = tuple[float, float, float, float]  # left, right, top, bottom in pixels, the label above it


def _boxes(
    tiles: Sequence[Tile], across: int, plan: _Plan, rows: cells.Edges, columns: cells.Edges
) -> list[Box]:
    down, wide = 1 + len(plan.rows), len(plan.columns)
    boxes = []
    for number in range(len(tiles)):
        row, column = divmod(number, across)
        boxes.append(
            (
                columns[column * wide][0],
                columns[column * wide + wide - 1][1],
                rows[row * down][1],
                rows[row * down + down - 1][1],
            )
        )
    return boxes


def _labels(tiles: Sequence[Tile], boxes: Sequence[Box]) -> go.Scatter:
    """A line above each tile; all are shortened where one does not fit."""
    texts = [("✗ " if tile.is_wrong else "") + tile.label for tile in tiles]
    room = min(right - left for left, right, _, _ in boxes)
    if max(labels.width_px(text, frame.TICK_PX) for text in texts) > room:
        texts = [_shortened(text) for text in texts]
    most = max(int(room / labels.width_px("x", frame.TICK_PX)), 1)
    return go.Scatter(
        x=[round(left, 2) for left, _, _, _ in boxes],
        y=[round(top - _LABEL_PX / 2, 2) for _, _, top, _ in boxes],
        mode="text",
        text=[labels.escape(labels.cut(text, most)) for text in texts],
        textposition="middle right",
        textfont={"size": frame.TICK_PX},
        hoverinfo="skip",
        cliponaxis=False,
    )


def _shortened(text: str) -> str:
    for word in ("devices ", "device ", "piece ", "call "):
        text = text.replace(word, "")
    return text


def _hover(tiles: Sequence[Tile], boxes: Sequence[Box]) -> go.Scatter:
    """Invisible points that say what is in each tile: the nearest one answers."""
    texts = []
    for tile in tiles:
        first, *rest = map(labels.escape, tile.hover)
        texts.append("<br>".join([f"<b>{first}</b>", *rest]))
    return go.Scatter(
        x=[round((left + right) / 2, 2) for left, right, _, _ in boxes],
        y=[round((top + bottom) / 2, 2) for _, _, top, bottom in boxes],
        mode="markers",
        marker={"size": 10},
        opacity=0,
        text=texts,
        hovertemplate="%{text}<extra></extra>",
        showlegend=False,
    )


def _outlines(tiles: Sequence[Tile], boxes: Sequence[Box]) -> Any:
    """A frame around each wrong tile, dashed around each empty one."""
    for tile, (left, right, top, bottom) in zip(tiles, boxes, strict=True):
        if not tile.is_wrong and tile.block is not None:
            continue
        yield {
            "type": "rect",
            "x0": round(left + 1, 2),
            "x1": round(right - 1, 2),
            "y0": round(top + 1, 2),
            "y1": round(bottom - 1, 2),
            "line": {
                "color": WRONG if tile.is_wrong else frame.MIDDLE_GREY,
                "width": 2.5 if tile.is_wrong else 1,
                "dash": "dash" if tile.block is None else "solid",
            },
        }


def _written(tile: Tile, rows: slice, columns: slice) -> str:
    """The number in a cell, or the first and the last of several."""
    assert tile.values is not None  # tiles without are drawn as one cell each
    part = tile.values[rows, columns].ravel().tolist()
    if not part:
        return ""
    return str(part[0]) if len(part) == 1 else f"{part[0]} … {part[-1]}"


def _numbers(values: Sequence[int] | np.ndarray, most: int = 6) -> str:
    shown = ", ".join(str(int(value)) for value in values[:most])
    return f"{shown}, …" if len(values) > most else shown or "no numbers"


def _origin(assembly: Assembly, values: np.ndarray) -> np.ndarray:
    return pieces.blocks_of_values(assembly, values)


def _flat(values: np.ndarray) -> np.ndarray:
    """All dimensions but the last as rows; a single dimension is one row."""
    return values.reshape(-1, values.shape[-1]) if values.ndim else values.reshape(1, 1)


def _blocks(assembly: Assembly) -> int:
    found = pieces.placement(assembly)
    return found.blocks if found is not None else 1


def _across(assembly: Assembly) -> int:
    """How many tiles go on a line: as the mesh is drawn, unless that is one long line."""
    rows, columns = mesh_grid(assembly.mesh()).position.shape
    if rows > 1:
        return columns
    return columns if columns <= 4 else lattice.line_length(columns, math.isqrt(columns) + 2)


def _bounds(window: Sequence[slice]) -> tuple[list[int], list[int]]:
    return [one.start for one in window], [one.stop for one in window]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
