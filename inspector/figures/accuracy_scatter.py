"""Predicted against measured step times, one point for each published run, on logarithmic axes."""

from __future__ import annotations

import math

import plotly.graph_objects as go

from inspector.compare.measured.accuracy import Accuracy, Row
from inspector.core.formatting import counted, seconds_text
from inspector.figures import frame, labels, palette, ticks

_PLOT_PX = 380
_RIGHT_PX, _BOTTOM_PX = 12, 60
_TITLE_PX = 22  # of the vertical axis
_MARKS = ("circle", "square", "diamond", "triangle-up", "x", "star", "cross", "pentagon")
_NEAR = 1.1  # the dotted lines: 10% more and less


def accuracy_scatter(accuracy: Accuracy, *, width_px: int = 640) -> go.Figure | None:
    """Return the scatter plot with a mark for each chip; None if no run is reproduced."""
    rows = [(row, value) for row in accuracy.rows if row.measured and (value := _predicted(row))]
    if not rows:
        return None
    values = [value for row, predicted in rows for value in (row.measured or 1, predicted)]
    low, high = math.log10(min(values)) - 0.15, math.log10(max(values)) + 0.15
    ends = [10**low, 10**high]
    traces = [
        go.Scatter(
            x=ends,
            y=[end * factor for end in ends],
            mode="lines",
            line={"color": palette.MARK, "width": 2 if factor == 1 else 1, "dash": dash},
            hoverinfo="skip",
            showlegend=False,
        )
        for factor, dash in ((1, "solid"), (_NEAR, "dot"), (1 / _NEAR, "dot"))
    ]
    chips = list(dict.fromkeys(row.chip for row, _ in rows))
    for number, chip in enumerate(chips):
        own = [(row, value) for row, value in rows if row.chip == chip]
        mark = _MARKS[number % len(_MARKS)]
        color = palette.neutrals(len(chips))[number]
        traces.append(
            go.Scatter(
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
                customdata=[
                    frame.hover(
                        [
                            row.id,
                            f"measured {seconds_text(row.measured)}, predicted {seconds_text(value)}",
                            "from the schedule" if row.judged else "before a compile",
                        ]
                    )
                    for row, value in own
                ],
                hovertemplate=frame.HOVER_TEXT,
            )
        )
    upright = ticks.logarithmic(low, high, _PLOT_PX, seconds_text, upright=True)
    left = _TITLE_PX + max(labels.width_px(text, frame.TICK_PX) for text in upright["ticktext"])
    plot_px = width_px - left - _RIGHT_PX
    return frame.plot(
        traces,
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


def _predicted(row: Row) -> float | None:
    """Return the prediction from the schedule, or else the one before a compile."""
    return row.judged or row.before_compile
