"""The time of a program's steps on emulated devices, by kind of operation."""

from __future__ import annotations

import math

import plotly.graph_objects as go

from inspector.core import formatting
from inspector.core.collectives import OPS
from inspector.core.snapshot import Trace
from inspector.figures import bars, frame, labels, palette
from inspector.figures.timings import EMULATED

# The rest of the devices' time: launching operations, and waiting for a core of this machine.
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


def operation_times(trace: Trace, devices: int, *, width_px: int = 480) -> go.Figure | None:
    """Return a bar for each kind of operation: its share of the devices' time, and seconds per step.

    The devices' time is the wall-clock time of the trace times `devices`; time without an operation has
    its own bar. Collectives mostly wait for other devices. Return None if the trace has no operations, no
    steps or no time.
    """
    total = trace.seconds * devices
    if not trace.operations or not 0 < total < math.inf or trace.steps < 1:
        return None
    rows = [(one.kind, max(one.seconds, 0), one.events) for one in trace.operations]
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
        percent = "< 0.1 %" if 0 < share < 0.001 else f"{share:.1%}".replace("%", " %")
        each = formatting.seconds_text(seconds / trace.steps / devices)
        hover = [kind, f"{seconds!r} s on all devices", f"events: {events:,}" if events else ""]
        drawn.append(
            bars.Row(
                labels.cut(WORDS.get(kind, kind), 30),
                seconds,
                f"{percent}, {each}",
                _color(kind),
                frame.hover([line for line in hover if line]),
            )
        )
    steps = formatting.counted(trace.steps, "step")
    notes = [
        "share of the devices' time, and time per step and device",
        f"{steps} on {formatting.counted(devices, 'device')} that share the cores of this machine: "
        "the time of an operation includes its wait for a core",
    ]
    if any(one.kind in OPS for one in trace.operations):
        notes.append(
            "collectives: time not hidden by other operations, mostly waiting for other devices"
        )
    return bars.rows_figure(
        [drawn],
        width_px,
        heading=f"Operations, {EMULATED}",
        notes=notes,
    )


def _color(kind: str) -> str:
    if kind == IDLE:
        return palette.UNKNOWN
    if kind in OPS:
        return palette.OKABE_ITO[5]
    return palette.OKABE_ITO[4] if kind in LOOPS else palette.OKABE_ITO[0]
