"""What some devices hold, group by group: what others hold too, and what would be lost with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from inspector.core import formatting
from inspector.core.device_holdings import Holdings
from inspector.figures import frame, labels, palette
from inspector.machines.prediction.memory import GROUPS

SHARED, ALONE = "also held elsewhere", "only here"

_BAR_PX, _HEADING_PX, _GAP_PX = 24, 22, 10
_LEGEND_PX = 30
_COLORS = {SHARED: palette.OKABE_ITO[4], ALONE: palette.OKABE_ITO[5]}


def holding_bars(held: Holdings, *, width_px: int = 480) -> go.Figure | None:
    """A bar a group of arrays; None where nothing is held, or bytes are not known."""
    rows = bytes_by_group(held)
    if not rows:
        return None
    longest = max(shared + alone for _, shared, alone in rows)
    places = [_HEADING_PX + at * (_HEADING_PX + _BAR_PX + _GAP_PX) for at in range(len(rows))]
    height = len(rows) * (_HEADING_PX + _BAR_PX + _GAP_PX)
    left = 10
    top = frame.heading_px(0)
    return frame.figure(
        [
            _bar(SHARED, [shared for _, shared, _ in rows], [0] * len(rows), places),
            _bar(ALONE, [alone for *_, alone in rows], [shared for _, shared, _ in rows], places),
        ],
        width_px,
        top + height + _LEGEND_PX,
        title=frame.title("Held there, by group", width_px),
        margin={"l": left, "r": 10, "t": top, "b": _LEGEND_PX},
        barmode="overlay",
        hovermode="closest",
        showlegend=True,
        legend=frame.legend_below(),
        xaxis=frame.axis(range=[0, longest * 1.02 or 1], showticklabels=False),
        yaxis=frame.axis(range=[height, 0], showticklabels=False),
        annotations=[
            _heading(name, shared, alone, place - _HEADING_PX, width_px)
            for (name, shared, alone), place in zip(rows, places, strict=True)
        ],
    )


def bytes_by_group(held: Holdings) -> list[tuple[str, int, int]]:
    """(group in words, bytes that others hold too, bytes that nobody else holds) where both are known."""
    rows = []
    for group, name in GROUPS.items():
        pieces = [piece for piece in held.pieces if piece.group == group and piece.bytes]
        shared, alone = (
            [piece.shared for piece in pieces],
            [piece.alone for piece in pieces],
        )
        if pieces and None not in shared and None not in alone:
            rows.append((name, sum(map(int, shared)), sum(map(int, alone))))
    return rows


def _bar(
    name: str, sizes: Sequence[int], starts: Sequence[int], places: Sequence[float]
) -> dict[str, Any]:
    return go.Bar(
        orientation="h",
        name=name,
        x=list(sizes),
        base=list(starts),
        y=[place + _BAR_PX / 2 for place in places],
        width=_BAR_PX,
        marker={"color": _COLORS[name], "line": {"width": 0}},
        text=[f"{name}: {formatting.exact_bytes_text(size)}" for size in sizes],
        textposition="none",
        hovertemplate="%{text}<extra></extra>",
    )


def _heading(name: str, shared: int, alone: int, y: float, width_px: int) -> dict[str, Any]:
    words = f"{name}: {formatting.bytes_text(shared + alone)}"
    if alone:
        words += f", {formatting.bytes_text(alone) if shared else 'all'} of it only here"
    most = int(width_px / labels.width_px("x", frame.NOTE_PX))
    return {
        "text": labels.escape(labels.cut(words, most)),
        "showarrow": False,
        "x": 0,
        "xref": "paper",
        "xanchor": "left",
        "xshift": -2,
        "y": y + _HEADING_PX / 2,
        "yanchor": "middle",
        "font": {"size": frame.NOTE_PX},
    }
