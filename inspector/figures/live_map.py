"""Bytes alive on each device after a run, by owner."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from inspector.core import formatting
from inspector.core.snapshot import LiveBytes, Mesh
from inspector.figures import frame, labels, palette

# The owner of what is alive without anybody having asked for it.
NOBODY = "nobody"

_PLOT_PX = 200


def live_map(live: Sequence[LiveBytes], mesh: Mesh, *, width_px: int = 480) -> go.Figure | None:
    """A stacked bar a device, in mesh order; None where nothing is alive."""
    if not live:
        return None
    owners = owners_by_bytes(live)
    held = {(one.device, one.owner): one for one in live}
    traces = [
        go.Bar(
            name=labels.escape(words(owner)),
            x=list(range(mesh.size)),
            y=[
                held[device, owner].bytes if (device, owner) in held else 0
                for device in mesh.devices
            ],
            marker={
                "color": palette.UNKNOWN
                if owner == NOBODY
                else palette.OKABE_ITO[place % len(palette.OKABE_ITO)],
                "pattern": {"shape": "/" if owner == NOBODY else ""},
            },
            customdata=[[device, _held_text(held.get((device, owner)))] for device in mesh.devices],
            hovertemplate="device %{customdata[0]}<br>"
            + labels.escape(words(owner))
            + ": %{customdata[1]}<extra></extra>",
        )
        for place, owner in enumerate(owners)
    ]
    most = max(sum(one.bytes for one in live if one.device == device) for device in mesh.devices)
    top = frame.heading_px(0)
    bottom = 44 + 20 * -(-len(owners) // 2)  # the legend stands below, two owners a line
    return frame.figure(
        traces,
        width_px,
        top + _PLOT_PX + bottom,
        title=frame.title("Alive on each device after the run", width_px),
        margin={"l": 72, "r": 12, "t": top, "b": bottom, "pad": frame.PAD_PX},
        barmode="stack",
        bargap=0.15,
        showlegend=True,
        legend={
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": -48 / _PLOT_PX,
            "yanchor": "top",
        },
        xaxis=frame.axis(
            title={"text": "device", "font": {"size": frame.NOTE_PX}},
            tickvals=_ticked(mesh),
            ticktext=[str(mesh.devices[place]) for place in _ticked(mesh)],
        ),
        yaxis=frame.axis(tickvals=[0, most], ticktext=["0", formatting.bytes_text(most)]),
    )


def owners_by_bytes(live: Sequence[LiveBytes]) -> list[str]:
    """The owners, the largest first, and `nobody` last."""
    total: dict[str, int] = {}
    for one in live:
        total[one.owner] = total.get(one.owner, 0) + one.bytes
    return sorted(total, key=lambda owner: (owner == NOBODY, -total[owner]))


def words(owner: str) -> str:
    """The owner as a legend has it."""
    return {NOBODY: "nobody asked for it", "params": "parameters"}.get(owner, owner)


def _held_text(one: LiveBytes | None) -> str:
    if one is None:
        return "nothing"
    return f"{one.arrays} array{'s' * (one.arrays != 1)}, {formatting.exact_bytes_text(one.bytes)}"


def _ticked(mesh: Mesh) -> list[int]:
    return list(range(0, mesh.size, -(-mesh.size // 16)))
