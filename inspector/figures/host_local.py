"""Host-local arrays and the global array that they form, number by number, colored by process.

The color of a number says which processes address it: one color per process, and one more for each set of
processes that hold copies.
"""

import itertools
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from inspector.figures import palette
from inspector.figures.pieces import PieceTile, tiles_figure
from inspector.guides.processes import Exchanged, HostLocal, ProcessView
from inspector.text import formatting
from inspector.text.formatting import shape_text

_MOST_HEIGHT_PX = 1200  # 64 rows of the largest request, and their labels


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
        tiles, 1, palette.neutrals(len(tiles)), heading, note, width_px, most_height_px=_MOST_HEIGHT_PX
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
        most_height_px=_MOST_HEIGHT_PX,
    )
