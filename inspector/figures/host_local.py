"""Host-local arrays and the global array that they make, number by number, colored by process.

A number's color says which processes address it: one color for each process alone, and one more for
each set of processes that have copies.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from inspector.core import formatting
from inspector.core.formatting import shape_text
from inspector.figures import cells, frame, labels, lattice
from inspector.guides.processes import Exchanged, HostLocal, View

_ROW_PX = (16, 30)  # the least and the most height of a row of numbers
_MOST_HEIGHT_PX = 460
_WIDEST_CELL_PX = 64


def local_figure(
    wanted: HostLocal, views: Sequence[View], *, returned: bool = False, width_px: int = 300
) -> go.Figure:
    """The host-local array of each process, one under the other: as given, or as it came back.

    `returned` needs views that something came back to.
    """
    arrays = []
    for view in views:
        shape = view.returned_shape if returned else wanted.local_shape
        values = view.returned if returned else view.given
        assert shape is not None and values is not None  # the caller has looked
        arrays.append(_flat(np.array(values).reshape(shape)))
    rows, columns = arrays[0].shape
    sheet = lattice.sheet(
        lattice.side([[1.0] * len(arrays), [1.0] * rows]), lattice.side([[1.0] * columns])
    )
    owners = np.repeat(np.arange(len(arrays)), rows)[:, None] + np.zeros((1, columns), dtype=int)
    numbers = np.concatenate(arrays)
    hover = [
        f"process {process}, element {formatting.ranges_text([(row % rows, row % rows + 1), (at, at + 1)])}"
        for row in range(len(numbers))
        for at, process in enumerate(owners[row].tolist())
    ]
    ticks = [(process + 0.5) * rows for process in range(len(arrays))]
    shape = shape_text(tuple(views[0].returned_shape or ()) if returned else wanted.local_shape)
    return _figure(
        sheet,
        numbers,
        owners,
        hover,
        count=len(arrays),
        row_ticks=(ticks, [f"process {view.process}" for view in views]),
        heading="3 · Back on each process" if returned else "1 · On each process",
        notes=[f"{len(arrays)} host-local arrays of {shape}"],
        width_px=width_px,
    )


def global_figure(exchanged: Exchanged, *, width_px: int = 300) -> go.Figure:
    """The global array, with the numbers that were read from its shards and who addresses them.

    Copies that differ are drawn as the first device in mesh order has them. `exchanged.array` is not None.
    """
    assert exchanged.array is not None
    shape = exchanged.array.shape
    whole = _flat(np.zeros(shape, dtype=np.int64)).shape
    numbers = np.zeros(shape, dtype=np.int64)
    holders: dict[tuple[int, ...], list[int]] = {}
    devices: dict[tuple[int, ...], list[int]] = {}
    for view in reversed(exchanged.views):
        for held in reversed(view.addressable):
            window = tuple(slice(start, stop) for start, stop in held.index)
            part = numbers[window]
            numbers[window] = np.array(held.values).reshape(part.shape)
            for place in itertools.product(*(range(start, stop) for start, stop in held.index)):
                holders.setdefault(place, []).append(view.process)
                devices.setdefault(place, []).append(held.device)
    groups = [(view.process,) for view in exchanged.views]
    groups += sorted({tuple(sorted(set(held))) for held in holders.values()} - set(groups))
    owner = np.zeros(shape, dtype=np.int64)
    for place, held in holders.items():
        owner[place] = groups.index(tuple(sorted(set(held))))
    hover = [
        f"element {formatting.ranges_text([(at, at + 1) for at in place])}: {numbers[place]}\n"
        f"on device {formatting.devices_text(sorted(devices[place]), most=8)}\n"
        f"addressed by {_who(groups[owner[place]])}"
        for place in itertools.product(*map(range, shape))
    ]
    owners = _flat(owner)
    runs = _runs(owners)
    sheet = lattice.sheet(lattice.side([[1.0] * whole[0]]), lattice.side([[1.0] * whole[1]]))
    return _figure(
        sheet,
        _flat(numbers),
        owners,
        hover,
        count=len(groups),
        row_ticks=(
            [(start + stop) / 2 for start, stop in runs],
            [f"{start}:{stop} {_brief(owners[start], groups)}" for start, stop in runs],
        ),
        heading="2 · The global array",
        notes=[f"{shape_text(shape)}, rows by who addresses them"],
        width_px=width_px,
    )


def _figure(
    sheet: lattice.Sheet,
    numbers: np.ndarray,
    owners: np.ndarray,
    hover: Sequence[str],
    *,
    count: int,
    row_ticks: frame.Ticks,
    heading: str,
    notes: Sequence[str],
    width_px: int,
) -> go.Figure:
    down, across = numbers.shape
    left = max(labels.width_px(text, frame.TICK_PX) for text in row_ticks[1]) + 32
    width = min(width_px - left, _WIDEST_CELL_PX * across)
    row = min(max((_MOST_HEIGHT_PX - sheet.rows.gaps_px) / down, _ROW_PX[0]), _ROW_PX[1])
    height = row * down + sheet.rows.gaps_px
    columns, rows = sheet.columns.edges(width), sheet.rows.edges(height)
    # Ticks count rows; the axis counts pixels.
    starts = [start for start, _ in rows] + [rows[-1][1]]
    places = [float(np.interp(at, range(down + 1), starts)) for at in row_ticks[0]]
    size = (min(b - a for a, b in columns), min(b - a for a, b in rows))
    flat = numbers.ravel().tolist()
    text = lattice.fit_text([lambda cell: str(flat[cell])], range(len(flat)), [size] * len(flat))
    return frame.map_figure(
        [
            *cells.heatmaps(sheet, columns, rows, owners.ravel().tolist(), count, text, None),
            cells.selection(sheet, columns, rows, range(len(flat)), list(map(labels.lines, hover))),
        ],
        width_px,
        width,
        height,
        heading=heading,
        notes=notes,
        below=[],
        row_ticks=([round(place, 2) for place in places], row_ticks[1]),
        column_ticks=([], []),
        to_scale=False,
    )


def _flat(values: np.ndarray) -> np.ndarray:
    """One dimension as a column, so that its rows lie under each other."""
    return values.reshape(-1, 1) if values.ndim == 1 else values


def _runs(owners: np.ndarray) -> list[tuple[int, int]]:
    """Ranges of rows that the same processes address."""
    runs = []
    for _, rows in itertools.groupby(range(len(owners)), key=lambda row: owners[row].tolist()):
        numbers = list(rows)
        runs.append((numbers[0], numbers[-1] + 1))
    return runs


def _brief(row: np.ndarray, groups: Sequence[tuple[int, ...]]) -> str:
    return _who(tuple(sorted({process for at in row.tolist() for process in groups[at]})))


def _who(processes: tuple[int, ...]) -> str:
    noun = "process" if len(processes) == 1 else "processes"
    return f"{noun} {', '.join(map(str, processes))}"
