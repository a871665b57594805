"""What all figures share: a see-through ground, a title in two lines, bare axes.

Nothing here sets a color of text or ground, so that the page's theme does, light or dark.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from inspector.figures import labels

TITLE_PX = 15
NOTE_PX = 12
NOTE_LINE_PX = 17
TICK_PX = 11
PAD_PX = 3  # between the plot and its tick labels

TRANSPARENT = "rgba(0,0,0,0)"

# A grey that reads on white and on black, for text that cannot follow the theme.
MIDDLE_GREY = "#808890"

# An empty template instead of Plotly's default one, which is 6.5 KB a figure and sets white grounds.
NO_TEMPLATE = go.layout.Template()


def figure(traces: list[Any], width_px: float, height_px: float, **layout: Any) -> go.Figure:
    """A figure with nothing but these traces and this layout."""
    return go.Figure(
        data=traces,
        layout={
            "template": NO_TEMPLATE,
            "paper_bgcolor": TRANSPARENT,
            "plot_bgcolor": TRANSPARENT,
            "width": round(width_px),
            "height": round(height_px),
            "hoverlabel": {"align": "left", "namelength": 0},
            "showlegend": False,
            **layout,
        },
    )


def title(text: str, width_px: float) -> dict[str, Any]:
    """A title, cut at its front to the figure's width; it need not be escaped."""
    most = int(width_px / labels.width_px("x", TITLE_PX))
    return {
        "text": labels.escape(labels.short_path(text, most)),
        "font": {"size": TITLE_PX},
        "x": 0,
        "xref": "container",
        "xanchor": "left",
        "y": 1,
        "yref": "container",
        "yanchor": "top",
        "pad": {"t": 6, "l": 2},
    }


def axis(**settings: Any) -> dict[str, Any]:
    """An axis without lines: they would show through the gaps between cells."""
    return {
        "showgrid": False,
        "zeroline": False,
        "showline": False,
        "ticks": "",
        # Our margins hold the labels; Streamlit's theme would have Plotly measure them and draw once more.
        "automargin": False,
        "tickfont": {"size": TICK_PX},
        **settings,
    }


def legend_below() -> dict[str, Any]:
    """A legend in lines under the plot, from the figure's left edge."""
    return {
        "orientation": "h",
        "x": 0,
        "xanchor": "left",
        "y": 0,
        "yanchor": "top",
        "maxheight": 1,  # Plotly scrolls what is higher than half the figure
        "font": {"size": NOTE_PX},
    }


def note_lines(notes: Sequence[str], width_px: float) -> list[str]:
    """The notes, each on lines of its own that the figure's width holds. Not escaped."""
    most = int(width_px / labels.width_px("x", NOTE_PX))
    return [line for note in notes for line in textwrap.wrap(note, max(most, 20))]


def notes_above(lines: Sequence[str], left_px: float) -> dict[str, Any]:
    """An annotation over the plot, from the figure's left edge; lines need not be escaped."""
    return {
        "text": "<br>".join(map(labels.escape, lines)),
        "showarrow": False,
        "x": 0,
        "xref": "paper",
        "xanchor": "left",
        "xshift": -left_px + 2,
        "y": 1,
        "yref": "paper",
        "yanchor": "bottom",
        "yshift": 7,
        "align": "left",
        "font": {"size": NOTE_PX},
    }


def heading_px(lines: int) -> float:
    """The height of a title and so many lines of notes."""
    return 34 + NOTE_LINE_PX * lines if lines else 30


Ticks = tuple[list[float], list[str]]


def map_figure(
    traces: list[Any],
    width_px: float,
    plot_width_px: float,
    plot_height_px: float,
    *,
    heading: str,
    notes: Sequence[str],
    below: Sequence[str],
    row_ticks: Ticks,
    column_ticks: Ticks,
    to_scale: bool,
) -> go.Figure:
    """A figure of cells whose axes count pixels from the upper left corner.

    Args:
      heading, notes, below: texts above and under the plot, not escaped.
      row_ticks, column_ticks: (positions, texts), the texts made of numbers.
      to_scale: keep the proportions when the figure is stretched.
    """
    above = note_lines(notes, width_px)
    under = note_lines(below, width_px)
    left = 8 + PAD_PX + max((labels.width_px(text, TICK_PX) for text in row_ticks[1]), default=0)
    # Half of the last label stands out; Plotly drops a label that the figure's edge would cut.
    right = 8 + max((labels.width_px(text, TICK_PX) / 2 for text in column_ticks[1]), default=0)
    top = heading_px(len(above))
    bottom = 8 + PAD_PX + (18 if column_ticks[1] else 0) + NOTE_LINE_PX * len(under)
    return figure(
        traces,
        width_px,
        top + plot_height_px + bottom,
        title=title(heading, width_px),
        margin={"l": left, "r": right, "t": top, "b": bottom, "pad": PAD_PX},
        xaxis=axis(
            range=[0, plot_width_px],
            tickvals=column_ticks[0],
            ticktext=column_ticks[1],
            tickangle=0,
            constrain="domain",
            constraintoward="left",
            title={
                "text": "<br>".join(map(labels.escape, under)),
                "standoff": 7,
                "font": {"size": NOTE_PX},
            },
        ),
        yaxis=axis(
            range=[plot_height_px, 0],
            tickvals=row_ticks[0],
            ticktext=row_ticks[1],
            scaleanchor="x" if to_scale else None,
            constrain="domain",
            constraintoward="top",
        ),
        annotations=[notes_above(above, left)],
        # No limit, so that a cell answers wherever the pointer is in it: the nearest centre is its own.
        hovermode="closest",
        hoverdistance=-1,
    )
