"""Colored, labelled cells as Plotly traces: the drawing that block map and mesh map share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from inspector.figures import frame, labels, palette
from inspector.figures.lattice import Sheet, Text

# Cells this small touch each other; larger ones are parted by a line of the page's ground.
_SMALLEST_PARTED_PX = 5
_PART_PX = 1.5

Edges = list[tuple[float, float]]


def heatmaps(
    sheet: Sheet,
    columns: Edges,
    rows: Edges,
    block: Sequence[int],
    count: int,
    text: Text,
    highlight: int | None,
) -> list[go.Heatmap]:
    """The cells, colored by block number, as one heatmap for each color of text.

    Args:
      columns, rows: (start, stop) in pixels of each slot.
      block: the block number of each cell of the sheet, −1 for none.
      count: the number of blocks that share the colors.
      text: what stands in each cell.
      highlight: a block to emphasise; all others fade.
    """
    colors = palette.colors_of_blocks(count)
    numbers = np.asarray(block)
    shown = numbers >= 0
    bright = numbers == highlight if highlight is not None else shown
    dark_text = np.array([palette.text_on(color) == palette.BLACK for color in colors])
    takes_black = dark_text[np.where(shown, numbers, 0)]
    scale, low, high = palette.colorscale_of_blocks(count)
    faint = [(place, palette.faded(color)) for place, color in scale]
    layers = (
        (shown & bright & takes_black, scale, palette.BLACK),
        (shown & bright & ~takes_black, scale, palette.WHITE),
        (shown & ~bright, faint, frame.MIDDLE_GREY),
    )
    parted = min(stop - start for start, stop in columns + rows) >= _SMALLEST_PARTED_PX
    return [
        go.Heatmap(
            x=_with_gaps(columns),
            y=_with_gaps(rows),
            z=_spread(
                sheet,
                columns,
                rows,
                lambda cell, mask=mask: int(numbers[cell]) if mask[cell] else None,
                None,
            ),
            text=_spread(
                sheet,
                columns,
                rows,
                lambda cell, mask=mask: labels.lines(text.texts[cell]) if mask[cell] else "",
                "",
            ),
            texttemplate="%{text}" if any(text.texts) else None,
            textfont={"size": text.size_px, "color": color},
            colorscale=colorscale,
            zmin=low,
            zmax=high,
            showscale=False,
            xgap=_PART_PX if parted else 0,
            ygap=_PART_PX if parted else 0,
            hoverinfo="skip",
        )
        for mask, colorscale, color in layers
        if mask.any()
    ]


def selection(
    sheet: Sheet,
    columns: Edges,
    rows: Edges,
    customdata: Sequence[int],
    hover: Sequence[str],
) -> go.Scatter:
    """Invisible points over the cells, which carry hover and selection: heatmaps cannot be selected.

    Args:
      customdata: for each cell, what a click on it selects; −1 leaves the cell out.
      hover: for each cell, text that is already escaped.
    """
    x, y, cells = [], [], []
    for row, (top, bottom) in enumerate(rows):
        for column, (left, right) in enumerate(columns):
            cell = int(sheet.cells[row, column])
            if cell >= 0 and customdata[cell] >= 0:
                x.append(round((left + right) / 2, 2))
                y.append(round((top + bottom) / 2, 2))
                cells.append(cell)
    return go.Scatter(
        x=x,
        y=y,
        mode="markers",
        marker={"size": 10},
        opacity=0,
        customdata=[customdata[cell] for cell in cells],
        text=[hover[cell] for cell in cells],
        hovertemplate="%{text}<extra></extra>",
        showlegend=False,
    )


def _with_gaps(edges: Edges) -> list[float]:
    """All cell borders in order: Plotly draws from each to the next, gaps included."""
    borders = [edges[0][0]]
    for start, stop in edges:
        if start > borders[-1] + 1e-6:
            borders.append(start)
        borders.append(stop)
    return [round(border, 2) for border in borders]


def _spread(sheet: Sheet, columns: Edges, rows: Edges, value: Any, gap: Any) -> list[list[Any]]:
    """A value for each cell between the borders of `_with_gaps`; `gap` elsewhere."""
    across, down = _slots(columns), _slots(rows)
    return [
        [
            value(cell)
            if row is not None
            and column is not None
            and (cell := int(sheet.cells[row, column])) >= 0
            else gap
            for column in across
        ]
        for row in down
    ]


def _slots(edges: Edges) -> list[int | None]:
    slots: list[int | None] = []
    place = edges[0][0]
    for number, (start, stop) in enumerate(edges):
        if start > place + 1e-6:
            slots.append(None)
        slots.append(number)
        place = stop
    return slots
