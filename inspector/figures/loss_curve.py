"""The loss of every train step, in order."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from inspector.core.formatting import counted
from inspector.figures import frame, palette

_PLOT_PX = 200


def loss_curve(losses: Sequence[float | None], *, width_px: int = 480) -> go.Figure | None:
    """Loss over steps, the first run being step 0; None of no losses."""
    if not losses:
        return None
    notes = frame.note_lines([note(losses)], width_px)
    top = frame.heading_px(len(notes))
    return frame.figure(
        [
            go.Scatter(
                x=list(range(len(losses))),
                y=list(losses),
                mode="lines+markers",
                line={"color": palette.OKABE_ITO[0], "width": 2},
                marker={"size": 5},
                hovertemplate="step %{x}: %{y}<extra></extra>",
            )
        ],
        width_px,
        top + _PLOT_PX + 44,
        title=frame.title("Loss by train step", width_px),
        margin={"l": 64, "r": 12, "t": top, "b": 44, "pad": frame.PAD_PX},
        xaxis=frame.axis(
            title={"text": "train step", "font": {"size": frame.NOTE_PX}}, dtick=_tick(losses)
        ),
        # As the note writes numbers; Plotly's own `1T` looks like bytes.
        yaxis=frame.axis(showgrid=True, nticks=5, exponentformat="e"),
        annotations=[frame.notes_above(notes, 64)],
    )


def note(losses: Sequence[float | None]) -> str:
    """The first and the last loss in words, and how many were not finite."""
    finite = [loss for loss in losses if loss is not None]
    if not finite:
        return "no loss was finite"
    words = (
        f"from {finite[0]:.4g} to {finite[-1]:.4g} in {counted(len(losses) - 1, 'further step')}"
    )
    lost = len(losses) - len(finite)
    return words + (f"; {lost} not finite, left out" if lost else "")


def _tick(losses: Sequence[float | None]) -> int:
    """Whole steps between ticks, so that at most ten stand there."""
    return -(-len(losses) // 10)
