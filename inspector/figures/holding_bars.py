"""What some devices hold, by group of arrays: with copies elsewhere, and without."""

from __future__ import annotations

import itertools

import plotly.graph_objects as go

from inspector.core import formatting
from inspector.core.array_groups import ARRAY_GROUPS
from inspector.core.device_holdings import Holdings
from inspector.figures import bars, frame, palette

SHARED, ALONE = "also held elsewhere", "only here"
_COLORS = {SHARED: palette.REMAINING, ALONE: palette.BAD}


def holding_bars(held: Holdings, *, width_px: int = 480) -> go.Figure | None:
    """Return a bar for each group of arrays; None if nothing is held, or no bytes are known."""
    rows = bytes_by_group(held)
    if not rows:
        return None
    return bars.stacked(
        [
            bars.Bar(name, _total(shared, alone), (_segment(SHARED, shared), _segment(ALONE, alone)))
            for name, shared, alone in rows
        ],
        width_px,
        heading="Held bytes by group",
    )


def bytes_by_group(held: Holdings) -> list[tuple[str, int, int]]:
    """Return (heading, bytes with copies elsewhere, bytes without) of the groups with known bytes."""
    rows = []
    for (group, style), in_host in itertools.product(ARRAY_GROUPS.items(), (False, True)):
        pieces = [
            piece
            for piece in held.pieces
            if piece.group == group and piece.bytes and piece.in_host == in_host
        ]
        alone = [piece.alone for piece in pieces if piece.alone is not None]
        if pieces and len(alone) == len(pieces):
            whole = sum(piece.bytes or 0 for piece in pieces)
            heading = style.heading + (", in host memory" if in_host else "")
            rows.append((heading, max(whole - sum(alone), 0), max(sum(alone), 0)))
    return rows


def _segment(name: str, size: int) -> bars.Segment:
    hover = frame.hover([f"{name}: {formatting.exact_bytes_text(size)}"])
    return bars.Segment(name, size, _COLORS[name], hover)


def _total(shared: int, alone: int) -> str:
    only = f", {formatting.bytes_text(alone) if shared else 'all'} of it only here" if alone else ""
    return formatting.bytes_text(shared + alone) + only
