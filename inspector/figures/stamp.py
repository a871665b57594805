"""The source of a figure, written below it, so that a saved picture names its layout.

The figure grows by the height of the lines; nothing in it moves.
"""

import base64
from collections.abc import Iterable
from typing import Any

import plotly.graph_objects as go

from inspector.figures import frame, labels, palette
from inspector.figures.whole_model.machine import Svg

TEXT_PX = 11
LINE_PX = 1.3 * TEXT_PX  # Plotly's line spacing
ABOVE_PX, BELOW_PX, SIDE_PX = 8, 8, 2
_AROUND_PX = 10  # of a drawing

_WIDEST = 1.2  # the width of a text in DejaVu Sans, the widest fallback font of browsers, over that in Arial


def stamped_with(figure: go.Figure, lines: Iterable[str]) -> go.Figure:
    """Return a copy of the figure with these lines below it, wrapped to its width and escaped."""
    copy = go.Figure(figure)
    added = additions(figure, lines)
    annotation = added.pop("annotation")
    copy.update_layout(added)
    if annotation is not None:
        copy.add_annotation(annotation)
    return copy


def figure_of(svg: Svg) -> go.Figure:
    """Return a figure that shows a drawing, to save it as every other figure is saved."""
    figure = go.Figure()
    figure.update_layout(
        width=round(svg.width) + 2 * _AROUND_PX,
        height=round(svg.height) + 2 * _AROUND_PX,
        margin=dict.fromkeys(("l", "r", "t", "b"), _AROUND_PX),
        plot_bgcolor="rgba(0,0,0,0)",
        meta={"svg": svg.text},
    )
    return figure


def _with_drawing(figure: go.Figure, ground: str, text: str) -> None:
    """Add the drawing in the colors of a ground. An image has no colors or fonts of a page."""
    svg = (figure.layout.meta or {}).get("svg")
    if svg is None:
        return
    styled = svg.replace("<svg ", f'<svg color="{text}" style="--ground:{ground}" ', 1)
    styled = styled.replace('font-family="inherit"', f'font-family="{labels.FONTS}"', 1)
    figure.update_layout(meta=None)
    figure.add_layout_image(
        source="data:image/svg+xml;base64," + base64.b64encode(styled.encode()).decode(),
        x=0,
        y=1,
        sizex=1,
        sizey=1,
        xref="paper",
        yref="paper",
        layer="below",
    )
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)


def additions(figure: go.Figure, lines: Iterable[str]) -> dict[str, Any]:
    """Return the changes of a figure's layout: its `width`, `height` and `margin`, and an `annotation`.

    The annotation is None if there are no lines.
    """
    layout = figure.layout
    margin, width, height = layout.margin.to_plotly_json(), layout.width, layout.height
    room = (width - 2 * SIDE_PX - 2) / _WIDEST
    wrapped = [part for line in lines for part in labels.wrapped_px(line, room, TEXT_PX)]
    if not wrapped:
        return {"width": width, "height": height, "margin": margin, "annotation": None}
    more = ABOVE_PX + LINE_PX * len(wrapped) + BELOW_PX
    return {
        "width": width,
        "height": round(height + more),
        "margin": {**margin, "b": margin["b"] + round(height + more) - height},
        "annotation": frame.on_paper(
            "<br>".join(map(labels.escape, wrapped)),
            0,
            0,
            xshift=SIDE_PX - margin["l"],
            yanchor="top",
            yshift=-margin["b"] - ABOVE_PX,
            font={"size": TEXT_PX},
        ),
    }


def on_ground(figure: go.Figure, *, dark: bool = False) -> go.Figure:
    """Return a copy of the figure with a white or dark ground, and the colors that fit it."""
    ground, text = palette.DARK_PAGE if dark else palette.LIGHT_PAGE
    copy = go.Figure(figure)
    for trace in copy.data if dark else ():
        trace.update((trace.meta or {}).get("dark", {}))
    copy.update_layout(paper_bgcolor=ground, font={"color": text, "family": labels.FONTS})
    _with_drawing(copy, ground, text)
    return copy
