"""All arrays × all devices, colored by the bytes held, with the total of each device above.

Identical layers share a row. The squares next to the rows, colored by PartitionSpec, can be selected.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from inspector.core import formatting
from inspector.core.folding import Fold, fold
from inspector.core.memory_kinds import in_host_memory
from inspector.core.snapshot import Array, Mesh
from inspector.figures import frame, holdings, labels, mesh_layout, palette, ticks
from inspector.figures.block_grid import placed

_ROW_PX = (14, 24)
_ROWS_HEIGHT_PX = 560
_TOTALS_PX = 64
_GAP_PX = 12
_SQUARES_PX = 16
_SEPARATED_PX = 6  # device columns at least this wide are separated by a gap
_COLORBAR_PX = 84
_MOST_SEPARATE = 64  # devices; of more, equal neighbors share a column
_MOST_HOVER_TEXTS = 6_000  # about 600 KB
MOST_ROWS = 60  # the smallest arrays beyond this share the last row


@dataclass(frozen=True)
class Row:
    """Some folded arrays, and (devices,) their bytes in mesh order; None if these are unknown.

    host: (devices,) those of the bytes that are in host memory, or 0.
    """

    label: str
    folds: tuple[Fold, ...]
    bytes: np.ndarray | None
    host: np.ndarray | int = 0

    @property
    def most(self) -> int:
        """The bytes on the device that holds the most; −1 if unknown."""
        return int(self.bytes.max(initial=0)) if self.bytes is not None else -1


def held(array: Array, mesh: Mesh) -> np.ndarray | None:
    """Return (devices,) the bytes of this array in mesh order, int64; None if unknown."""
    if array.bytes is None:
        return None
    if array.shards is None and array.bytes_per_device is not None:
        return np.full(mesh.size, max(array.bytes_per_device, 0), dtype=np.int64)
    if array.bytes <= 0:
        return np.zeros(mesh.size, dtype=np.int64)
    on_mesh = placed(array, mesh)
    if on_mesh is None:
        return None
    extents = (on_mesh.placement.stops - on_mesh.placement.starts).tolist()
    return np.array([holdings.bytes_of(array, extent) for extent in extents], dtype=np.int64)


def table(arrays: Iterable[Array], mesh: Mesh, most_rows: int = MOST_ROWS) -> tuple[Row, ...]:
    """Return folded arrays with their bytes on each device, the largest first, unknown ones last."""
    rows = []
    for folded in fold(arrays):
        bytes_held = held(folded.first, mesh)
        times = f" ×{folded.count}" if folded.count > 1 else ""
        size = None if bytes_held is None else bytes_held * folded.count
        if in_host_memory(folded.first, mesh):
            rows.append(
                Row(
                    f"{folded.path}{times}, in host memory",
                    (folded,),
                    size,
                    0 if size is None else size,
                )
            )
        else:
            rows.append(Row(folded.path + times, (folded,), size))
    rows.sort(key=lambda row: -row.most)
    if len(rows) <= most_rows:
        return tuple(rows)
    kept, rest = rows[: most_rows - 1], rows[most_rows - 1 :]
    known = [row.bytes for row in rest if row.bytes is not None]
    count = sum(folded.count for row in rest for folded in row.folds)
    label = f"{count:,} smaller arrays together"
    if len(known) < len(rest):
        label = f"{count:,} other arrays, {len(rest) - len(known)} of unknown size"
    summed = np.sum(known, axis=0) if known else None
    return (
        *kept,
        Row(
            label,
            tuple(folded for row in rest for folded in row.folds),
            summed,
            sum(row.host for row in rest),
        ),
    )


def totals(rows: Iterable[Row], mesh: Mesh) -> np.ndarray:
    """Return (devices,) the known bytes in device memory of all rows, in mesh order."""
    known = (row.bytes - row.host for row in rows if row.bytes is not None)
    return sum(known, np.zeros(mesh.size, np.int64))


def overview(
    arrays: Iterable[Array],
    mesh: Mesh,
    *,
    most_rows: int = MOST_ROWS,
    width_px: int = 1000,
) -> go.Figure | None:
    """Return the bytes of each array on each device; None without arrays or devices.

    Selecting the square of a row gives the path of its first array.

    The smallest arrays beyond `most_rows` share one row.
    """
    arrays = tuple(arrays)
    if not arrays or not mesh_layout.has_devices(mesh):
        return None
    rows = table(arrays, mesh, most_rows)
    total = totals(rows, mesh)
    most_held = int(total.max())
    runs = equal_runs(rows, mesh.size)
    low, high = _ROW_PX
    height = max(min(high, _ROWS_HEIGHT_PX / len(rows)), low) * len(rows)
    most = max(22, labels.fitting(width_px * 0.36, frame.TICK_PX))
    names = [labels.middle_cut(row.label, most) for row in rows]
    sizes = [formatting.bytes_text(row.most) if row.bytes is not None else "unknown" for row in rows]
    left = 10 + max(labels.width_px(name, frame.TICK_PX) for name in names)
    sizes_px = 14 + max(labels.width_px(size, frame.TICK_PX) for size in sizes)
    right = sizes_px + (_COLORBAR_PX if width_px >= 600 else 8)
    plot_px = width_px - left - right
    devices = ticks.every_nth(range(mesh.size), list(map(str, mesh.devices)), max(plot_px, 40) / mesh.size)
    body = _TOTALS_PX + _GAP_PX + height
    squares = _SQUARES_PX / max(plot_px, 2 * _SQUARES_PX)
    places, row_range = range(len(rows)), [len(rows) - 0.5, -0.5]
    return frame.plot(
        [
            _heatmap(rows, runs, mesh, plot_px / len(runs), width_px),
            _bars(total, runs, mesh),
            _squares(rows, mesh),
            frame.axis_anchor(yaxis="y3"),
        ],
        width_px,
        body,
        heading="Bytes on each device",
        notes=_notes(rows, arrays, total),
        left=left,
        right=right,
        bottom=44,
        pad=2,
        xaxis=frame.axis(
            domain=[squares, 1],
            range=[-0.5, mesh.size - 0.5],
            anchor="y",
            title=frame.axis_title("device, in mesh order"),
            **ticks.settings(*devices),
        ),
        xaxis2=frame.axis(
            domain=[0, squares], anchor="y", range=[0, 1], showticklabels=False, fixedrange=True
        ),
        yaxis=frame.axis(
            **ticks.settings(places, names),
            range=row_range,
            domain=[0, height / body],
            anchor="x2",
        ),
        yaxis2=frame.axis(
            domain=[(height + _GAP_PX) / body, 1],
            anchor="x",
            rangemode="tozero",
            **ticks.settings([0, most_held], ["0", formatting.bytes_text(most_held)]),
        ),
        # The same rows, for the sizes at the right.
        yaxis3=frame.axis(
            **ticks.settings(places, sizes),
            range=row_range,
            overlaying="y",
            side="right",
            anchor="x",
        ),
    )


def equal_runs(rows: Sequence[Row], devices: int) -> list[tuple[int, int]]:
    """Return half-open runs of neighboring devices that hold the same bytes of every row.

    If there are few devices, each is a run. If there are many, the figure stays small.
    """
    if devices <= _MOST_SEPARATE:
        return [(device, device + 1) for device in range(devices)]
    known = [row.bytes for row in rows if row.bytes is not None]
    if not known:
        return [(0, devices)]
    stack = np.stack(known)
    starts = np.flatnonzero(np.any(stack[:, 1:] != stack[:, :-1], axis=0)) + 1
    return list(itertools.pairwise([0, *starts.tolist(), devices]))


def _notes(rows: Sequence[Row], arrays: Sequence[Array], total: np.ndarray) -> list[str]:
    unknown = sum(fold.count for row in rows if row.bytes is None for fold in row.folds)
    least, most = int(total.min()), int(total.max())
    spread = f"{formatting.bytes_text(most)} on every device"
    if least != most:
        spread = f"{formatting.bytes_text(least)} to {formatting.bytes_text(most)} per device"
    rest = f"; {unknown} of unknown size" if unknown else ""
    return [f"{formatting.counted(len(arrays), 'array')}, {spread}{rest}"]


def _heatmap(
    rows: Sequence[Row],
    runs: Sequence[tuple[int, int]],
    mesh: Mesh,
    cell_px: float,
    width_px: float,
) -> go.Heatmap:
    columns = [start for start, _ in runs]
    sizes = np.array(
        [row.bytes[columns] if row.bytes is not None else np.full(len(runs), -1) for row in rows],
        dtype=np.int64,
    )
    levels = np.where(sizes > 0, np.log2(np.maximum(sizes, 1)), np.nan)
    top = int(np.nanmax(levels, initial=0))
    exponents = list(range(0, top + 1, 10))
    hover = None
    if len(rows) * len(runs) <= _MOST_HOVER_TEXTS:
        hover = [[_hover(row, run, mesh) for run in runs] for row in rows]
    heatmap = go.Heatmap(
        x=[start - 0.5 for start, _ in runs] + [mesh.size - 0.5],
        y=[number - 0.5 for number in range(len(rows) + 1)],
        z=levels.astype(np.float32),  # sent as bytes, a quarter of the length of numbers as text
        zmin=0,
        zmax=max(top + 1, 1),
        showscale=width_px >= 600,
        colorbar=frame.colorbar(
            "bytes, log scale", exponents, [formatting.bytes_text(2**power) for power in exponents]
        ),
        xgap=1 if cell_px >= _SEPARATED_PX else 0,
        ygap=1.5,
        customdata=hover,
        hovertemplate=frame.HOVER_TEXT if hover else "device %{x}, row %{y}<extra></extra>",
        hoverongaps=True,
    )
    return palette.of_amounts(heatmap)


def _hover(row: Row, run: tuple[int, int], mesh: Mesh) -> str:
    devices = mesh.devices[slice(*run)]
    noun = "device" if len(devices) == 1 else "each of devices"
    size = int(row.bytes[run[0]]) if row.bytes is not None else None
    text = formatting.exact_bytes_text(size)
    lines = [row.label, f"{noun} {formatting.devices_text(devices)}: {text}"]
    if len(row.folds) == 1:
        fold = row.folds[0]
        if fold.count > 1 and size is not None:
            lines.append(f"{fold.count} × {formatting.bytes_text(size // fold.count)}")
        lines.append(", ".join(holdings.about(fold.first)))
    return frame.hover(lines)


def _bars(total: np.ndarray, runs: Sequence[tuple[int, int]], mesh: Mesh) -> go.Bar:
    share = 0.94 if mesh.size <= _MOST_SEPARATE else 1
    return go.Bar(
        x=[(start + stop - 1) / 2 for start, stop in runs],
        y=[int(total[start]) for start, _ in runs],
        width=[(stop - start) * share for start, stop in runs],
        yaxis="y2",
        marker={"color": frame.MIDDLE_GREY, "line": {"width": 0}},
        customdata=[
            frame.hover(
                [
                    "all arrays",
                    f"device {formatting.devices_text(mesh.devices[start:stop])}: "
                    f"{formatting.exact_bytes_text(int(total[start]))}",
                ]
            )
            for start, stop in runs
        ],
        hovertemplate=frame.HOVER_TEXT,
    )


def _squares(rows: Sequence[Row], mesh: Mesh) -> go.Scatter:
    single = [(place, row.folds[0]) for place, row in enumerate(rows) if len(row.folds) == 1]
    return go.Scatter(
        x=[0.5] * len(single),
        y=[place for place, _ in single],
        xaxis="x2",
        mode="markers",
        marker={
            "size": 9,
            "symbol": "square",
            "color": [palette.fill_of_spec(folded.first.spec, mesh).color for _, folded in single],
            "line": {"width": 0.5, "color": frame.MIDDLE_GREY},
        },
        customdata=[folded.first.path for _, folded in single],
        text=[frame.hover([folded.path, ", ".join(holdings.about(folded.first))]) for _, folded in single],
        hovertemplate="%{text}<br>select to see its shard map<extra></extra>",
    )
