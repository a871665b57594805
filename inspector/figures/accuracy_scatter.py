"""Predicted against measured step times, one point for each published run, on logarithmic axes."""

import itertools
import math
from collections.abc import Iterator, Sequence

import plotly.graph_objects as go

from inspector.compare.measured.accuracy import Accuracy, AccuracyRow
from inspector.figures import frame, labels, palette, ticks
from inspector.text.formatting import counted, seconds_text

_PLOT_PX = 380
_RIGHT_PX, _BOTTOM_PX = 12, 60
_TITLE_PX = 22  # of the vertical axis
_MARKS = ("circle", "square", "diamond", "triangle-up", "x", "star", "cross", "pentagon")
_NEAR = 1.1  # the dotted lines: 10% more and less


def accuracy_scatter(accuracy: Accuracy, *, width_px: int = 640) -> go.Figure | None:
    """Return the scatter plot with a mark for each chip; None if no run is reproduced."""
    rows = [
        (row, value) for row in accuracy.rows if row.measured and (value := row.judged or row.before_compile)
    ]
    if not rows:
        return None
    values = [value for row, predicted in rows for value in (row.measured or 1, predicted)]
    low, high = math.log10(min(values)) - 0.15, math.log10(max(values)) + 0.15
    chips = list(dict.fromkeys(row.chip for row, _ in rows))
    upright = ticks.logarithmic(low, high, _PLOT_PX, seconds_text, upright=True)
    left = _TITLE_PX + max(labels.width_px(text, frame.TICK_PX) for text in upright["ticktext"])
    plot_px = width_px - left - _RIGHT_PX
    return frame.plot(
        [*_diagonals(10**low, 10**high), *_points(rows, chips)],
        width_px,
        _PLOT_PX,
        heading="Predicted against measured step times",
        notes=[
            f"{counted(len(rows), 'published run')}; solid line: equal, dotted lines: 10% more and less",
            "filled: from the compiler's schedule; open: before a compile",
        ],
        left=left,
        right=_RIGHT_PX,
        **frame.legend_below(chips, width_px, _BOTTOM_PX, _PLOT_PX),
        xaxis=frame.axis(
            **ticks.logarithmic(low, high, plot_px, seconds_text),
            title=frame.axis_title("measured"),
            showgrid=True,
        ),
        yaxis=frame.axis(
            **upright,
            title=frame.axis_title("predicted", 4),
            showgrid=True,
        ),
    )


def _diagonals(low: float, high: float) -> Iterator[go.Scatter]:
    """Yield the line of equal times, and those of 10% more and less."""
    for factor, width, dash in ((1.0, 2, "solid"), (_NEAR, 1, "dot"), (1 / _NEAR, 1, "dot")):
        yield go.Scatter(
            x=[low, high],
            y=[low * factor, high * factor],
            mode="lines",
            line={"color": palette.MARK, "width": width, "dash": dash},
            hoverinfo="skip",
            showlegend=False,
        )


def _points(rows: Sequence[tuple[AccuracyRow, float]], chips: Sequence[str]) -> Iterator[go.Scatter]:
    """Yield the runs of each chip, and their predictions."""
    for chip, mark, color in zip(chips, itertools.cycle(_MARKS), palette.neutrals(len(chips)), strict=False):
        own = [(row, value) for row, value in rows if row.chip == chip]
        yield go.Scatter(
            x=[row.measured for row, _ in own],
            y=[value for _, value in own],
            mode="markers",
            name=chip,
            marker={
                "size": 10,
                "symbol": [mark if row.judged else f"{mark}-open" for row, _ in own],
                "color": color,
                # An open mark is its line alone.
                "line": {"width": 2, "color": color},
            },
            customdata=[_hover(row, value) for row, value in own],
            hovertemplate=frame.HOVER_TEXT,
        )


def _hover(row: AccuracyRow, value: float) -> str:
    times = f"measured {seconds_text(row.measured)}, predicted {seconds_text(value)}"
    return frame.hover([row.id, times, "from the schedule" if row.judged else "before a compile"])
