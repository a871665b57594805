"""The figures of Assemble: an array in pieces on the host, on the devices, and joined.

The color of a number is the block in which it was loaded. So a number in the wrong place can be seen, and
after a reshard the color shows where each part came from.
"""

import math
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from inspector.core import formatting, sharding, sharding_text
from inspector.core.formatting import counted, shape_text
from inspector.core.sharding_text import mesh_text
from inspector.figures import lattice, palette
from inspector.figures.mesh_layout import mesh_grid
from inspector.figures.tiles import Tile, as_rows, tiles_figure
from inspector.guides.assembly import Assembled, Assembly, Stage, pieces

_MOVED_BY = {
    "pieces": "moved by you, with device_put",
    "callback": "moved by JAX",
    "device_put": "cut and moved by JAX",
}


def host_figure(assembly: Assembly, assembled: Assembled, *, width_px: int = 360) -> go.Figure:
    """Return what JAX was given: the pieces in their order, or the whole array if JAX cuts it."""
    heading = "1 · On the host"
    if not assembled.pieces:
        tile = Tile(
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
            Tile(
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
            Tile(
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
        tiles.append(Tile(label, _origin(assembly, values), as_rows(values), hover, wrong=is_wrong))
    across = len(set(placement.starts[:, -1].tolist())) if array.shape else 1
    spec = sharding_text.spec_text(array.spec)
    note = f"{shape_text(array.shape)} {array.dtype} · {spec}"
    return tiles_figure(tiles, across, _colors(assembly), title, note, width_px)


def _host_array(assembly: Assembly, assembled: Assembled) -> tuple[list[Tile], int, str]:
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
        tiles.append(Tile(index, _origin(assembly, part), as_rows(part), hover, wrong=wrong))
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
    return lattice.line_length(columns, math.isqrt(columns) + 2)
