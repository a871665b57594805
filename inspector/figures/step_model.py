"""The modelled step of one program on a chip: a bar for compute, HBM, and each mesh axis's communication."""

from __future__ import annotations

import plotly.graph_objects as go

from inspector.core.formatting import counted, seconds_text
from inspector.figures import frame, labels, palette
from inspector.machines.prediction import step_model as model
from inspector.machines.prediction.step_model import Modelled, Term

_TEXT_PX = 19
_BAR_PX = 14
_GAP_PX = 11
_SIDE_PX = 10

# Three of Okabe and Ito's colors; the name stands over every bar.
_COLORS = {
    "compute": palette.OKABE_ITO[0],
    "memory": palette.OKABE_ITO[1],
    "communication": palette.OKABE_ITO[2],
}


def step_model(found: Modelled, *, width_px: int = 480) -> go.Figure:
    """Each term's modelled seconds as a bar with its name and value over it, the ruling one named.

    The scale is linear, so that lengths compare. An unknown term has its line of text and no bar.
    """
    row_px = _TEXT_PX + _BAR_PX + _GAP_PX
    height = row_px * len(found.terms)
    longest = max((term.seconds or 0 for term in found.terms), default=0) or 1.0
    notes = frame.note_lines(_notes(found), width_px)
    top = frame.heading_px(len(notes))
    most = int((width_px - 2 * _SIDE_PX) / labels.width_px("x", frame.NOTE_PX))
    known = [(number, term) for number, term in enumerate(found.terms) if term.seconds is not None]
    bars = go.Bar(
        orientation="h",
        x=[term.seconds for _, term in known],
        y=[number * row_px + _TEXT_PX + _BAR_PX / 2 for number, _ in known],
        width=_BAR_PX,
        marker={"color": [_COLORS[term.kind] for _, term in known]},
        customdata=[
            [labels.escape(term.name), seconds_text(term.seconds), _hover_formula(term)]
            for _, term in known
        ],
        hovertemplate="%{customdata[0]}: %{customdata[1]}, modelled<br>"
        "%{customdata[2]}<extra></extra>",
    )
    texts = [
        {
            "text": _row_text(term, found, most),
            "showarrow": False,
            "x": 0,
            "xref": "paper",
            "xanchor": "left",
            "y": number * row_px + _TEXT_PX / 2,
            "font": {"size": frame.NOTE_PX},
        }
        for number, term in enumerate(found.terms)
    ]
    return frame.figure(
        [bars],
        width_px,
        top + height + 4,
        title=frame.title(f"Modelled step of {found.program}", width_px),
        margin={"l": _SIDE_PX, "r": _SIDE_PX, "t": top, "b": 4},
        xaxis=frame.axis(range=[0, longest], showticklabels=False),
        yaxis=frame.axis(range=[height, 0], showticklabels=False),
        barmode="overlay",
        annotations=[frame.notes_above(notes, _SIDE_PX), *texts],
    )


def _notes(found: Modelled) -> list[str]:
    on = f"on {counted(found.devices, 'device')} of {found.chip.title}, modelled, not measured"
    if found.lower_seconds is None or found.upper_seconds is None:
        return [on, f"step: {model.bound_text(found)}"]
    lower, upper = seconds_text(found.lower_seconds), seconds_text(found.upper_seconds)
    return [on, f"step: {lower} if all of it overlaps, {upper} if nothing does"]


def _row_text(term: Term, found: Modelled, most: int) -> str:
    """`HBM  32.1 µs · the bound`, the name cut in its middle where the line is too long. Escaped."""
    value = seconds_text(term.seconds) + (" · the bound" if term is found.ruling else "")
    name = labels.middle_cut(term.name, max(most - len(value) - 3, 8))
    return f"{labels.escape(name)}  <b>{labels.escape(value)}</b>"


def _hover_formula(term: Term) -> str:
    return "<br>".join(map(labels.escape, frame.note_lines([term.formula], 420)))
