"""How long each program took: lowering, compiling, the first run, and every measured step.

What is timed are emulated devices sharing the cores of this machine, or the compiler of a machine that is
not there, and every title says which.
"""

from __future__ import annotations

from collections.abc import Iterable

import plotly.graph_objects as go

from inspector.core import formatting
from inspector.core.snapshot import Program, Snapshot, Timeit
from inspector.core.statistics import statistics, statistics_text
from inspector.figures import frame, labels, palette
from inspector.machines import targets

EMULATED = "emulated on this machine"
COMPILED = "on this machine; nothing was run"

# Lowering, compiling and the first run: three colors of Okabe and Ito's, and a name at every bar group.
_PHASES = (
    ("lower", "lower", palette.OKABE_ITO[4]),
    ("compile", "compile", palette.OKABE_ITO[0]),
    ("first run", "first", palette.OKABE_ITO[1]),
)
_BAR_PX = 22
_PROGRAM_GAP_PX = 16
_STRIP_PX = 92
_MARK = "#2B8CC4"  # between the two blues of Okabe and Ito: reads on white and on black
_MOST_SVG_POINTS = 1000


def where(found: Snapshot) -> str:
    """What the times of a Snapshot were taken of, as titles say it."""
    return COMPILED if found.source.kind in targets.KINDS else EMULATED


def timeit_text(measured: Timeit) -> str:
    """Mean and deviation as IPython's `%%timeit` prints them."""
    mean, deviation = map(formatting.seconds_text, (measured.mean, measured.deviation))
    runs = f"{measured.runs} run{'s' * (measured.runs != 1)}"
    loops = f"{measured.loops:,} loop{'s' * (measured.loops != 1)} each"
    return f"{mean} ± {deviation} per loop (mean ± std. dev. of {runs}, {loops})"


def phases(
    programs: Iterable[Program], note: str = EMULATED, *, width_px: int = 480
) -> go.Figure | None:
    """Lower, compile and first run of each program as bars; None if none has been timed.

    The scale is linear, so that lengths compare; the value stands at each bar, however short.
    """
    timed = [program for program in programs if program.seconds is not None]
    longest = max((value for one in timed for _, value, _ in phase_seconds(one)), default=None)
    if longest is None:
        return None
    names, bars, y = [], [], 0.0
    traces = []
    for program in timed:
        start = y
        for phase, value, color in phase_seconds(program):
            bars.append((y + _BAR_PX / 2, phase, value, color, program.name))
            y += _BAR_PX
        if y > start:
            names.append(((start + y) / 2, program.name))
            y += _PROGRAM_GAP_PX
    height = y - _PROGRAM_GAP_PX
    for phase, _, color in _PHASES:
        drawn = [bar for bar in bars if bar[1] == phase]
        if not drawn:
            continue
        traces.append(
            go.Bar(
                orientation="h",
                x=[value for _, _, value, _, _ in drawn],
                y=[place for place, *_ in drawn],
                width=_BAR_PX - 4,
                marker={"color": color},
                text=[f"{phase}  {formatting.seconds_text(value)}" for _, _, value, _, _ in drawn],
                textposition="outside",
                textfont={"size": frame.NOTE_PX},
                cliponaxis=False,
                customdata=[[labels.escape(name), repr(value)] for _, _, value, _, name in drawn],
                hovertemplate=f"%{{customdata[0]}}<br>{phase}: %{{customdata[1]}} s<extra></extra>",
            )
        )
    left = 16 + max(labels.width_px(name, frame.NOTE_PX) for _, name in names)
    value_px = labels.width_px("first run  1,000 ms", frame.NOTE_PX) + 8
    first = any(phase == "first run" for _, phase, *_ in bars)
    said = "to lower, to compile, and the first run" if first else "to lower and to compile"
    notes = frame.note_lines([said], width_px)
    top = frame.heading_px(len(notes))
    plot_px = max(width_px - left - 8, 1)
    return frame.figure(
        traces,
        width_px,
        top + height + 12,
        title=frame.title(f"Compile times, {note}", width_px),
        margin={"l": left, "r": 8, "t": top, "b": 12, "pad": frame.PAD_PX},
        # Room at the right for the values, which stand behind the bars.
        xaxis=frame.axis(
            range=[0, longest * plot_px / max(plot_px - value_px, plot_px / 3)],
            showticklabels=False,
        ),
        yaxis=frame.axis(
            range=[height, 0],
            tickvals=[place for place, _ in names],
            ticktext=[labels.escape(name) for _, name in names],
            tickfont={"size": frame.NOTE_PX},
        ),
        barmode="overlay",
        annotations=[frame.notes_above(notes, left)],
    )


def steps(
    programs: Iterable[Program], note: str = EMULATED, *, width_px: int = 480
) -> go.Figure | None:
    """Every measured step of each program over its box plot; None if no step was measured.

    A strip has its own scale, not from zero: it shows a program's spread, not which is the slower one.
    """
    measured = [one for one in programs if one.seconds is not None and one.seconds.steps]
    if not measured:
        return None
    notes = frame.note_lines(
        ["every measured step; the box holds the middle half, its line is the median"], width_px
    )
    top = frame.heading_px(len(notes))
    height = _STRIP_PX * len(measured)
    figure = frame.figure(
        [],
        width_px,
        top + height + 8,
        title=frame.title(f"Step times, {note}", width_px),
        margin={"l": 10, "r": 22, "t": top, "b": 8, "pad": frame.PAD_PX},
        annotations=[frame.notes_above(notes, 10)],
        hovermode="closest",
    )
    for number, program in enumerate(measured):
        _add_strip(figure, number, len(measured), program, width_px)
    return figure


def phase_seconds(program: Program) -> list[tuple[str, float, str]]:
    """(phase, seconds, color) of the phases of a program that were timed."""
    found = [(phase, getattr(program.seconds, name, None), color) for phase, name, color in _PHASES]
    return [(phase, value, color) for phase, value, color in found if value is not None]


def _add_strip(
    figure: go.Figure, number: int, count: int, program: Program, width_px: float
) -> None:
    assert program.seconds is not None  # only timed programs are drawn
    values = program.seconds.steps
    found = statistics(values)
    assert found is not None  # only programs with steps are drawn
    suffix = str(number + 1) if number else ""
    scale, unit = _unit(found.median)
    axes = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
    figure.add_trace(
        go.Box(
            orientation="h",
            y=[0],
            q1=[found.lower_quartile / scale],
            median=[found.median / scale],
            q3=[found.upper_quartile / scale],
            lowerfence=[found.least / scale],
            upperfence=[found.most / scale],
            width=0.62,
            line={"color": frame.MIDDLE_GREY, "width": 1.5},
            fillcolor=palette.faded(frame.MIDDLE_GREY, 0.18),
            hoverinfo="skip",
            **axes,
        )
    )
    figure.add_trace(
        # Points as SVG are crisp, but a browser takes seconds for thousands of them.
        (go.Scatter if len(values) <= _MOST_SVG_POINTS else go.Scattergl)(
            x=[value / scale for value in values],
            y=[_spread(step) for step in range(len(values))],
            mode="markers",
            marker={"color": _MARK, "size": 6, "opacity": 0.8},
            customdata=[
                [step, formatting.seconds_text(value)] for step, value in enumerate(values)
            ],
            hovertemplate="step %{customdata[0]}: %{customdata[1]}<extra></extra>",
            **axes,
        )
    )
    upper, lower = 1 - number / count, 1 - (number + 1) / count
    heading_share, tick_share = 22 / (_STRIP_PX * count), 24 / (_STRIP_PX * count)
    room = (found.most - found.least or found.median * 0.1 or 1e-6) * 0.06
    figure.update_layout(
        {
            f"xaxis{suffix}": frame.axis(
                anchor=axes["yaxis"],
                range=[(found.least - room) / scale, (found.most + room) / scale],
                ticksuffix=f" {unit}",
                nticks=max(3, int(width_px / 90)),
            ),
            f"yaxis{suffix}": frame.axis(
                anchor=axes["xaxis"],
                domain=[lower + tick_share, upper - heading_share],
                range=[-0.5, 0.5],
                showticklabels=False,
            ),
        }
    )
    heading = f"{program.name}: {statistics_text(found)}"
    figure.add_annotation(
        text=labels.escape(
            labels.cut(heading, int(width_px / labels.width_px("x", frame.NOTE_PX)))
        ),
        showarrow=False,
        x=0,
        xref="paper",
        xanchor="left",
        xshift=-8,
        y=upper,
        yref="paper",
        yanchor="top",
        font={"size": frame.NOTE_PX},
    )


def _unit(seconds: float) -> tuple[float, str]:
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return scale, unit
    return 1e-6, "µs"


def _spread(step: int) -> float:
    """A height that keeps neighbours apart, by the golden ratio: the same picture each time."""
    return (step * 0.6180339887498949) % 1 * 0.5 - 0.25
