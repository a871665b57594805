"""The modelled step of one program: a bar for compute, HBM, and the communication over each mesh axis."""

from __future__ import annotations

import plotly.graph_objects as go

from inspector.core.formatting import counted, seconds_text
from inspector.figures import bars, frame, palette
from inspector.machines.prediction import step_model as model
from inspector.machines.prediction.step_model import Modelled, Term

_COLORS = {
    "compute": palette.OKABE_ITO[0],
    "memory": palette.OKABE_ITO[1],
    "communication": palette.OKABE_ITO[2],
}


def step_model(modelled: Modelled, *, width_px: int = 480) -> go.Figure:
    """Return a bar for each term of the step time, on a linear scale; the heading has its seconds.

    A term whose seconds are unknown has a heading and no bar.
    """
    rows = [bars.Bar(term.name, _value(term, modelled), _segments(term)) for term in modelled.terms]
    return bars.stacked(
        rows,
        width_px,
        legend=False,
        heading=f"Modelled step of {modelled.program}",
        notes=_notes(modelled),
    )


def _value(term: Term, modelled: Modelled) -> str:
    return seconds_text(term.seconds) + (" · the bound" if term is modelled.ruling else "")


def _segments(term: Term) -> tuple[bars.Segment, ...]:
    if term.seconds is None or term.seconds <= 0:
        return ()
    hover = [
        f"{term.name}: {seconds_text(term.seconds)}, modelled",
        *frame.note_lines([term.formula], 420),
    ]
    color = _COLORS.get(term.kind, palette.UNKNOWN)
    return (bars.Segment(term.kind, term.seconds, color, frame.hover(hover)),)


def _notes(modelled: Modelled) -> list[str]:
    devices = counted(modelled.devices, "device")
    on = f"on {devices} of {modelled.chip.title}, modelled, not measured"
    if modelled.lower_seconds is None or modelled.upper_seconds is None:
        return [on, f"step: {model.bound_text(modelled)}"]
    lower, upper = seconds_text(modelled.lower_seconds), seconds_text(modelled.upper_seconds)
    return [on, f"step: {lower} if everything overlaps, {upper} if nothing overlaps"]
