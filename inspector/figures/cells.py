"""Cells in nested rows and columns, shared by all figures that are made of them.

A *sheet* is the cells of a figure in rows and columns: their place in pixels, and the text that fits. Each
side consists of slots. A gap separates groups of slots wherever an outer dimension advances. A side with too
many slots is wrapped like text. Plotly traces draw the colored, labelled cells.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go

from inspector.figures import frame, labels, palette, ticks
from inspector.figures.ticks import NO_TICKS, Ticks

# Cells at least this large are separated by a line, through which the page shows.
_SMALLEST_SEPARATED_PX = 5
_SEPARATOR_PX = 1.5
_MOST_COLORS = 256  # of a color scale; of more, equal ones are one

GAP_PX = 8  # between groups, once for each level that advances
WRAPPED_CELL_PX = 20  # the minimum width of a wrapped cell: a device id of three digits
LOWEST_PX = 15  # the height of a cell that holds a line of text
FONT_PX = (9, 13)  # the smallest and the largest text in a cell
PADDING_PX = 2  # between the text of a cell and its edge


@dataclass(frozen=True)
class LatticeSide:
    """The slots along one side: relative lengths, and the number of outer levels that advance before each."""

    sizes: tuple[float, ...]
    breaks: tuple[int, ...]

    @property
    def gaps_px(self) -> float:
        return GAP_PX * sum(self.breaks)

    def edges(self, length_px: float) -> list[tuple[float, float]]:
        """Return (start, stop) in pixels of every slot along `length_px`, gaps included."""
        unit = (length_px - self.gaps_px) / sum(self.sizes)
        edges, place = [], 0.0
        for size, level in zip(self.sizes, self.breaks, strict=True):
            place += level * GAP_PX
            edges.append((place, place + size * unit))
            place += size * unit
        return edges


@dataclass(frozen=True)
class Sheet:
    """Cells in rows and columns.

    cells: (row slots, column slots) number of each cell, −1 for an empty slot.
    wrapped: the side that was wrapped; `line` is the number of its slots per line.
    """

    rows: LatticeSide
    columns: LatticeSide
    cells: np.ndarray
    wrapped: Literal["rows", "columns"] | None = None
    line: int = 0


@dataclass(frozen=True)
class CellTexts:
    """A text for every cell, "" if none fits, and their common size."""

    texts: tuple[str, ...]
    size_px: int


def side_of(levels: Sequence[Sequence[float]]) -> LatticeSide:
    """Return the side whose slots are the product of these levels, the last one varying fastest."""
    if not levels:
        return LatticeSide((1.0,), (0,))
    places = list(itertools.product(*(range(len(level)) for level in levels)))
    sizes = tuple(
        math.prod(level[place] for level, place in zip(levels, slot, strict=True)) for slot in places
    )
    breaks = [0]
    for before, slot in itertools.pairwise(places):
        changed = next(level for level, place in enumerate(slot) if place != before[level])
        breaks.append(len(levels) - 1 - changed)
    return LatticeSide(sizes, tuple(breaks))


def sheet_of(rows: LatticeSide, columns: LatticeSide) -> Sheet:
    """Return the cells of these sides, numbered row by row."""
    shape = (len(rows.sizes), len(columns.sizes))
    return Sheet(rows, columns, np.arange(math.prod(shape)).reshape(shape))


def wrap_columns(unwrapped: Sheet, line: int) -> Sheet:
    """Cut the columns into lines of `line` slots, one line below the other."""
    count = len(unwrapped.columns.sizes)
    lines = -(-count // line)
    height = len(unwrapped.rows.sizes)
    padded = np.full((height, lines * line), -1)
    padded[:, :count] = unwrapped.cells
    cells = padded.reshape(height, lines, line).transpose(1, 0, 2).reshape(lines * height, line)
    # Lines of one row look like one grid; lines of several rows need a gap.
    between = max(unwrapped.rows.breaks) + 1 if height > 1 else 0
    breaks = unwrapped.rows.breaks + ((between, *unwrapped.rows.breaks[1:]) * (lines - 1))
    rows = LatticeSide(unwrapped.rows.sizes * lines, breaks)
    columns = LatticeSide(unwrapped.columns.sizes[:line], unwrapped.columns.breaks[:line])
    return Sheet(rows, columns, cells, "columns", line)


def wrap_rows(unwrapped: Sheet, line: int) -> Sheet:
    """Cut the rows into columns of `line` slots, next to each other."""
    turned = Sheet(unwrapped.columns, unwrapped.rows, unwrapped.cells.T)
    wrapped = wrap_columns(turned, line)
    return Sheet(wrapped.columns, wrapped.rows, wrapped.cells.T, "rows", line)


def wrap_narrow(
    unwrapped: Sheet, width_px: float, height_px: float, narrowest: float, lowest: float
) -> Sheet:
    """Wrap columns narrower than `narrowest` pixels, or else rows lower than `lowest`.

    Wrapped columns form lines below each other. Wrapped rows form columns next to each other, if there
    is room for them.
    """
    down, across = unwrapped.cells.shape
    if _least(unwrapped.columns, width_px) < narrowest:
        return wrap_columns(unwrapped, line_length(across, int(width_px / WRAPPED_CELL_PX)))
    if _least(unwrapped.rows, height_px) < lowest:
        group = across * WRAPPED_CELL_PX + (GAP_PX if across > 1 else 0)
        groups = int((width_px + GAP_PX) / group)
        if groups > 1:
            line = -(-down // groups)
            whole = (more for more in range(line, 2 * line) if down % more == 0)
            return wrap_rows(unwrapped, next(whole, line))
    return unwrapped


def line_length(count: int, most: int) -> int:
    """Return the slots per line, at most `most`: a divisor of `count` if a large one exists."""
    most = max(1, min(most, count))
    divisor = next(number for number in range(most, 0, -1) if count % number == 0)
    return divisor if divisor * 2 > most else most


def fit_text(
    forms: Sequence[Callable[[int], str]],
    cells: Sequence[int],
    sizes_px: Sequence[tuple[float, float]],
) -> CellTexts:
    """Return the first form that fits in every cell at a readable size, as large as possible.

    If no form fits everywhere, return those texts of the last form that fit, or none if few fit.
    `sizes_px` are the width and height of every cell.
    """
    smallest, largest = FONT_PX
    room = [(width - 2 * PADDING_PX, height - PADDING_PX) for width, height in sizes_px]
    for form in forms:
        texts = [form(cell) for cell in cells]
        for size in range(largest, smallest - 1, -1):
            if all(_fits(text, size, *space) for text, space in zip(texts, room, strict=True)):
                return CellTexts(tuple(texts), size)
    texts = [form(cell) for cell in cells]
    fitting = [text if _fits(text, smallest, *space) else "" for text, space in zip(texts, room, strict=True)]
    # A few labels among many unlabelled cells look like an error.
    if sum(map(bool, fitting)) * 2 < len(fitting):
        fitting = [""] * len(fitting)
    return CellTexts(tuple(fitting), smallest)


def _fits(text: str, size: int, width: float, height: float) -> bool:
    return labels.width_px(text, size) <= width and labels.height_px(text, size) <= height


def _least(side: LatticeSide, length_px: float) -> float:
    return min(stop - start for start, stop in side.edges(length_px))


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
