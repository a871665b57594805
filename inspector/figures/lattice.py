"""The layout of cells in nested rows and columns: their place in pixels, and the text that fits.

A *sheet* is the cells of a figure in rows and columns. Each side consists of slots. A gap separates
groups of slots wherever an outer dimension advances. A side with too many slots is wrapped like text.
`inspector.figures.cells` draws the sheet.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from inspector.figures import labels

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


def side(levels: Sequence[Sequence[float]]) -> LatticeSide:
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


def sheet(rows: LatticeSide, columns: LatticeSide) -> Sheet:
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
