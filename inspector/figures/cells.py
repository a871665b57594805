"""Colored, labelled cells as Plotly traces, shared by all figures that are made of cells."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from inspector.figures import frame, labels, palette, ticks
from inspector.figures.lattice import CellTexts, Sheet
from inspector.figures.ticks import NO_TICKS, Ticks

# Cells at least this large are separated by a line, through which the page shows.
_SMALLEST_SEPARATED_PX = 5
_SEPARATOR_PX = 1.5
_MOST_COLORS = 256  # of a color scale; of more, equal ones are one

Edges = list[tuple[float, float]]


def map_figure(
    traces: list[Any],
    width_px: float,
    plot_width_px: float,
    plot_height_px: float,
    *,
    heading: str,
    notes: Sequence[str],
    below: Sequence[str] = (),
    row_ticks: Ticks = NO_TICKS,
    column_ticks: Ticks = NO_TICKS,
    to_scale: bool = False,
) -> go.Figure:
    """Return a figure of cells whose axes count pixels from the upper left corner.

    The texts above and `below` the plot are not escaped. `to_scale` keeps the proportions of the plot.
    """
    under = frame.note_lines(below, width_px)
    left = 8 + frame.PAD_PX + max((labels.width_px(text, frame.TICK_PX) for text in row_ticks[1]), default=0)
    # Plotly drops a label that the figure's edge would cut, so half of the last one must fit.
    right = 8 + max((labels.width_px(text, frame.TICK_PX) / 2 for text in column_ticks[1]), default=0)
    return frame.plot(
        traces,
        width_px,
        plot_height_px,
        heading=heading,
        notes=notes,
        left=left,
        right=right,
        bottom=8 + frame.PAD_PX + (18 if column_ticks[1] else 0) + frame.NOTE_LINE_PX * len(under),
        xaxis=frame.axis(
            range=[0, plot_width_px],
            **ticks.settings(*column_ticks),
            constrain="domain",
            constraintoward="left",
            title=frame.axis_title("<br>".join(map(labels.escape, under)), 7),
        ),
        yaxis=frame.axis(
            range=[plot_height_px, 0],
            **ticks.settings(*row_ticks),
            scaleanchor="x" if to_scale else None,
            constrain="domain",
            constraintoward="top",
        ),
        hoverdistance=-1,  # a cell's point is the nearest one in all of the cell
    )


def heatmaps(
    sheet: Sheet,
    columns: Edges,
    rows: Edges,
    numbers: Sequence[int],
    colors: Sequence[str],
    text: CellTexts,
    highlight: int | None = None,
) -> list[go.Heatmap]:
    """Return the cells of a sheet, colored by number, as one heatmap per text color.

    Args:
      columns, rows: (start, stop) in pixels of each slot.
      numbers: the number of each cell of the sheet; −1 leaves a cell out.
      colors: the color of each number. Several may be equal.
      highlight: a number to emphasize; all other cells fade.
    """
    distinct = tuple(colors if len(colors) <= _MOST_COLORS else dict.fromkeys(colors))
    coloring, color_number = palette.coloring(distinct), np.arange(max(len(colors), 1))
    if len(distinct) < len(colors):
        place_of = {color: place for place, color in enumerate(distinct)}
        color_number = np.array([place_of[color] for color in colors])
    x, column_bands = bands(columns)
    y, row_bands = bands(rows)
    at = _spread(sheet.cells, row_bands, column_bands)
    z = np.where(at >= 0, np.append(np.asarray(numbers), -1)[at], -1)
    texts = np.append(np.array([labels.lines(label) for label in text.texts], dtype=object), "")[at]
    text_colors = np.array([palette.text_on(color) for color in colors] or [""], dtype=object)
    text_color = text_colors[np.where(z >= 0, z, 0)]
    faint = (z != highlight) if highlight is not None else np.zeros(z.shape, dtype=bool)
    text_color[faint] = ""  # the color of the theme, which can be read on faded cells
    separator = separator_px(columns, rows)
    heatmaps = by_text_color(
        np.where(z >= 0, color_number[np.where(z >= 0, z, 0)], np.nan),
        texts,
        text_color,
        text.size_px,
        x=x,
        y=y,
        **coloring,
        xgap=separator,
        ygap=separator,
        hoverinfo="skip",
    )
    for heatmap in heatmaps:
        if heatmap.textfont.color is None:
            heatmap.colorscale = [(place, palette.faded(color)) for place, color in coloring["colorscale"]]
    return heatmaps


def by_text_color(
    z: np.ndarray,
    texts: np.ndarray,
    text_color: np.ndarray,
    size_px: float,
    hover: np.ndarray | None = None,
    **settings: Any,
) -> list[go.Heatmap]:
    """Return one heatmap per text color, because Plotly writes all texts of a heatmap in one color.

    Args:
      z: (rows, columns) color numbers, or amounts as float32; NaN leaves a cell out.
      texts: (rows, columns) escaped texts.
      text_color: (rows, columns) colors; "" follows the theme.
      hover: (rows, columns) escaped hover texts.
    """
    if hover is not None:
        settings |= {"hovertemplate": frame.HOVER_TEXT, "hoverongaps": False}
    heatmaps = []
    labelled = bool(texts.any())
    for color in (palette.BLACK, palette.WHITE, ""):
        shown = (text_color == color) & ~np.isnan(z)
        if not shown.any():
            continue
        heatmaps.append(
            go.Heatmap(
                z=np.where(shown, z, np.nan) if z.dtype == np.float32 else _listed(z, shown),
                text=np.where(shown, texts, "").tolist() if labelled else None,
                texttemplate="%{text}" if labelled else None,
                customdata=None if hover is None else np.where(shown, hover, "").tolist(),
                textfont={"size": size_px} | ({"color": color} if color else {}),
                showscale=False,
                **settings,
            )
        )
    return heatmaps


def selection(
    sheet: Sheet, columns: Edges, rows: Edges, customdata: Sequence[int], hover: Sequence[str]
) -> go.Scatter:
    """Return invisible points in the cells that carry hover and selection, which heatmaps cannot.

    `customdata` is the value that a click on a cell selects; −1 leaves the cell out. `hover` is escaped.
    """
    places = [
        ((left + right) / 2, (top + bottom) / 2, cell)
        for (top, bottom), line in zip(rows, sheet.cells.tolist(), strict=True)
        for (left, right), cell in zip(columns, line, strict=True)
        if cell >= 0 and customdata[cell] >= 0
    ]
    return hover_points(
        [(x, y) for x, y, _ in places],
        [hover[cell] for *_, cell in places],
        [customdata[cell] for *_, cell in places],
    )


def hover_points(
    places: Sequence[tuple[float, float]],
    hover: Sequence[str],
    customdata: Sequence[Any] | None = None,
) -> go.Scatter:
    """Return invisible points with hover texts."""
    return go.Scatter(
        x=[round(x, 2) for x, _ in places],
        y=[round(y, 2) for _, y in places],
        mode="markers",
        marker={"size": 10},
        opacity=0,
        customdata=None if customdata is None else list(customdata),
        text=list(hover),
        hovertemplate="%{text}<extra></extra>",
        showlegend=False,
    )


def texts(
    places: Sequence[tuple[float, float]],
    text: Sequence[str],
    position: str = "middle right",
    size_px: float = frame.NOTE_PX,
    **settings: Any,
) -> go.Scatter:
    """Return escaped texts at places in the plot."""
    return go.Scatter(
        x=[round(x, 2) for x, _ in places],
        y=[round(y, 2) for _, y in places],
        mode="text",
        text=list(text),
        textposition=position,
        textfont={"size": size_px},
        cliponaxis=False,
        **({"hoverinfo": "skip"} | settings),
    )


def strokes(lines: Iterable[Sequence[tuple[float, float]]], width_px: float, name: str) -> go.Scatter:
    """Return grey lines through points as one trace."""
    x: list[float | None] = []
    y: list[float | None] = []
    for line in lines:
        x += [*(round(across, 2) for across, _ in line), None]
        y += [*(round(down, 2) for _, down in line), None]
    return go.Scatter(
        x=x,
        y=y,
        mode="lines",
        line={"color": frame.MIDDLE_GREY, "width": width_px},
        hoverinfo="skip",
        showlegend=False,
        name=name,
    )


def bands(edges: Edges) -> tuple[list[float], np.ndarray]:
    """Return n + 1 borders in order, and the slot of each band between two as an array [n], −1 for a gap."""
    borders, slots = [edges[0][0]], []
    for number, (start, stop) in enumerate(edges):
        if start > borders[-1] + 1e-6:
            borders.append(start)
            slots.append(-1)
        borders.append(stop)
        slots.append(number)
    return [round(border, 2) for border in borders], np.array(slots)


def separator_px(columns: Edges, rows: Edges) -> float:
    """Return the width of the line between cells of this size; 0 if they are too small for one."""
    smallest = min(stop - start for start, stop in columns + rows)
    return _SEPARATOR_PX if smallest >= _SMALLEST_SEPARATED_PX else 0


def _listed(z: np.ndarray, shown: np.ndarray) -> list[list[int | None]]:
    return [
        [int(number) if keep else None for number, keep in zip(*row, strict=True)]
        for row in zip(z.tolist(), shown.tolist(), strict=True)
    ]


def _spread(cells: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return (row bands, column bands) the cell in each pair of bands, −1 in gaps.

    `rows` and `columns` are the slot of each band, as `bands` returns it.
    """
    inside = (rows >= 0)[:, None] & (columns >= 0)[None]
    return np.where(inside, cells[np.ix_(rows, columns)], -1)
