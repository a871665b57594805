"""What some devices hold, by group of arrays: with copies elsewhere, and without."""

from __future__ import annotations

import plotly.graph_objects as go

from inspector.core import formatting
from inspector.core.array_groups import ARRAY_GROUPS
from inspector.core.device_holdings import Holdings
from inspector.figures import bars, frame, labels, palette

SHARED, ALONE = "also held elsewhere", "only here"
_COLORS = {SHARED: palette.OKABE_ITO[4], ALONE: palette.OKABE_ITO[5]}


def holding_bars(held: Holdings, *, width_px: int = 480) -> go.Figure | None:
    """Return a bar for each group of arrays; None if nothing is held, or no bytes are known."""
    rows = bytes_by_group(held)
    if not rows:
        return None
    placed = bars.place(
        [
            bars.Bar(
                _heading(name, shared, alone, width_px),
                (_segment(SHARED, 0, shared), _segment(ALONE, shared, alone)),
            )
            for name, shared, alone in rows
        ]
    )
    return bars.figure(
        placed,
        placed.traces(width_px / (placed.longest or 1)),
        placed.longest * 1.02,
        width_px,
        heading="Held bytes by group",
    )


def bytes_by_group(held: Holdings) -> list[tuple[str, int, int]]:
    """Return (heading, bytes with copies elsewhere, bytes without) of the groups with known bytes."""
    rows = []
    for group, style in ARRAY_GROUPS.items():
        pieces = [piece for piece in held.pieces if piece.group == group and piece.bytes]
        shared = [piece.shared for piece in pieces if piece.shared is not None]
        alone = [piece.alone for piece in pieces if piece.alone is not None]
        if pieces and len(shared) == len(alone) == len(pieces):
            rows.append((style.heading, max(sum(shared), 0), max(sum(alone), 0)))
    return rows


def _segment(name: str, start: int, size: int) -> bars.Segment:
    hover = f"{name}: {formatting.exact_bytes_text(size)}"
    return bars.Segment(name, start, size, _COLORS[name], hover)


def _heading(name: str, shared: int, alone: int, width_px: int) -> str:
    text = f"{name}: {formatting.bytes_text(shared + alone)}"
    if alone:
        text += f", {formatting.bytes_text(alone) if shared else 'all'} of it only here"
    return labels.escape(labels.cut(text, labels.fitting(width_px, frame.NOTE_PX)))
