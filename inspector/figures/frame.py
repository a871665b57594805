"""The layout that all figures share: a transparent ground, a title, notes above the plot, bare axes.

Figures set no color of text or ground, so that they follow the theme of the page, light or dark.
"""

import html
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from inspector.figures import labels, palette

TITLE_PX = 15
NOTE_PX = 12
NOTE_LINE_PX = 17
TICK_PX = 11
PAD_PX = 3  # between the plot and its tick labels

MOST_SAID = 12  # sentences of the text alternative of a figure

TRANSPARENT = "rgba(0,0,0,0)"

# A grey that can be read on white and on black, for text that does not follow the theme.
MIDDLE_GREY = palette.MIDDLE_GREY

# A legend below the plot that starts at its left edge. Plotly scrolls one higher than `maxheight` figures.
LEGEND_BELOW = {
    "orientation": "h",
    **{"x": 0, "xanchor": "left", "y": 0, "yanchor": "top"},
    "maxheight": 1,
    "font": {"size": NOTE_PX},
}

_MARK_PX = 40  # of an entry of a legend

HOVER_TEXT = "%{customdata}<extra></extra>"


def figure(traces: list[Any], width_px: float, height_px: float, **layout: Any) -> go.Figure:
    """Return a figure with these traces, the common defaults and this layout."""
    return go.Figure(
        data=traces,
        layout={
            # Plotly's default template takes 6.5 KB per figure and sets white grounds.
            "template": go.layout.Template(),
            "paper_bgcolor": TRANSPARENT,
            "plot_bgcolor": TRANSPARENT,
            "width": round(width_px),
            "height": round(height_px),
            "hoverlabel": {"align": "left", "namelength": 0},
            "hovermode": "closest",
            "showlegend": False,
            **layout,
        },
    )


def plot(
    traces: list[Any],
    width_px: float,
    plot_px: float,
    *,
    heading: str,
    notes: Sequence[str] = (),
    left: float = 2,
    right: float = 2,
    bottom: float = 8,
    above: float = 0,
    pad: float = PAD_PX,
    annotations: Sequence[dict[str, Any]] = (),
    amounts: Sequence[str] = (),
    **layout: Any,
) -> go.Figure:
    """Return a figure with a title and notes above a plot of this height.

    The texts are not escaped; notes are wrapped. `above` is room below the notes for column headings.
    `amounts` are the content of the figure in words, for `statement`.
    """
    lines = note_lines(notes, width_px)
    top = heading_px(len(lines)) + above
    return figure(
        traces,
        width_px,
        top + plot_px + bottom,
        title=title(heading, width_px),
        margin={"l": left, "r": right, "t": top, "b": bottom, "pad": pad},
        annotations=[notes_above(lines, left, above), *annotations],
        # Escaped as all strings of a figure, although Plotly does not draw it.
        meta={"statement": labels.escape(_sentences([*amounts, *notes]))},
        **layout,
    )


def alternative(figure: go.Figure, subject: str) -> str:
    """Return the text alternative of a figure: its subject, and the main statement of the figure itself."""
    meta = figure.layout.meta
    said = html.unescape(meta.get("statement", "")) if isinstance(meta, dict) else ""
    return f"{subject.rstrip('.')}. {said}" if said and said not in subject else subject


def _sentences(parts: Sequence[str]) -> str:
    """Return the first `MOST_SAID` parts as sentences, and the number of others: `3 more.`"""
    said = [part.strip().rstrip(".") for part in parts if part.strip()]
    more = f" {len(said) - MOST_SAID} more." if len(said) > MOST_SAID else ""
    return " ".join(f"{part}." for part in said[:MOST_SAID]) + more


def title(text: str, width_px: float) -> dict[str, Any]:
    """Return a title for Plotly; the text is escaped and its front is cut to the figure's width."""
    return {
        "text": labels.escape(labels.short_path(text, labels.fitting(width_px, TITLE_PX))),
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
    """Return an axis without lines, which would show through the gaps between cells."""
    return {
        "showgrid": False,
        "zeroline": False,
        "showline": False,
        "ticks": "",
        # The margins have room for the labels. With automargin, Plotly measures them and draws twice.
        "automargin": False,
        "tickfont": {"size": TICK_PX},
        **settings,
    }


def axis_title(text: str, standoff: float = 6) -> dict[str, Any]:
    """Return the title of an axis, `standoff` pixels from its tick labels."""
    return {"text": text, "standoff": standoff, "font": {"size": NOTE_PX}}


def annotation(text: str, x: float, y: float, **settings: Any) -> dict[str, Any]:
    """Return a left-aligned text without an arrow; `text` is escaped already."""
    return {
        "text": text,
        "showarrow": False,
        "x": x,
        "xanchor": "left",
        "y": y,
        "align": "left",
        "font": {"size": NOTE_PX},
        **settings,
    }


def on_paper(text: str, x: float, y: float, **settings: Any) -> dict[str, Any]:
    """Return an annotation whose place is a share of the plot's width and height, from 0 to 1."""
    return annotation(text, x, y, xref="paper", yref="paper", **settings)


def line(x0: float, x1: float, y0: float, y1: float, **style: Any) -> dict[str, Any]:
    """Return a straight line as a shape, in data coordinates; it is thin and grey by default."""
    return {
        "type": "line",
        **{"x0": x0, "x1": x1, "y0": y0, "y1": y1},
        "line": {"color": MIDDLE_GREY, "width": 1, **style},
    }


def rectangle(x0: float, x1: float, y0: float, y1: float, **style: Any) -> dict[str, Any]:
    """Return the outline of a rectangle as a shape, in data coordinates."""
    return {"type": "rect", **{"x0": x0, "x1": x1, "y0": y0, "y1": y1}, "line": style}


def colorbar(title: str, values: Sequence[float], texts: Sequence[str]) -> dict[str, Any]:
    """Return a color bar at the right edge of the figure."""
    return {
        "title": {"text": title, "side": "right", "font": {"size": TICK_PX}},
        "tickvals": list(values),
        "ticktext": list(texts),
        "tickfont": {"size": TICK_PX},
        "thickness": 10,
        "outlinewidth": 0,
        "len": 1,
        "y": 0.5,
        "x": 1,
        "xanchor": "right",
        "xref": "container",
    }


def legend_below(names: Sequence[str], width_px: float, axis_px: float, plot_px: float) -> dict[str, Any]:
    """Return the settings of `plot` for a legend below its axis.

    `axis_px` and `plot_px` are the heights of the axis labels and of the plot.
    """
    return {
        "bottom": axis_px + legend_px(names, width_px - 20),
        "showlegend": True,
        "legend": {**LEGEND_BELOW, "y": -axis_px / max(plot_px, 1)},
    }


def legend_px(names: Sequence[str], width_px: float) -> float:
    """Return the height of a legend below the plot; Plotly makes all entries as wide as the widest."""
    widest = max(labels.width_px(name, NOTE_PX) for name in names) + _MARK_PX
    return 22 * -(-len(names) // max(int(width_px / widest), 1))


def note_lines(notes: Sequence[str], width_px: float) -> list[str]:
    """Wrap each note to the figure's width. The lines are not escaped."""
    room = max(width_px - 4, 120)
    return [line for note in notes if note for line in labels.wrapped_px(note, room, NOTE_PX)]


def notes_above(lines: Sequence[str], left_px: float, above_px: float = 0) -> dict[str, Any]:
    """Return an annotation above the plot that starts at the figure's left edge."""
    return on_paper(
        "<br>".join(map(labels.escape, lines)),
        0,
        1,
        xshift=-left_px + 2,
        yanchor="bottom",
        yshift=7 + above_px,
    )


def heading_px(lines: int) -> float:
    """Return the height of a title and this many lines of notes."""
    return 34 + NOTE_LINE_PX * lines if lines else 30


def hover(lines: Sequence[str]) -> str:
    """Return a hover text: the lines escaped, the first one bold."""
    first, *rest = map(labels.escape, lines)
    return "<br>".join([f"<b>{first}</b>", *rest])


def axis_anchor(**axes: str) -> go.Scatter:
    """Return a trace without points. Plotly draws no axis that has no trace."""
    return go.Scatter(x=[None], y=[None], hoverinfo="skip", showlegend=False, **axes)
