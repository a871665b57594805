"""The times of programs: every measured step, and kinds of operations.

The times are those of emulated devices that share the cores of a machine, or of real devices. The title of
every figure says which.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import plotly.graph_objects as go

from inspector.figures import bars, frame, labels, palette
from inspector.machines.targets import EMULATED
from inspector.records.collectives import OPS
from inspector.records.snapshot import Program, Trace
from inspector.records.statistics import Statistics, statistics, statistics_text
from inspector.text import formatting
from inspector.text.program_names import title

_STRIP_PX = 92
_MOST_SVG_POINTS = 1000

# The rest of the devices' time: launching operations, and waiting for a core of the machine.
IDLE = "no operation"
LOOPS = ("while", "call", "conditional", "async-start", "async-done")
# Kinds whose opcode alone says too little.
WORDS = {
    "fusion": "fusion, elementwise",
    "dot": "dot: matrix products",
    "while": "while: the loop itself",
    "other": "other programs",
}
_MOST_ROWS = 12


def steps(programs: Iterable[Program], note: str = EMULATED, *, width_px: int = 480) -> go.Figure | None:
    """Return every measured step of each program over its box plot; None if no step was measured.

    Each program has its own scale, not from zero: it shows the spread, and does not compare programs.
    """
    measured = [
        (title(program.name), values)
        for program in programs
        if program.seconds is not None and (values := tuple(filter(math.isfinite, program.seconds.steps)))
    ]
    if not measured:
        return None
    figure = frame.plot(
        [],
        width_px,
        _STRIP_PX * len(measured),
        heading=f"Step times, {note}",
        notes=["every measured step; the box holds the middle half, its line is the median"],
        left=10,
        right=22,
    )
    for number, (name, values) in enumerate(measured):
        _add_strip(figure, number, len(measured), name, values, width_px)
    return figure


def _add_strip(
    figure: go.Figure,
    number: int,
    count: int,
    name: str,
    values: tuple[float, ...],
    width_px: float,
) -> None:
    """Add the steps of a program, with separate axes, below the `number` strips before."""
    spread = statistics(values)
    assert spread is not None  # only programs with steps are drawn
    suffix = str(number + 1) if number else ""
    axes = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
    figure.add_trace(_box(spread, axes))
    figure.add_trace(_step_points(values, axes))
    upper, lower = 1 - number / count, 1 - (number + 1) / count
    heading_share, tick_share = 22 / (_STRIP_PX * count), 24 / (_STRIP_PX * count)
    room = (spread.most - spread.least or spread.median * 0.1 or 1e-6) * 0.06
    figure.update_layout(
        {
            f"xaxis{suffix}": frame.axis(
                anchor=axes["yaxis"],
                range=[spread.least - room, spread.most + room],
                ticksuffix="s",
                exponentformat="SI extended",
                minexponent=0,
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
    heading = f"{name}: {statistics_text(spread)}"
    if labels.arial_px(heading, frame.NOTE_PX) > width_px:
        heading = labels.cut(heading, labels.fitting(width_px, frame.NOTE_PX))
    figure.add_annotation(frame.on_paper(labels.escape(heading), 0, upper, xshift=-8, yanchor="top"))


def _box(spread: Statistics, axes: Mapping[str, str]) -> go.Box:
    return go.Box(
        orientation="h",
        y=[0],
        q1=[spread.low],
        median=[spread.median],
        q3=[spread.high],
        lowerfence=[spread.least],
        upperfence=[spread.most],
        width=0.62,
        line={"color": frame.MIDDLE_GREY, "width": 1.5},
        fillcolor=palette.faded(frame.MIDDLE_GREY, 0.18),
        hoverinfo="skip",
        **axes,
    )


def _step_points(values: Sequence[float], axes: Mapping[str, str]) -> go.Scatter | go.Scattergl:
    # SVG points are crisp, but a browser takes seconds to draw thousands of them.
    return (go.Scatter if len(values) <= _MOST_SVG_POINTS else go.Scattergl)(
        x=list(values),
        y=[jitter(step, 0.5) for step in range(len(values))],
        mode="markers",
        marker={"color": palette.MARK, "size": 6, "opacity": 0.8},
        customdata=[f"step {step}: {formatting.seconds_text(value)}" for step, value in enumerate(values)],
        hovertemplate=frame.HOVER_TEXT,
        **axes,
    )


def jitter(number: int, reach: float) -> float:
    """Return an offset within ±`reach`/2 that separates neighbors, the same in every figure."""
    return ((number * 0.6180339887498949) % 1 - 0.5) * reach


def operation_times(
    trace: Trace, devices: int, note: str = EMULATED, *, width_px: int = 480
) -> go.Figure | None:
    """Return a bar for each kind of operation: its share of the devices' time, and seconds per step.

    The devices' time is the wall-clock time of the trace times `devices`; time without an operation has
    its own bar. Collectives mostly wait for other devices. Return None if the trace has no operations, no
    steps or no time.
    """
    total = trace.seconds * devices
    if not trace.operations or not 0 < total < math.inf or trace.steps < 1:
        return None
    rows = [(operation.kind, max(operation.seconds, 0), operation.events) for operation in trace.operations]
    if len(rows) > _MOST_ROWS:
        rest = rows[_MOST_ROWS - 1 :]
        rows = rows[: _MOST_ROWS - 1]
        rows.append((f"{len(rest)} more kinds", sum(r[1] for r in rest), sum(r[2] for r in rest)))
    idle = total - sum(seconds for _, seconds, _ in rows)
    if idle > 0:
        rows.append((IDLE, idle, 0))
    drawn = []
    for kind, seconds, events in rows:
        share = seconds / total
        amount = formatting.seconds_text(seconds / trace.steps / devices)
        hover = [kind, f"{seconds!r} s on all devices", f"events: {events:,}" if events else ""]
        drawn.append(
            bars.BarRow(
                labels.cut(WORDS.get(kind, kind), 30),
                seconds,
                f"{formatting.share_text(share)}, {amount}",
                _color(kind),
                frame.hover([line for line in hover if line]),
            )
        )
    steps = formatting.counted(trace.steps, "step")
    notes = [
        "share of the devices' time, and its mean per step and device",
        f"{steps} on {formatting.counted(devices, 'device')}"
        + (
            " that share the cores of one machine: the time of an operation includes its wait for a core"
            if note == EMULATED
            else ""
        ),
    ]
    if any(operation.kind in OPS for operation in trace.operations):
        notes.append("collectives: time not hidden by other operations, mostly waiting for other devices")
    return bars.rows_figure(drawn, width_px, heading=f"Operations, {note}", notes=notes)


def _color(kind: str) -> str:
    if kind == IDLE:
        return palette.UNKNOWN
    if kind in OPS:
        return palette.MARK
    return palette.REMAINING if kind in LOOPS else palette.COMPUTE
