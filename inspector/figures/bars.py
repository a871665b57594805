"""Horizontal bars as Plotly traces: stacked segments below a heading, or one bar per named row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from inspector.figures import frame, labels, palette

SIDE_PX = 4
HEADING_PX = 24
BAR_PX = 22
_GAP_PX = 8
_SMALLEST_PX = 0.5  # narrower segments have no trace, and so no legend entry
_ROW_PX = 26


@dataclass(frozen=True)
class Segment:
    """A part of a bar, in the units of the horizontal axis.

    name: its entry in the legend; all segments of one name have one color.
    hover, text: escaped; `text` is written inside the segment if it fits.
    """

    name: str
    start: float
    size: float
    color: str
    hover: str
    text: str = ""
    hatch: str = ""

    @property
    def stop(self) -> float:
        return self.start + self.size


@dataclass(frozen=True)
class Bar:
    """Stacked segments, the escaped heading above them, and pixels to keep free below."""

    heading: str
    segments: tuple[Segment, ...]
    below_px: float = 0


@dataclass(frozen=True)
class Placed:
    """Bars with their places: the upper edge of each in pixels, and the height of all of them."""

    bars: tuple[Bar, ...]
    tops: tuple[float, ...]
    height: float

    @property
    def longest(self) -> float:
        """The end of the longest bar."""
        return max((part.stop for bar in self.bars for part in bar.segments), default=0)

    def headings(self) -> list[dict[str, Any]]:
        """Return the headings as annotations, each above its bar."""
        return [
            frame.annotation(
                bar.heading,
                0,
                top - HEADING_PX / 2,
                xref="paper",
                xshift=2 - SIDE_PX,
                yanchor="middle",
            )
            for bar, top in zip(self.bars, self.tops, strict=True)
        ]

    def traces(self, px_per_unit: float, order: Sequence[str] = ()) -> list[go.Bar]:
        """Return one trace per segment name, so that the legend names each once.

        Args:
          px_per_unit: the scale, which decides if a segment is wide enough for the legend.
          order: the names in their order in the legend; others follow as they occur.
        """
        together: dict[str, list[tuple[Segment, float]]] = {name: [] for name in order}
        for bar, top in zip(self.bars, self.tops, strict=True):
            for part in bar.segments:
                together.setdefault(part.name, []).append((part, top))
        return [
            _trace(name, placed, px_per_unit)
            for name, placed in together.items()
            if any(part.size * px_per_unit >= _SMALLEST_PX for part, _ in placed)
        ]


def place(bars: Sequence[Bar], above_px: float = 0) -> Placed:
    """Place bars below each other, the first heading `above_px` from the top of the plot."""
    tops, height = [], above_px
    for bar in bars:
        tops.append(height + HEADING_PX)
        height += HEADING_PX + BAR_PX + bar.below_px + _GAP_PX
    return Placed(tuple(bars), tuple(tops), height)


def figure(
    placed: Placed,
    traces: list[Any],
    longest: float,
    width_px: float,
    *,
    annotations: Sequence[dict[str, Any]] = (),
    legend: bool = True,
    **settings: Any,
) -> go.Figure:
    """Return the figure of placed bars.

    Args:
      longest: the value at the right edge of the plot.
      annotations: in addition to the headings.
      settings: `heading`, `notes` and other arguments of `frame.plot`.
    """
    names = [trace.name for trace in traces if trace.name] if legend else []
    return frame.plot(
        traces,
        width_px,
        placed.height,
        left=SIDE_PX,
        right=SIDE_PX,
        bottom=8 + (frame.legend_px(names, width_px - 20) if names else 0),
        annotations=[*placed.headings(), *annotations],
        barmode="overlay",
        hovermode="closest",
        showlegend=bool(names),
        legend=frame.legend_below(),
        xaxis=frame.axis(range=[0, longest or 1], showticklabels=False),
        yaxis=frame.axis(range=[placed.height, 0], showticklabels=False),
        **settings,
    )


def fitting_text(forms: Sequence[str], room_px: float) -> str:
    """Return the first form that fits into a segment of this width, escaped; "" if none does."""
    fits = (form for form in forms if labels.width_px(form, frame.TICK_PX) <= room_px - 6)
    return labels.escape(next(fits, ""))


@dataclass(frozen=True)
class Row:
    """A bar with its name at the left and its value at its end. Only `hover` is escaped."""

    name: str
    size: float
    value: str
    color: str
    hover: str


def rows_figure(
    groups: Sequence[Sequence[Row]],
    width_px: float,
    names: Sequence[str] | None = None,
    **settings: Any,
) -> go.Figure:
    """Return a figure with one bar per row, and a gap between groups of rows.

    Args:
      groups: at least one row.
      names: one name per group, instead of one per row.
      settings: `heading` and `notes`, as in `frame.plot`.
    """
    rows, tops, middles, height = [], [], [], 0.0
    for group in groups:
        for number, row in enumerate(group):
            rows.append(row)
            tops.append(height + number * _ROW_PX)
        middles.append(height + len(group) * _ROW_PX / 2)
        height += len(group) * _ROW_PX + _GAP_PX
    height -= _GAP_PX
    centers = [top + _ROW_PX / 2 for top in tops]
    tick_names = [row.name for row in rows] if names is None else list(names)
    left = 14 + max(labels.width_px(name, frame.NOTE_PX) for name in tick_names)
    plot_px = max(width_px - left - 8, 1)
    value_px = max(labels.width_px(row.value, frame.NOTE_PX) for row in rows) + 8
    longest = max(row.size for row in rows) or 1
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
    return frame.plot(
        [bar],
        width_px,
        height,
        left=left,
        right=8,
        # The values are right of the bars.
        xaxis=frame.axis(
            range=[0, longest * plot_px / max(plot_px - value_px, plot_px / 4)],
            showticklabels=False,
        ),
        yaxis=frame.axis(
            range=[height, 0],
            tickvals=centers if names is None else middles,
            ticktext=[labels.escape(name) for name in tick_names],
            tickfont={"size": frame.NOTE_PX},
        ),
        **settings,
    )


def _trace(name: str, placed: Sequence[tuple[Segment, float]], px_per_unit: float) -> go.Bar:
    first, _ = placed[0]
    # Text on a hatch cannot be read; the legend and the hover text name the segment.
    texts = None if first.hatch else [part.text for part, _ in placed]
    return go.Bar(
        orientation="h",
        name=labels.escape(name),
        x=[part.size for part, _ in placed],
        base=[part.start for part, _ in placed],
        y=[top + BAR_PX / 2 for _, top in placed],
        width=BAR_PX,
        marker={"color": first.color, "line": {"width": 0}, "pattern": {"shape": first.hatch}},
        text=texts,
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        constraintext="none",
        textfont={"size": frame.TICK_PX, "color": palette.text_on(first.color)},
        customdata=[part.hover for part, _ in placed],
        hovertemplate=frame.HOVER_TEXT,
    )
