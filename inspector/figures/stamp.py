"""What a picture is of, written on the picture itself, so that it says so wherever it is taken.

The lines stand below everything that the figure has, which is made as much higher; nothing in it moves.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import plotly.graph_objects as go

from inspector.core.snapshot import Snapshot
from inspector.figures import labels, provenance

TEXT_PX = 11
LINE_PX = 1.3 * TEXT_PX  # as Plotly spaces the lines of a text
ABOVE_PX, BELOW_PX, SIDE_PX = 8, 8, 2

# Grounds for pictures, which stand on no page that would give them one, and the text that reads on each.
LIGHT = ("#FFFFFF", "#1F2328")
DARK = ("#0E1117", "#F0F2F6")

# Where a figure does not say: Plotly's own.
_WIDTH_PX, _HEIGHT_PX = 700, 450
_MARGIN_PX = {"l": 80, "r": 80, "t": 100, "b": 80}

# Ems that a character takes at most in the fonts that a browser may fall back to, DejaVu Sans being the
# widest of them: small letters and figures, capitals, and the letters that fill a square.
_NARROW_EM, _CAPITAL_EM, _SQUARE_EM = 0.64, 0.78, 1.05
_WIDE = frozenset("mwMW@%&—…→")


def stamped(figure: go.Figure, found: Snapshot) -> go.Figure:
    """A copy of the figure with what it is of below it: model, mesh, rules, target, versions, date."""
    return stamped_with(figure, [provenance.line(found)])


def stamped_with(figure: go.Figure, lines: Iterable[str]) -> go.Figure:
    """A copy of the figure with these lines below it, wrapped to its width; they need not be escaped."""
    copy = go.Figure(figure)
    added = additions(figure, lines)
    annotation = added.pop("annotation")
    copy.update_layout(added)
    if annotation is not None:
        copy.add_annotation(annotation)
    return copy


def additions(figure: go.Figure, lines: Iterable[str]) -> dict[str, Any]:
    """What the lines change in a figure's layout: its `height`, its `margin`, and an `annotation` more.

    The annotation is None where there are no lines.
    """
    layout = figure.layout
    margin = {
        side: _MARGIN_PX[side] if layout.margin[side] is None else layout.margin[side]
        for side in _MARGIN_PX
    }
    width = layout.width or _WIDTH_PX
    height = layout.height or _HEIGHT_PX
    wrapped = [part for line in lines for part in wrap(line, width - 2 * SIDE_PX - 2)]
    if not wrapped:
        return {"width": width, "height": height, "margin": margin, "annotation": None}
    more = ABOVE_PX + LINE_PX * len(wrapped) + BELOW_PX
    return {
        "width": width,
        "height": round(height + more),
        "margin": {**margin, "b": margin["b"] + round(height + more) - height},
        "annotation": {
            "text": "<br>".join(map(labels.escape, wrapped)),
            "showarrow": False,
            "x": 0,
            "xref": "paper",
            "xanchor": "left",
            "xshift": SIDE_PX - margin["l"],
            "y": 0,
            "yref": "paper",
            "yanchor": "top",
            "yshift": -margin["b"] - ABOVE_PX,
            "align": "left",
            "font": {"size": TEXT_PX},
        },
    }


def on_ground(figure: go.Figure, *, dark: bool = False) -> go.Figure:
    """A copy of the figure on a ground of its own, with text that reads on it."""
    ground, text = DARK if dark else LIGHT
    copy = go.Figure(figure)
    copy.update_layout(paper_bgcolor=ground, font={"color": text})
    return copy


def wrap(text: str, width_px: float) -> list[str]:
    """The text on lines that are at most so wide in any font; a word that is wider is broken."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        joined = f"{line} {word}" if line else word
        if text_px(joined) <= width_px:
            line = joined
            continue
        if line:
            lines.append(line)
        *whole, line = _pieces(word, width_px)
        lines += whole
    return [*lines, line] if line else lines


def text_px(text: str) -> float:
    """How wide a line of the stamp is drawn at most."""
    return sum(map(_em, text)) * TEXT_PX


def _pieces(word: str, width_px: float) -> Sequence[str]:
    """A word in pieces that are no wider, cut behind a slash where there is one."""
    pieces, piece = [], ""
    for one in word:
        if piece and text_px(piece + one) > width_px:
            slash = piece.rfind("/") + 1 or len(piece)
            pieces.append(piece[:slash])
            piece = piece[slash:]
        piece += one
    return [*pieces, piece]


def _em(one: str) -> float:
    if one in _WIDE or unicodedata.east_asian_width(one) in "WF":
        return _SQUARE_EM
    if one.islower() or one.isdigit() or one in " .,:;·-_/()[]{}=×+'|":
        return _NARROW_EM
    return _CAPITAL_EM if one.isascii() or one.isalpha() else _SQUARE_EM
