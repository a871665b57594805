"""Horizontal bars: stacked segments below a heading, one bar per named row, and collectives."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from inspector.figures import frame, labels, palette, ticks
from inspector.records.collectives import OPS
from inspector.sharding.traffic import Traffic, grouped, total_text
from inspector.text.formatting import bytes_text, counted, exact_bytes_text

SIDE_PX = 4
HEADING_PX = 24
BAR_PX = 22
_GAP_PX = 8
_SMALLEST_PX = 0.5  # narrower segments have no trace, and so no text
_ROW_PX = 26
_NAMES_SHARE = 0.45  # of the width, at most, for the names of rows


@dataclass(frozen=True)
class Segment:
    """A part of a bar: its entry in the legend, and texts of which the first that fits is drawn."""

    name: str
    size: float
    color: str
    hover: str  # escaped
    texts: Sequence[str] = ()


@dataclass(frozen=True)
class Bar:
    """Stacked segments, and the name and the value above them."""

    name: str
    value: str
    segments: Sequence[Segment]

    @property
    def starts(self) -> list[float]:
        """Return the start of each segment, and the end of the last one."""
        return [0, *itertools.accumulate(part.size for part in self.segments)]


def stacked(bars: Sequence[Bar], width_px: float, **settings: Any) -> go.Figure:
    """Return bars below each other on one scale.

    Args:
      settings: `heading` and `notes`, as in `frame.plot`.
    """
    step = HEADING_PX + BAR_PX + _GAP_PX
    tops = [number * step + HEADING_PX for number in range(len(bars))]
    height = len(bars) * step
    right = max(bar.starts[-1] for bar in bars) * 1.02 or 1
    px_per_unit = max(width_px - 2 * SIDE_PX, 1) / right
    together: dict[str, list[tuple[Segment, float, float]]] = {}
    for bar, top in zip(bars, tops, strict=True):
        for part, start in zip(bar.segments, bar.starts, strict=False):
            together.setdefault(part.name, []).append((part, start, top))
    return frame.plot(
        [
            _trace(name, placed, px_per_unit)
            for name, placed in together.items()
            if any(part.size * px_per_unit >= _SMALLEST_PX for part, _, _ in placed)
        ],
        width_px,
        height,
        left=SIDE_PX,
        right=SIDE_PX,
        bottom=8,
        annotations=[_heading(bar, top, width_px) for bar, top in zip(bars, tops, strict=True)],
        amounts=[f"{bar.name}: {bar.value}" for bar in bars],
        barmode="overlay",
        showlegend=False,
        xaxis=frame.axis(range=[0, right], showticklabels=False),
        yaxis=frame.axis(range=[height, 0], showticklabels=False),
        **settings,
    )


def _heading(bar: Bar, top: float, width_px: float) -> dict[str, Any]:
    """Return the name and the value above a bar; a name that is too long loses its middle."""
    most = labels.fitting(width_px - 2 * SIDE_PX, frame.NOTE_PX)
    value = labels.cut(bar.value, most - 2)
    name = labels.middle_cut(bar.name, max(most - len(value) - 3, 8))
    text = f"{labels.escape(name)}  <b>{labels.escape(value)}</b>"
    y = top - HEADING_PX / 2
    return frame.annotation(text, 0, y, xref="paper", xshift=2 - SIDE_PX, yanchor="middle")


def _trace(name: str, placed: Sequence[tuple[Segment, float, float]], px_per_unit: float) -> go.Bar:
    first, _, _ = placed[0]

    def text(part: Segment) -> str:
        room = part.size * px_per_unit - 6
        fits = (text for text in part.texts if labels.width_px(text, frame.TICK_PX) <= room)
        return labels.escape(next(fits, ""))

    texts = [text(part) for part, _, _ in placed]
    return go.Bar(
        orientation="h",
        name=labels.escape(name),
        x=[part.size for part, _, _ in placed],
        base=[start for _, start, _ in placed],
        y=[top + BAR_PX / 2 for _, _, top in placed],
        width=BAR_PX,
        marker={"color": first.color},
        text=texts,
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        constraintext="none",
        textfont={"size": frame.TICK_PX, "color": palette.text_on(first.color)},
        customdata=[part.hover for part, _, _ in placed],
        hovertemplate=frame.HOVER_TEXT,
    )


@dataclass(frozen=True)
class BarRow:
    """A bar with its name at the left and its value at its end. Only `hover` is escaped."""

    name: str
    size: float
    value: str
    color: str
    hover: str


def rows_figure(rows: Sequence[BarRow], width_px: float, **settings: Any) -> go.Figure | None:
    """Return a bar per row. None without rows."""
    if not rows:
        return None
    height = len(rows) * _ROW_PX
    centers = [(number + 0.5) * _ROW_PX for number in range(len(rows))]
    most = labels.fitting(width_px * _NAMES_SHARE, frame.NOTE_PX)
    names = [labels.middle_cut(row.name, most) for row in rows]
    left = 14 + max(labels.width_px(name, frame.NOTE_PX) for name in names)
    plot_px = max(width_px - left - 8, 1)
    # The values are beyond the ends of the bars.
    beyond = max(labels.width_px(row.value, frame.NOTE_PX) for row in rows) + 8
    high = max(row.size for row in rows)
    per_px = (high or 1.0) / max(plot_px - beyond, plot_px / 4)
    bar = go.Bar(
        orientation="h",
        x=[row.size for row in rows],
        y=centers,
        width=_ROW_PX - 6,
        marker={"color": [row.color for row in rows]},
        text=[labels.escape(row.value) for row in rows],
        textposition="outside",
        textfont={"size": frame.NOTE_PX},
        cliponaxis=False,
        customdata=[row.hover for row in rows],
        hovertemplate=frame.HOVER_TEXT,
    )
    places = ticks.settings(centers, names)
    return frame.plot(
        [bar],
        width_px,
        height,
        left=left,
        right=8,
        amounts=[f"{row.name}: {row.value}" for row in rows],
        xaxis=frame.axis(range=[0, high + beyond * per_px], showticklabels=False),
        yaxis=frame.axis(range=[height, 0], **places, tickfont={"size": frame.NOTE_PX}),
        **settings,
    )


def collective_bars(rows: Iterable[Traffic], *, of: str = "one run", width_px: int = 480) -> go.Figure | None:
    """Return a bar for each set of mesh axes; its segments are the operations.

    The length is the bytes that one device sends in `of`. Unknown bytes have no length; the heading of the
    bar names them. Return None if there are no collectives.
    """
    by_axes = grouped(rows)
    if not by_axes:
        return None
    return stacked(
        [Bar(axes, total_text(together), _segments(axes, together)) for axes, together in by_axes.items()],
        width_px,
        heading="Traffic by mesh axes",
        notes=[f"bytes that one device sends in {of}; ring algorithm assumed"],
    )


def _rank(op: str) -> tuple[int, str]:
    return OPS.index(op) if op in OPS else len(OPS), op


def _segments(axes: str, rows: Sequence[Traffic]) -> list[Segment]:
    """Return a segment for each operation, in shades of the axes, the strongest first."""
    known = [
        row for row in sorted(rows, key=lambda row: _rank(row.op)) if (row.wire_bytes_per_device or 0) > 0
    ]
    segments = []
    for row, color in zip(known, _shades(rows[0], len(known)), strict=True):
        size = row.wire_bytes_per_device or 0
        runs = "unknown" if row.executions is None else f"{row.executions:,}"
        hover = [
            f"{row.op} over {axes}",
            f"{exact_bytes_text(size)} from each device",
            f"{counted(row.instructions, 'instruction')}, executions: {runs}",
        ]
        texts = (f"{row.op} {bytes_text(size)}", bytes_text(size), row.op)
        segments.append(Segment(f"{row.op} over {axes}", size, color, frame.hover(hover), texts))
    return segments


def _shades(row: Traffic, count: int) -> Sequence[str]:
    axes = row.axis_parts if row.mesh_axes is None else row.mesh_axes
    if not axes:
        return [palette.UNKNOWN] * count
    return palette.shades_of(palette.color_of_axes(axes), count)[::-1]
