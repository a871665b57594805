"""Layouts timed together: each one's ratio to the baseline with its interval, and the ratio of every round.

What is timed are emulated devices sharing the cores of this machine, and the title says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from inspector.compare import paired_times
from inspector.compare.paired_times import PairedTimes, Ratio
from inspector.compare.paired_times.text import EMULATED, PROGRAM_NAMES, interval_text, ratio_text
from inspector.core import formatting
from inspector.figures import frame, labels, palette

COLORS = {
    "slower": palette.OKABE_ITO[5],
    "faster": palette.OKABE_ITO[2],
    "within noise": palette.UNKNOWN,
}
_ROW_PX = 40  # the words at its right take two lines
_HEADING_PX = 24
_TICKS_PX = 44
_NAME_CHARACTERS = 26
# The axis reaches at least from a tenth faster to a tenth slower, so that noise does not fill it.
_LEAST_REACH = math.log10(1.1)
_TICKS = (
    *(digit * 10.0**power for power in range(-4, 5) for digit in (1, 1.5, 2, 3, 5, 7)),
    *(0.8, 0.9, 0.95, 1.05, 1.1, 1.25),
)


def ratio_intervals(
    times: PairedTimes, names: Sequence[str], baseline: int, *, width_px: int = 480
) -> go.Figure | None:
    """A row for each program and layout, on a logarithmic axis with the baseline's 1; None of no ratio."""
    base = paired_times.base_of(times, baseline)
    groups = [
        (program, paired_times.ratios(times, base, program))
        for program in paired_times.PROGRAMS
        if base is not None
    ]
    groups = [(program, found) for program, found in groups if found]
    if not groups:
        return None
    low, high = _reach([one for _, found in groups for one in found])
    drawn: list[tuple[float, Ratio]] = []
    headings: list[tuple[float, str]] = []
    y = 0.0
    for program, found in groups:
        headings.append((y + _HEADING_PX / 2, PROGRAM_NAMES[program]))
        y += _HEADING_PX
        for one in found:
            drawn.append((y + _ROW_PX / 2, one))
            y += _ROW_PX
    most = min(_NAME_CHARACTERS, int(width_px / 3.5 / labels.width_px("x", frame.NOTE_PX)))
    row_names = [labels.middle_cut(names[one.layout], most) for _, one in drawn]
    said = [_said(one) for _, one in drawn]
    left = 14 + max(
        labels.width_px(name, frame.NOTE_PX)
        for name in (*row_names, *(name for _, name in headings))
    )
    right = 12 + max(labels.width_px(one, frame.NOTE_PX) for one in said)
    notes = frame.note_lines(_notes(drawn, names[base], low, high), width_px)
    top = frame.heading_px(len(notes))
    figure = frame.figure(
        [_rounds(drawn), *(_interval(place, one, names) for place, one in drawn)],
        width_px,
        top + y + _TICKS_PX,
        title=frame.title(f"Timed together, {EMULATED}", width_px),
        margin={"l": left, "r": right, "t": top, "b": _TICKS_PX, "pad": frame.PAD_PX},
        xaxis=frame.axis(
            type="log",
            range=[low, high],
            **_ticks(low, high, max(width_px - left - right, 1)),
            title={
                "text": "times as long (left of 1 faster, right of 1 slower)"
                if width_px - left - right > 260
                else "times as long",
                "font": {"size": frame.NOTE_PX},
                "standoff": 4,
            },
        ),
        yaxis=frame.axis(
            range=[y, 0],
            tickvals=[*(place for place, _ in headings), *(place for place, _ in drawn)],
            ticktext=[
                *(f"<b>{labels.escape(name)}</b>" for _, name in headings),
                *map(labels.escape, row_names),
            ],
            tickfont={"size": frame.NOTE_PX},
        ),
        annotations=[
            frame.notes_above(notes, left),
            *(_at_the_right(place, text) for (place, _), text in zip(drawn, said, strict=True)),
        ],
        shapes=[
            {
                "type": "line",
                "x0": 1,
                "x1": 1,
                "y0": 0,
                "y1": y,
                "line": {"color": frame.MIDDLE_GREY, "width": 1.5, "dash": "dot"},
                "layer": "below",
            }
        ],
        hovermode="closest",
    )
    return figure


def _reach(found: Sequence[Ratio]) -> tuple[float, float]:
    """The axis in powers of ten: all intervals and 1, and a little beyond. Single rounds may lie outside."""
    ends = [math.log10(end) for one in found for end in (one.interval.low, one.interval.high)]
    low, high = min(*ends, -_LEAST_REACH), max(*ends, _LEAST_REACH)
    room = (high - low) * 0.08
    return low - room, high + room


def _rounds(drawn: Sequence[tuple[float, Ratio]]) -> go.Scatter:
    """The ratio of each round, one beside the other within its row."""
    places = [
        (ratio, place + ((number * 0.618034) % 1 - 0.5) * _ROW_PX * 0.5, number, one)
        for place, one in drawn
        for number, ratio in enumerate(one.rounds)
    ]
    return go.Scatter(
        x=[ratio for ratio, *_ in places],
        y=[height for _, height, *_ in places],
        mode="markers",
        marker={
            "size": 5,
            "opacity": 0.35,
            "color": [COLORS[one.verdict] for *_, one in places],
        },
        customdata=[[number + 1, ratio_text(ratio)] for ratio, _, number, _ in places],
        hovertemplate="round %{customdata[0]}: %{customdata[1]} times as long<extra></extra>",
    )


def _interval(place: float, one: Ratio, names: Sequence[str]) -> go.Scatter:
    words = (
        f"{labels.escape(names[one.layout])}: {one.verdict}<br>{ratio_text(one.median)} times as long, "
        f"{interval_text(one)}<br>median {formatting.seconds_text(one.seconds)}, "
        f"the baseline's {formatting.seconds_text(one.baseline_seconds)}"
    )
    return go.Scatter(
        x=[one.interval.low, one.median, one.interval.high],
        y=[place] * 3,
        mode="lines+markers",
        line={"color": COLORS[one.verdict], "width": 3},
        marker={"size": [11, 10, 11], "symbol": ["line-ns-open", "diamond", "line-ns-open"]},
        customdata=[[words]] * 3,
        hovertemplate="%{customdata[0]}<extra></extra>",
    )


def _said(one: Ratio) -> str:
    return f"{one.verdict}\n{ratio_text(one.median)} ({interval_text(one)})"


def _notes(drawn: Sequence[tuple[float, Ratio]], base: str, low: float, high: float) -> list[str]:
    rounds = len(drawn[0][1].rounds)
    coverage = drawn[0][1].interval.coverage * 100
    notes = [
        f"time as a multiple of that of {labels.cut(base, 40)}, the dotted line; a dot is a round, the "
        f"diamond the median of {formatting.counted(rounds, 'round')}, the bar its {coverage:.1f} % interval"
    ]
    outside = sum(not low <= math.log10(ratio) <= high for _, one in drawn for ratio in one.rounds)
    if outside:
        notes.append(f"{formatting.counted(outside, 'dot')} outside the axis")
    return notes


def _at_the_right(place: float, text: str) -> dict:
    return {
        "text": labels.lines(text),
        "showarrow": False,
        "x": 1,
        "xref": "paper",
        "xanchor": "left",
        "xshift": 6,
        "y": place,
        "yanchor": "middle",
        "align": "left",
        "font": {"size": frame.NOTE_PX},
    }


def _ticks(low: float, high: float, plot_px: float) -> dict:
    """Round ratios on the axis, 1 always, and no two so near that their labels touch."""
    scale = plot_px / (high - low)
    kept = [1.0]
    # Round ones first: a power of ten before a half or a fifth of one.
    for tick in sorted(
        _TICKS, key=lambda tick: (len(f"{tick:g}".strip("0.")), abs(math.log10(tick)))
    ):
        place = math.log10(tick)
        apart = min(abs(place - math.log10(other)) for other in kept) * scale
        if low <= place <= high and apart >= 44:
            kept.append(tick)
    return {
        "tickvals": sorted(kept),
        "ticktext": [f"{tick:g}" for tick in sorted(kept)],
        "tickangle": 0,
    }
