"""Where the time of a program's steps went on emulated devices, by kind of operation."""

from __future__ import annotations

import plotly.graph_objects as go

from inspector.core import formatting
from inspector.core.collectives import OPS
from inspector.core.snapshot import Trace
from inspector.figures import frame, labels, palette
from inspector.figures.timings import EMULATED

# What is left of the devices' time: launching, and waiting for a core of this machine.
IDLE = "no operation"
LOOPS = ("while", "call", "conditional", "async-start", "async-done")

# Words for the kinds whose name alone says too little.
WORDS = {
    "fusion": "fusion, elementwise",
    "dot": "dot: matrix products",
    "while": "while: the loop itself",
    "other": "other programs",
}

_ROW_PX = 26
_MOST_ROWS = 12


def operation_times(trace: Trace, devices: int, *, width_px: int = 480) -> go.Figure | None:
    """A bar a kind: its share of the devices' time, and seconds a step and device; None of no operation.

    The time of `devices` devices is that many times the trace's wall-clock time, and what no operation
    took of it is a bar of its own. Collectives mostly wait for other devices' threads.
    """
    whole = trace.seconds * devices
    if not trace.operations or whole <= 0:
        return None
    rows = [(one.kind, one.seconds, one.events) for one in trace.operations]
    if len(rows) > _MOST_ROWS:
        rest = rows[_MOST_ROWS - 1 :]
        kinds = f"{len(rest)} kinds more"
        rows = rows[: _MOST_ROWS - 1]
        rows.append((kinds, sum(row[1] for row in rest), sum(row[2] for row in rest)))
    idle = whole - sum(seconds for _, seconds, _ in rows)
    if idle > 0:
        rows.append((IDLE, idle, 0))
    names = [labels.cut(WORDS.get(kind, kind), 30) for kind, *_ in rows]
    said = [_said(seconds, whole, trace, devices) for _, seconds, _ in rows]
    notes = frame.note_lines(
        [
            "share of the devices' time, and time of one step on one device",
            f"{formatting.counted(trace.steps, 'step')} on {formatting.counted(devices, 'device')} that "
            "share this machine's cores: an operation's time includes its wait for a core",
            *_note_on_collectives(trace),
        ],
        width_px,
    )
    top = frame.heading_px(len(notes))
    left = 14 + max(labels.width_px(name, frame.NOTE_PX) for name in names)
    plot_px = max(width_px - left - 8, 1)
    said_px = max(labels.width_px(text, frame.NOTE_PX) for text in said) + 8
    longest = max(seconds for _, seconds, _ in rows)
    height = _ROW_PX * len(rows)
    return frame.figure(
        [
            go.Bar(
                orientation="h",
                x=[seconds for _, seconds, _ in rows],
                y=[(number + 0.5) * _ROW_PX for number in range(len(rows))],
                width=_ROW_PX - 6,
                marker={"color": [_color(kind) for kind, *_ in rows]},
                text=said,
                textposition="outside",
                textfont={"size": frame.NOTE_PX},
                cliponaxis=False,
                customdata=[
                    [labels.escape(kind), f"{events:,}" if events else "none", repr(seconds)]
                    for kind, seconds, events in rows
                ],
                hovertemplate="%{customdata[0]}<br>%{customdata[2]} s on all devices together"
                "<br>events: %{customdata[1]}<extra></extra>",
            )
        ],
        width_px,
        top + height + 8,
        title=frame.title(f"Operations, {EMULATED}", width_px),
        margin={"l": left, "r": 8, "t": top, "b": 8, "pad": frame.PAD_PX},
        # Room at the right for the values, which stand behind the bars.
        xaxis=frame.axis(
            range=[0, longest * plot_px / max(plot_px - said_px, plot_px / 4)],
            showticklabels=False,
        ),
        yaxis=frame.axis(
            range=[height, 0],
            tickvals=[(number + 0.5) * _ROW_PX for number in range(len(rows))],
            ticktext=[labels.escape(name) for name in names],
            tickfont={"size": frame.NOTE_PX},
        ),
        annotations=[frame.notes_above(notes, left)],
    )


def _said(seconds: float, whole: float, trace: Trace, devices: int) -> str:
    share = seconds / whole
    percent = "< 0.1 %" if 0 < share < 0.001 else f"{share:.1%}".replace("%", " %")
    return f"{percent}, {formatting.seconds_text(seconds / trace.steps / devices)}"


def _note_on_collectives(trace: Trace) -> list[str]:
    if not any(one.kind in OPS for one in trace.operations):
        return []
    return ["collectives: only what no other operation hides, most of it waiting for other devices"]


def _color(kind: str) -> str:
    if kind == IDLE:
        return palette.UNKNOWN
    if kind in OPS:
        return palette.OKABE_ITO[5]
    return palette.OKABE_ITO[4] if kind in LOOPS else palette.OKABE_ITO[0]
