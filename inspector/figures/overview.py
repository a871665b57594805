"""All arrays × all devices at once, colored by the bytes held, with every device's total on top.

Identical layers are one row. The rows' dots, colored by PartitionSpec, can be selected and name an array.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from inspector.core import formatting, sharding
from inspector.core.folding import Fold, fold
from inspector.core.snapshot import Array, Mesh, Spec
from inspector.figures import (
    frame,
    holdings,
    labels,
    palette,
)
from inspector.figures.palette import SpecStyle

_ROW_PX = (14, 24)
_ROWS_HEIGHT_PX = 560
_TOTALS_PX = 64
_GAP_PX = 12
_DOTS_PX = 16
_PARTED_PX = 6  # device columns at least so wide are parted by a gap
_COLORBAR_PX = 84
MOST_ROWS = (
    60  # more rows than this cannot be read; the smallest are then summed up in the last one
)


@dataclass(frozen=True)
class Row:
    """One row: some folded arrays and the bytes of all of them on each device, in mesh order.

    bytes is None where the placement, or the size, is not known.
    """

    label: str
    folds: tuple[Fold, ...]
    bytes: np.ndarray | None

    @property
    def most(self) -> int:
        """The bytes on the device that holds the most; −1 where they are not known."""
        return int(self.bytes.max()) if self.bytes is not None else -1


def held(array: Array, mesh: Mesh) -> np.ndarray | None:
    """Bytes of this array on each device, in mesh order, int64; None if not known."""
    if array.bytes is None:
        return None
    if array.shards is None and array.bytes_per_device is not None:
        return np.full(mesh.size, array.bytes_per_device, dtype=np.int64)
    placement = sharding.place_array(array, mesh)
    if placement is None:
        return None
    extents = (placement.stops - placement.starts).tolist()
    return np.array([holdings.bytes_of(array, extent) for extent in extents], dtype=np.int64)


def table(arrays: Iterable[Array], mesh: Mesh, most_rows: int = MOST_ROWS) -> tuple[Row, ...]:
    """Folded arrays with their bytes on each device, the largest first; unknown ones come last."""
    rows = []
    for one in fold(arrays):
        each = held(one.first, mesh)
        count = f" ×{one.count}" if one.count > 1 else ""
        rows.append(Row(one.path + count, (one,), None if each is None else each * one.count))
    rows.sort(key=lambda row: -row.most)
    if len(rows) <= most_rows:
        return tuple(rows)
    kept, rest = rows[: most_rows - 1], rows[most_rows - 1 :]
    known = [row.bytes for row in rest if row.bytes is not None]
    arrays_in_rest = sum(one.count for row in rest for one in row.folds)
    label = f"{arrays_in_rest:,} smaller arrays together"
    if len(known) < len(rest):
        label = f"{arrays_in_rest:,} other arrays, {len(rest) - len(known)} of unknown size"
    summed = np.sum(known, axis=0) if known else None
    return (*kept, Row(label, tuple(one for row in rest for one in row.folds), summed))


def totals(rows: Iterable[Row], mesh: Mesh) -> np.ndarray:
    """Bytes of all rows on each device, in mesh order; unknown ones are left out."""
    return sum((row.bytes for row in rows if row.bytes is not None), np.zeros(mesh.size, np.int64))


def overview(
    arrays: Iterable[Array],
    mesh: Mesh,
    styles: Mapping[Spec | None, SpecStyle] | None = None,
    *,
    most_rows: int = MOST_ROWS,
    width_px: int = 1000,
) -> go.Figure:
    """Bytes of each array on each device; selecting a row's dot gives the path of its first array.

    Args:
      styles: the colors of PartitionSpecs, from `palette.styles_of_specs` of all arrays.
      most_rows: the smallest arrays beyond so many rows are summed up in one.
    """
    arrays = tuple(arrays)
    styles = styles or palette.styles_of_specs(arrays, mesh)
    rows = table(arrays, mesh, most_rows)
    runs = equal_runs(rows, mesh.size)
    low, high = _ROW_PX
    height = max(min(high, _ROWS_HEIGHT_PX / max(len(rows), 1)), low) * max(len(rows), 1)
    names = [
        labels.middle_cut(row.label, max(22, int(width_px * 0.36 / labels.width_px("x", 11))))
        for row in rows
    ]
    sizes = [
        formatting.bytes_text(row.most) if row.bytes is not None else "unknown" for row in rows
    ]
    left = 10 + max((labels.width_px(name, frame.TICK_PX) for name in names), default=0)
    sizes_px = 14 + max((labels.width_px(size, frame.TICK_PX) for size in sizes), default=0)
    right = sizes_px + (_COLORBAR_PX if width_px >= 600 else 8)
    ticks = list(range(0, mesh.size, _tick_step(mesh.size, width_px - left - right)))
    notes = frame.note_lines(_notes(rows, arrays, mesh), width_px)
    top, bottom = frame.heading_px(len(notes)), 44
    plot = _TOTALS_PX + _GAP_PX + height
    split = height / plot
    dots_share = _DOTS_PX / max(width_px - left - right, 2 * _DOTS_PX)
    totals_split = (height + _GAP_PX) / plot
    return frame.figure(
        [
            _heatmap(rows, runs, mesh, (width_px - left - right) / max(len(runs), 1), width_px),
            _bars(totals(rows, mesh), runs, mesh),
            _dots(rows, styles),
            _sizes_anchor(),
        ],
        width_px,
        top + plot + bottom,
        title=frame.title("Bytes on each device", width_px),
        margin={"l": left, "r": right, "t": top, "b": bottom, "pad": 2},
        xaxis=frame.axis(
            domain=[dots_share, 1],
            range=[-0.5, mesh.size - 0.5],
            anchor="y",
            title={
                "text": "device, in mesh order",
                "standoff": 6,
                "font": {"size": frame.NOTE_PX},
            },
            tickvals=ticks,
            ticktext=[str(mesh.devices[place]) for place in ticks],
            tickangle=0,
        ),
        xaxis2=frame.axis(
            domain=[0, dots_share], anchor="y", range=[0, 1], showticklabels=False, fixedrange=True
        ),
        yaxis=frame.axis(
            domain=[0, split],
            range=[len(rows) - 0.5, -0.5],
            tickvals=list(range(len(rows))),
            ticktext=[labels.escape(name) for name in names],
            anchor="x2",
        ),
        yaxis2=frame.axis(
            domain=[totals_split, 1],
            anchor="x",
            rangemode="tozero",
            tickvals=[0, int(totals(rows, mesh).max(initial=0))],
            ticktext=["0", formatting.bytes_text(int(totals(rows, mesh).max(initial=0)))],
        ),
        # The same rows again, for the sizes at the right.
        yaxis3=frame.axis(
            overlaying="y",
            side="right",
            anchor="x",
            range=[len(rows) - 0.5, -0.5],
            tickvals=list(range(len(rows))),
            ticktext=sizes,
        ),
        annotations=[frame.notes_above(notes, left)],
        hovermode="closest",
    )


def equal_runs(rows: Sequence[Row], devices: int) -> list[tuple[int, int]]:
    """Half-open runs of neighbouring devices, in mesh order, that hold the same bytes of every row.

    Few devices are kept apart, so that each is seen; many are joined, so that the figure stays small.
    """
    if devices <= _MOST_SEPARATE:
        return [(device, device + 1) for device in range(devices)]
    known = [row.bytes for row in rows if row.bytes is not None]
    if not known:
        return [(0, devices)]
    stack = np.stack(known)
    starts = np.flatnonzero(np.any(stack[:, 1:] != stack[:, :-1], axis=0)) + 1
    borders = [0, *starts.tolist(), devices]
    return [(start, stop) for start, stop in itertools.pairwise(borders)]


_MOST_SEPARATE = 64


def _notes(rows: Sequence[Row], arrays: Sequence[Array], mesh: Mesh) -> list[str]:
    each = totals(rows, mesh)
    unknown = sum(one.count for row in rows if row.bytes is None for one in row.folds)
    least, most = int(each.min()), int(each.max())
    spread = (
        f"{formatting.bytes_text(most)} on every device"
        if least == most
        else f"{formatting.bytes_text(least)} to {formatting.bytes_text(most)} a device"
    )
    counted = f"{len(arrays):,} array{'s' * (len(arrays) != 1)}, {spread}"
    rest = f", and {unknown} whose size there is not known" if unknown else ""
    return [counted + rest]


def _heatmap(
    rows: Sequence[Row],
    runs: Sequence[tuple[int, int]],
    mesh: Mesh,
    cell_px: float,
    width_px: float,
) -> go.Heatmap:
    columns = [start for start, _ in runs]
    held_bytes = np.array(
        [row.bytes[columns] if row.bytes is not None else np.full(len(runs), -1) for row in rows],
        dtype=np.int64,
    ).reshape(len(rows), len(runs))
    with np.errstate(divide="ignore"):
        levels = np.where(held_bytes > 0, np.log2(np.maximum(held_bytes, 1)), np.nan)
    top = int(np.nanmax(levels, initial=0)) if held_bytes.size else 0
    exponents = list(range(0, top + 1, 10))
    # Float32 goes to the browser as bytes, a quarter of the length of numbers in text.
    return go.Heatmap(
        x=[start - 0.5 for start, _ in runs] + [mesh.size - 0.5],
        y=[number - 0.5 for number in range(len(rows) + 1)],
        z=levels.astype(np.float32),
        zmin=0,
        zmax=max(top + 1, 1),
        colorscale=palette.ramp(palette.CIVIDIS),
        showscale=width_px >= 600,
        colorbar={
            "title": {"text": "bytes, log scale", "side": "right", "font": {"size": 11}},
            "tickvals": exponents,
            "ticktext": [formatting.bytes_text(2**power) for power in exponents],
            "tickfont": {"size": frame.TICK_PX},
            "thickness": 10,
            "outlinewidth": 0,
            "len": 1,
            "y": 0.5,
            "x": 1,
            "xanchor": "right",
            "xref": "container",
        },
        xgap=1 if cell_px >= _PARTED_PX else 0,
        ygap=1.5,
        customdata=[[_hover(row, run, mesh) for run in runs] for row in rows]
        if len(rows) * len(runs) <= _MOST_HOVER_TEXTS
        else None,
        hovertemplate="%{customdata}<extra></extra>"
        if len(rows) * len(runs) <= _MOST_HOVER_TEXTS
        else "device %{x}, row %{y}<extra></extra>",
        hoverongaps=True,
    )


_MOST_HOVER_TEXTS = 6000  # about 600 KB


def _hover(row: Row, run: tuple[int, int], mesh: Mesh) -> str:
    devices = mesh.devices[slice(*run)]
    noun = "device" if len(devices) == 1 else "each of devices"
    size = int(row.bytes[run[0]]) if row.bytes is not None else None
    parts = [f"<b>{labels.escape(row.label)}</b>"]
    parts.append(f"{noun} {formatting.devices_text(devices)}: {formatting.exact_bytes_text(size)}")
    if len(row.folds) == 1:
        one = row.folds[0]
        if one.count > 1 and size is not None:
            parts.append(f"{one.count} × {formatting.bytes_text(size // one.count)}")
        parts.append(labels.escape(_about(one)))
    return "<br>".join(parts)


def _about(one: Fold) -> str:
    logical = formatting.logical_text(one.first.logical_axes)
    spec = formatting.spec_text(one.first.spec)
    return (
        f"{formatting.shape_text(one.first.shape)} {one.first.dtype}, "
        f"{f'{logical} → ' if logical else ''}{spec}"
    )


def _bars(each: np.ndarray, runs: Sequence[tuple[int, int]], mesh: Mesh) -> go.Bar:
    return go.Bar(
        x=[(start + stop - 1) / 2 for start, stop in runs],
        y=[int(each[start]) for start, _ in runs],
        width=[
            (stop - start) * (0.94 if mesh.size <= _MOST_SEPARATE else 1) for start, stop in runs
        ],
        yaxis="y2",
        marker={"color": frame.MIDDLE_GREY, "line": {"width": 0}},
        customdata=[
            f"<b>all arrays</b><br>device {formatting.devices_text(mesh.devices[start:stop])}: "
            f"{formatting.exact_bytes_text(int(each[start]))}"
            for start, stop in runs
        ],
        hovertemplate="%{customdata}<extra></extra>",
    )


def _dots(rows: Sequence[Row], styles: Mapping[Spec | None, SpecStyle]) -> go.Scatter:
    alone = [(place, row.folds[0]) for place, row in enumerate(rows) if len(row.folds) == 1]
    looks = [styles[palette.without_trailing(one.first.spec)] for _, one in alone]
    return go.Scatter(
        x=[0.5] * len(alone),
        y=[place for place, _ in alone],
        xaxis="x2",
        mode="markers",
        marker={
            "size": 9,
            "symbol": "square",
            "color": [look.color for look in looks],
            "line": {"width": 0.5, "color": frame.MIDDLE_GREY},
        },
        customdata=[one.first.path for _, one in alone],
        text=[
            f"<b>{labels.escape(one.path)}</b><br>{labels.escape(_about(one))}" for _, one in alone
        ],
        hovertemplate="%{text}<br>select to see its shard map<extra></extra>",
    )


def _sizes_anchor() -> go.Scatter:
    """A trace without points: Plotly draws no axis that has no trace."""
    return go.Scatter(x=[None], y=[None], yaxis="y3", hoverinfo="skip", showlegend=False)


def _tick_step(devices: int, length_px: float) -> int:
    """Every how many devices a tick has room, a power of two."""
    room = labels.width_px(str(devices), frame.TICK_PX) + 8
    return 2 ** max(0, math.ceil(math.log2(room * devices / max(length_px, room))))
