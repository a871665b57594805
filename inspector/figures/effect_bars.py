"""Bars to both sides of zero: the rise or fall of a figure with each change of a layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from inspector.figures import frame, labels, palette

MORE, LESS = palette.OKABE_ITO[5], palette.OKABE_ITO[0]
_ROW_PX = 26
_NAMES_SHARE = 0.45  # of the width, at most


@dataclass(frozen=True)
class Row:
    """One change. The texts are not escaped."""

    name: str
    change: float
    text: str
    hover: Sequence[str]


def effect_bars(
    rows: Sequence[Row], *, heading: str, notes: Sequence[str] = (), width_px: int = 480
) -> go.Figure | None:
    """Return a bar for each row, with its name at the left and the change at its end.

    Return None if there are no rows.
    """
    if not rows:
        return None
    most = labels.fitting(width_px * _NAMES_SHARE, frame.NOTE_PX)
    names = [labels.middle_cut(row.name, most) for row in rows]
    left = 14 + max(labels.width_px(name, frame.NOTE_PX) for name in names)
    low = min(0.0, *(row.change for row in rows))
    high = max(0.0, *(row.change for row in rows))
    room_below, room_above = (_room(rows, sign) for sign in (-1, 1))
    plot_px = max(width_px - left - 8 - room_below - room_above, 40)
    per_px = (high - low) / plot_px or 1.0
    middles = [(number + 0.5) * _ROW_PX for number in range(len(rows))]
    height = _ROW_PX * len(rows)
    bars = go.Bar(
        orientation="h",
        x=[row.change for row in rows],
        y=middles,
        width=_ROW_PX - 6,
        marker={"color": [MORE if row.change > 0 else LESS for row in rows]},
        text=[labels.escape(row.text) for row in rows],
        textposition="outside",
        textfont={"size": frame.NOTE_PX},
        cliponaxis=False,
        customdata=[frame.hover(row.hover) for row in rows],
        hovertemplate=frame.HOVER_TEXT,
    )
    return frame.plot(
        [bars],
        width_px,
        height,
        heading=heading,
        notes=notes,
        left=left,
        right=8,
        shapes=[frame.line(0, 0, 0, height)],
        xaxis=frame.axis(
            range=[low - room_below * per_px, high + room_above * per_px], showticklabels=False
        ),
        yaxis=frame.axis(
            range=[height, 0],
            tickvals=middles,
            ticktext=[labels.escape(name) for name in names],
            tickfont={"size": frame.NOTE_PX},
        ),
    )


def _room(rows: Sequence[Row], sign: int) -> float:
    """Return the pixels that the texts of bars with this sign need."""
    texts = [row.text for row in rows if row.change * sign > 0 or (sign > 0 and not row.change)]
    return max((labels.width_px(text, frame.NOTE_PX) + 10 for text in texts), default=8.0)
