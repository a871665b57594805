"""Layouts timed together: the ratio of each to the baseline with its interval, and every round.

The times are those of emulated devices that share the cores of this machine; the title says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from inspector.compare import paired_times
from inspector.compare.paired_times import PairedTimes, Ratio
from inspector.core import formatting
from inspector.core.formatting import ratio_text
from inspector.core.program_names import title
from inspector.figures import frame, labels, palette, ticks
from inspector.figures.timings import EMULATED, jitter

COLORS = {
    "worse": palette.BAD,
    "better": palette.GOOD,
    "not distinguishable": palette.UNKNOWN,
}
_ROW_PX = 40  # for the two lines at its right
_HEADING_PX = 24
_TICKS_PX = 44
_NAME_CHARACTERS = 26
# The axis covers at least 10% faster to 10% slower, so that noise does not fill it.
_LEAST_REACH = math.log10(1.1)
_DIGITS = (1, 1.05, 1.1, 1.25, 1.5, 2, 3, 5, 7, 8, 9, 9.5)  # of the ticks


def ratio_intervals(
    times: PairedTimes, names: Sequence[str], baseline: int, *, width_px: int = 480
) -> go.Figure | None:
    """Return a row for each program and layout on a logarithmic axis; the baseline is 1.

    Return None if there are no ratios.
    """
    base = paired_times.base_of(times, baseline)
    if base is None:
        return None
    headings: list[tuple[float, str]] = []
    rows: list[tuple[float, Ratio]] = []
    y = 0.0
    for program in paired_times.PROGRAMS:
        ratios = [ratio for ratio in paired_times.ratios(times, base, program) if ratio.interval.low > 0]
        if ratios:
            headings.append((y + _HEADING_PX / 2, title(program)))
            y += _HEADING_PX
        for ratio in ratios:
            rows.append((y + _ROW_PX / 2, ratio))
            y += _ROW_PX
    if not rows:
        return None
    low, high = _reach([ratio for _, ratio in rows])
    most = min(_NAME_CHARACTERS, labels.fitting(width_px / 3.5, frame.NOTE_PX))
    row_names = [labels.middle_cut(names[ratio.layout], most) for _, ratio in rows]
    values = [f"{ratio.verdict}\n{ratio_text(ratio.median)} ({_interval_text(ratio)})" for _, ratio in rows]
    all_names = [*row_names, *(name for _, name in headings)]
    left = 14 + max(labels.width_px(name, frame.NOTE_PX) for name in all_names)
    right = 12 + max(labels.width_px(value, frame.NOTE_PX) for value in values)
    plot_px = max(width_px - left - right, 1)
    unit = "times as long" + (" (left of 1 faster, right of 1 slower)" if plot_px > 260 else "")
    return frame.plot(
        [_rounds(rows), *(_interval(place, ratio, names) for place, ratio in rows)],
        width_px,
        y,
        heading=f"Timed together, {EMULATED}",
        notes=_notes([ratio for _, ratio in rows], names[base], low, high),
        left=left,
        right=right,
        bottom=_TICKS_PX,
        xaxis=frame.axis(
            **ticks.logarithmic(low, high, plot_px, "{:g}".format, digits=_DIGITS),
            title=frame.axis_title(unit, 4),
        ),
        yaxis=frame.axis(
            range=[y, 0],
            tickvals=[place for place, _ in [*headings, *rows]],
            ticktext=[
                *(f"<b>{labels.escape(name)}</b>" for _, name in headings),
                *map(labels.escape, row_names),
            ],
            tickfont={"size": frame.NOTE_PX},
        ),
        annotations=[
            frame.annotation(labels.lines(value), 1, place, xref="paper", xshift=6, yanchor="middle")
            for (place, _), value in zip(rows, values, strict=True)
        ],
        shapes=[frame.line(1, 1, 0, y, width=1.5, dash="dot") | {"layer": "below"}],
    )


def _interval_text(ratio: Ratio) -> str:
    return f"{ratio_text(ratio.interval.low)}–{ratio_text(ratio.interval.high)}"


def _reach(ratios: Sequence[Ratio]) -> tuple[float, float]:
    """Return the range of the axis in powers of ten: all intervals and 1. Some rounds may be outside."""
    ends = [math.log10(end) for ratio in ratios for end in (ratio.interval.low, ratio.interval.high)]
    low, high = min(*ends, -_LEAST_REACH), max(*ends, _LEAST_REACH)
    room = (high - low) * 0.08
    return low - room, high + room


def _rounds(rows: Sequence[tuple[float, Ratio]]) -> go.Scatter:
    """Return the ratio of each round as a dot, spread over the height of its row."""
    dots = [
        (ratio, place + jitter(number, _ROW_PX * 0.5), number, one)
        for place, one in rows
        for number, ratio in enumerate(one.rounds)
    ]
    return go.Scatter(
        x=[ratio for ratio, *_ in dots],
        y=[height for _, height, *_ in dots],
        mode="markers",
        marker={"size": 5, "opacity": 0.35, "color": [COLORS[ratio.verdict] for *_, ratio in dots]},
        customdata=[f"round {number + 1}: {ratio_text(ratio)} times as long" for ratio, _, number, _ in dots],
        hovertemplate=frame.HOVER_TEXT,
    )


def _interval(place: float, ratio: Ratio, names: Sequence[str]) -> go.Scatter:
    hover = frame.hover(
        [
            f"{names[ratio.layout]}: {ratio.verdict}",
            f"{ratio_text(ratio.median)} times as long, {_interval_text(ratio)}",
            f"median {formatting.seconds_text(ratio.seconds)}, "
            f"baseline {formatting.seconds_text(ratio.baseline_seconds)}",
        ]
    )
    return go.Scatter(
        x=[ratio.interval.low, ratio.median, ratio.interval.high],
        y=[place] * 3,
        mode="lines+markers",
        line={"color": COLORS[ratio.verdict], "width": 3},
        marker={"size": [11, 10, 11], "symbol": ["line-ns-open", "diamond", "line-ns-open"]},
        customdata=[hover] * 3,
        hovertemplate=frame.HOVER_TEXT,
    )


def _notes(ratios: Sequence[Ratio], base: str, low: float, high: float) -> list[str]:
    rounds = formatting.counted(len(ratios[0].rounds), "round")
    coverage = ratios[0].interval.coverage * 100
    notes = [
        f"time as a multiple of {labels.cut(base, 40)}, the dotted line; dots are rounds, the diamond is "
        f"the median of {rounds}, the bar its {coverage:.1f} % interval"
    ]
    outside = sum(
        ratio <= 0 or not low <= math.log10(ratio) <= high for one in ratios for ratio in one.rounds
    )
    if outside:
        notes.append(f"{formatting.counted(outside, 'dot')} outside the axis")
    return notes
