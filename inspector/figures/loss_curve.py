"""The loss of every train step."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from inspector.core.formatting import counted
from inspector.figures import frame, palette

_PLOT_PX = 200


def loss_curve(losses: Sequence[float | None], *, width_px: int = 480) -> go.Figure | None:
    """Return the loss over steps; step 0 is the first run. None if there are no losses."""
    if not losses:
        return None
    curve = go.Scatter(
        x=list(range(len(losses))),
        y=list(losses),
        mode="lines+markers",
        line={"color": palette.OKABE_ITO[0], "width": 2},
        marker={"size": 5},
        hovertemplate="step %{x}: %{y}<extra></extra>",
    )
    return frame.plot(
        [curve],
        width_px,
        _PLOT_PX,
        heading="Loss by train step",
        notes=[note(losses)],
        left=64,
        right=12,
        bottom=44,
        # At most ten ticks.
        xaxis=frame.axis(title=frame.axis_title("train step"), dtick=-(-len(losses) // 10)),
        # As in the note; Plotly's own `1T` looks like bytes.
        yaxis=frame.axis(showgrid=True, nticks=5, exponentformat="e"),
    )


def note(losses: Sequence[float | None]) -> str:
    """Return the first and the last loss, and the number of losses that are not finite."""
    finite = [loss for loss in losses if loss is not None]
    if not finite:
        return "no loss is finite"
    text = f"from {finite[0]:.4g} to {finite[-1]:.4g} in {counted(len(losses) - 1, 'further step')}"
    lost = len(losses) - len(finite)
    return text + (f"; {lost} not finite, left out" if lost else "")
