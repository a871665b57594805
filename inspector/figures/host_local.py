"""Host-local arrays and the global array that they form, number by number, colored by process.

The color of a number says which processes address it: one color per process, and one more for each set of
processes that hold copies.
"""

import itertools
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from inspector.core import formatting
from inspector.core.formatting import shape_text
from inspector.figures import cells, frame, labels, lattice, palette, ticks
from inspector.guides.processes import Exchanged, HostLocal, View

_ROW_PX = (16, 30)  # the minimum and maximum height of a row of numbers
_MOST_HEIGHT_PX = 460
_WIDEST_CELL_PX = 64


def local_figure(
    wanted: HostLocal, views: Sequence[View], *, returned: bool = False, width_px: int = 300
) -> go.Figure | None:
    """Return the host-local array of each process, one below the other; None if there is none.

    `returned` draws the arrays that came back to the processes instead of those they started with.
    """
    arrays = []
    for view in views:
        shape = view.returned_shape if returned else wanted.local_shape
        values = view.returned if returned else view.given
        if shape is None or values is None:
            return None
        arrays.append(_as_rows(np.array(values).reshape(shape)))
    if not arrays:
        return None
    rows, columns = arrays[0].shape
    owners = np.repeat(np.arange(len(arrays)), rows)[:, None] + np.zeros((1, columns), dtype=int)
    numbers = np.concatenate(arrays)
    hover = []
    for row, column in np.ndindex(*numbers.shape):
        index = [(row % rows, row % rows + 1), (column, column + 1)]
        hover.append(f"process {owners[row, column]}, element {formatting.ranges_text(index)}")
    shape = tuple(views[0].returned_shape or ()) if returned else wanted.local_shape
    return _figure(
        lattice.side([[1.0] * len(arrays), [1.0] * rows]),
        numbers,
        owners,
        hover,
        count=len(arrays),
        row_ticks=(
            [(process + 0.5) * rows for process in range(len(arrays))],
            [f"process {view.process}" for view in views],
        ),
        heading="3 · Returned to each process" if returned else "1 · On each process",
        note=f"{len(arrays)} host-local arrays of {shape_text(shape)}",
        width_px=width_px,
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
    devices: dict[tuple[int, ...], list[int]] = {}
    for view in reversed(exchanged.views):
        for held in reversed(view.addressable):
            window = tuple(slice(start, stop) for start, stop in held.index)
            numbers[window] = np.array(held.values).reshape(numbers[window].shape)
            for place in itertools.product(*(range(start, stop) for start, stop in held.index)):
                processes.setdefault(place, set()).add(view.process)
                devices.setdefault(place, []).append(held.device)
    groups: list[tuple[int, ...]] = [(view.process,) for view in exchanged.views]
    groups += sorted({tuple(sorted(holders)) for holders in processes.values()} - set(groups))
    owner = np.zeros(shape, dtype=np.int64)
    for place, holders in processes.items():
        owner[place] = groups.index(tuple(sorted(holders)))
    hover = [
        f"element {formatting.ranges_text([(at, at + 1) for at in place])}: {numbers[place]}\n"
        f"on device {formatting.devices_text(sorted(devices.get(place, ())), most=8)}\n"
        f"addressed by {_processes_text(groups[owner[place]])}"
        for place in np.ndindex(*shape)
    ]
    owners = _as_rows(owner)
    runs = _runs(owners)
    return _figure(
        lattice.side([[1.0] * len(owners)]),
        _as_rows(numbers),
        owners,
        hover,
        count=len(groups),
        row_ticks=(
            [(start + stop) / 2 for start, stop in runs],
            [f"{start}:{stop} {_owners_text(owners[start], groups)}" for start, stop in runs],
        ),
        heading="2 · The global array",
        note=f"{shape_text(shape)}, rows by the processes that address them",
        width_px=width_px,
    )


def _figure(
    row_side: lattice.Side,
    numbers: np.ndarray,
    owners: np.ndarray,
    hover: Sequence[str],
    *,
    count: int,
    row_ticks: ticks.Ticks,
    heading: str,
    note: str,
    width_px: int,
) -> go.Figure:
    """Return numbers in cells colored by owner; the positions of `row_ticks` count rows."""
    down, across = numbers.shape
    sheet = lattice.sheet(row_side, lattice.side([[1.0] * across]))
    left = max(labels.width_px(text, frame.TICK_PX) for text in row_ticks[1]) + 32
    width = min(width_px - left, _WIDEST_CELL_PX * across)
    row = min(max((_MOST_HEIGHT_PX - sheet.rows.gaps_px) / down, _ROW_PX[0]), _ROW_PX[1])
    height = row * down + sheet.rows.gaps_px
    columns, rows = sheet.columns.edges(width), sheet.rows.edges(height)
    starts = [start for start, _ in rows] + [rows[-1][1]]
    places = [round(float(np.interp(at, range(down + 1), starts)), 2) for at in row_ticks[0]]
    size = (min(b - a for a, b in columns), min(b - a for a, b in rows))
    flat = numbers.ravel().tolist()
    text = lattice.fit_text([lambda cell: str(flat[cell])], range(len(flat)), [size] * len(flat))
    return cells.map_figure(
        [
            *cells.heatmaps(sheet, columns, rows, owners.ravel().tolist(), palette.neutrals(count), text),
            cells.selection(sheet, columns, rows, range(len(flat)), list(map(labels.lines, hover))),
        ],
        width_px,
        width,
        height,
        heading=heading,
        notes=[note],
        row_ticks=(places, row_ticks[1]),
    )


def _as_rows(values: np.ndarray) -> np.ndarray:
    """Return an array of one dimension as a column, so that its rows are below each other."""
    return values.reshape(-1, 1) if values.ndim < 2 else values.reshape(-1, values.shape[-1])


def _runs(owners: np.ndarray) -> list[tuple[int, int]]:
    """Return the ranges of rows that the same processes address."""
    runs = []
    for _, rows in itertools.groupby(range(len(owners)), key=lambda row: owners[row].tolist()):
        numbers = list(rows)
        runs.append((numbers[0], numbers[-1] + 1))
    return runs


def _owners_text(row: np.ndarray, groups: Sequence[tuple[int, ...]]) -> str:
    return _processes_text(tuple(sorted({group for at in row.tolist() for group in groups[at]})))


def _processes_text(processes: tuple[int, ...]) -> str:
    noun = "process" if len(processes) == 1 else "processes"
    return f"{noun} {', '.join(map(str, processes))}"
