"""The train state after a run: bytes alive on each device by owner, and the loss of every step."""

from collections.abc import Sequence

import plotly.graph_objects as go

from inspector.core import formatting
from inspector.core.array_groups import ARRAY_GROUPS
from inspector.core.formatting import counted
from inspector.core.snapshot import LiveBytes, Mesh
from inspector.figures import frame, labels, mesh_layout, palette, ticks

# The owner of bytes that no part of the run asked for.
NOBODY = "nobody"

_OTHER_GREYS = 5  # of owners that are not groups of arrays
_PLOT_PX = 200
_AXIS_PX = 44  # tick labels and the title of the axis


def live_map(live: Sequence[LiveBytes], mesh: Mesh, *, width_px: int = 480) -> go.Figure | None:
    """Return a stacked bar per device, in mesh order; None if nothing is alive."""
    if not live or not mesh_layout.has_devices(mesh):
        return None
    owners = owners_by_bytes(live)
    held = {(live_bytes.device, live_bytes.owner): live_bytes for live_bytes in live}
    most = max(
        sum(max(live_bytes.bytes, 0) for live_bytes in live if live_bytes.device == device)
        for device in mesh.devices
    )
    names = [words(owner) for owner in owners]
    left, right = 72, 12
    devices = ticks.every_nth(
        range(mesh.size), list(map(str, mesh.devices)), (width_px - left - right) / mesh.size
    )
    return frame.plot(
        [
            _bars(owner, place, [held.get((device, owner)) for device in mesh.devices], mesh)
            for place, owner in enumerate(owners)
        ],
        width_px,
        _PLOT_PX,
        heading="Alive on each device after the run",
        left=left,
        right=right,
        bottom=_AXIS_PX + 8 + frame.legend_px(names, width_px - 84),
        barmode="stack",
        bargap=0.15,
        showlegend=True,
        legend=frame.LEGEND_BELOW | {"y": -(_AXIS_PX + 4) / _PLOT_PX},
        xaxis=frame.axis(title=frame.axis_title("device"), **ticks.settings(*devices)),
        yaxis=frame.axis(**ticks.settings([0, most], ["0", formatting.bytes_text(most)])),
    )


def owners_by_bytes(live: Sequence[LiveBytes]) -> list[str]:
    """Return the owners, the largest first, bytes without an owner last."""
    total: dict[str, int] = {}
    for live_bytes in live:
        total[live_bytes.owner] = total.get(live_bytes.owner, 0) + live_bytes.bytes
    return sorted(total, key=lambda owner: (owner == NOBODY, -total[owner]))


def words(owner: str) -> str:
    """Return the name of an owner in the legend."""
    if owner == NOBODY:
        return "no known owner"
    return ARRAY_GROUPS[owner].heading if owner in ARRAY_GROUPS else owner


def _bars(owner: str, place: int, held: Sequence[LiveBytes | None], mesh: Mesh) -> go.Bar:
    greys = palette.neutrals(_OTHER_GREYS)
    color = palette.color_of_group(owner) if owner in ARRAY_GROUPS else greys[place % _OTHER_GREYS]
    unowned = owner == NOBODY
    return go.Bar(
        name=labels.escape(words(owner)),
        x=list(range(mesh.size)),
        y=[0 if live_bytes is None else max(live_bytes.bytes, 0) for live_bytes in held],
        marker={
            "color": palette.UNKNOWN if unowned else color,
            "pattern": {"shape": "/" if unowned else ""},
        },
        customdata=[
            frame.hover([f"device {device}", f"{words(owner)}: {_amount(live_bytes)}"])
            for device, live_bytes in zip(mesh.devices, held, strict=True)
        ],
        hovertemplate=frame.HOVER_TEXT,
    )


def _amount(live_bytes: LiveBytes | None) -> str:
    if live_bytes is None:
        return "nothing"
    return (
        f"{formatting.counted(live_bytes.arrays, 'array')}, {formatting.exact_bytes_text(live_bytes.bytes)}"
    )


def loss_curve(losses: Sequence[float | None], *, width_px: int = 480) -> go.Figure | None:
    """Return the loss over steps; step 0 is the first run. None if there are no losses."""
    if not losses:
        return None
    curve = go.Scatter(
        x=list(range(len(losses))),
        y=list(losses),
        mode="lines+markers",
        line={"color": palette.MARK, "width": 2},
        marker={"size": 5},
        hovertemplate="step %{x}: %{y}<extra></extra>",
    )
    return frame.plot(
        [curve],
        width_px,
        _PLOT_PX,
        heading="Loss by train step",
        notes=[loss_note(losses)],
        left=64,
        right=12,
        bottom=44,
        # At most ten ticks.
        xaxis=frame.axis(title=frame.axis_title("train step"), dtick=-(-len(losses) // 10)),
        # As in the note; Plotly's own `1T` looks like bytes.
        yaxis=frame.axis(showgrid=True, nticks=5, exponentformat="e"),
    )


def loss_note(losses: Sequence[float | None]) -> str:
    """Return the first and the last loss, and the number of losses that are not finite."""
    finite = [loss for loss in losses if loss is not None]
    if not finite:
        return "no loss is finite"
    text = f"from {finite[0]:.4g} to {finite[-1]:.4g} in {counted(len(losses) - 1, 'further step')}"
    lost = len(losses) - len(finite)
    return text + (f"; {lost} not finite, left out" if lost else "")
