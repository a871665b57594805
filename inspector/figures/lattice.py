"""Cells in nested rows and columns: where each lies in pixels, and which text fits in it.

A *sheet* is the cells of a picture in rows and columns. Each side is made of slots; where an outer
dimension moves on, a gap parts the groups of slots. A side of too many slots is wrapped into lines, like
text. All of it is arithmetic; `inspector.figures.cells` draws it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from inspector.figures import labels

GAP_PX = 8  # between groups, once for each level that moves on
WRAPPED_CELL_PX = 20  # the width a wrapped cell has at least: a device id of three figures
LOWEST_PX = 15  # the height of a cell that holds a line of text
FONT_PX = (9, 13)  # the smallest and the largest text in a cell
PADDING_PX = 2  # between a cell's text and its edge


@dataclass(frozen=True)
class Side:
    """The slots along one side: relative lengths, and how many outer levels move on before each."""

    sizes: tuple[float, ...]
    breaks: tuple[int, ...]

    @property
    def gaps_px(self) -> float:
        return GAP_PX * sum(self.breaks)

    def edges(self, length_px: float) -> list[tuple[float, float]]:
        """(start, stop) in pixels of every slot, all gaps included, along `length_px`."""
        unit = (length_px - self.gaps_px) / sum(self.sizes)
        edges, place = [], 0.0
        for size, level in zip(self.sizes, self.breaks, strict=True):
            place += level * GAP_PX
            edges.append((place, place + size * unit))
            place += size * unit
        return edges


@dataclass(frozen=True)
class Sheet:
    """Cells in rows and columns; `cells` numbers them, −1 where there is none.

    `wrapped` names the side that was cut into lines, and `line` how many of its slots are on one line.
    """

    rows: Side
    columns: Side
    cells: np.ndarray
    wrapped: Literal["rows", "columns"] | None = None
    line: int = 0


@dataclass(frozen=True)
class Text:
    """A text for every cell ("" where none fits) and the one size they have."""

    texts: tuple[str, ...]
    size_px: int


def side(levels: Sequence[Sequence[float]]) -> Side:
    """The side whose slots are the product of these levels, the last one varying fastest."""
    if not levels:
        return Side((1.0,), (0,))
    places = list(itertools.product(*(range(len(level)) for level in levels)))
    sizes = tuple(
        math.prod(level[place] for level, place in zip(levels, slot, strict=True))
        for slot in places
    )
    breaks = [0]
    for before, slot in itertools.pairwise(places):
        changed = next(level for level, place in enumerate(slot) if place != before[level])
        breaks.append(len(levels) - 1 - changed)
    return Side(sizes, tuple(breaks))


def sheet(rows: Side, columns: Side) -> Sheet:
    """All cells of these sides, numbered row by row."""
    shape = (len(rows.sizes), len(columns.sizes))
    return Sheet(rows, columns, np.arange(math.prod(shape)).reshape(shape))


def wrap_columns(unwrapped: Sheet, line: int) -> Sheet:
    """The columns cut into lines of `line` slots, one line under the other."""
    count = len(unwrapped.columns.sizes)
    lines = -(-count // line)
    height = len(unwrapped.rows.sizes)
    padded = np.full((height, lines * line), -1)
    padded[:, :count] = unwrapped.cells
    cells = padded.reshape(height, lines, line).transpose(1, 0, 2).reshape(lines * height, line)
    # Lines of one row read as one grid; lines of several are set apart.
    between = max(unwrapped.rows.breaks) + 1 if height > 1 else 0
    breaks = unwrapped.rows.breaks + ((between, *unwrapped.rows.breaks[1:]) * (lines - 1))
    rows = Side(unwrapped.rows.sizes * lines, breaks)
    columns = Side(unwrapped.columns.sizes[:line], unwrapped.columns.breaks[:line])
    return Sheet(rows, columns, cells, "columns", line)


def wrap_rows(unwrapped: Sheet, line: int) -> Sheet:
    """The rows cut into columns of `line` slots, one beside the other."""
    turned = Sheet(unwrapped.columns, unwrapped.rows, unwrapped.cells.T)
    wrapped = wrap_columns(turned, line)
    return Sheet(wrapped.columns, wrapped.rows, wrapped.cells.T, "rows", line)


def wrap_narrow(
    unwrapped: Sheet, width_px: float, height_px: float, narrowest: float, lowest: float
) -> Sheet:
    """The sheet with columns narrower than `narrowest`, or rows lower than `lowest`, wrapped.

    Columns become lines one under the other; rows become columns side by side, if there is room.
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
    """How many of `count` slots to put on a line of at most `most`: a divisor if a good one exists."""
    most = max(1, min(most, count))
    divisor = next(number for number in range(most, 0, -1) if count % number == 0)
    return divisor if divisor * 2 > most else most


def fit_text(
    forms: Sequence[Callable[[int], str]],
    cells: Sequence[int],
    sizes_px: Sequence[tuple[float, float]],
) -> Text:
    """The first form that fits in every cell at a readable size, as large as it may be.

    Args:
      forms: from a cell's number to its text, the most telling first; lines are parted by a line end.
      cells: the cells' numbers.
      sizes_px: (width, height) of every cell.
    Returns:
      a text for every cell; of the last form, only the texts that fit, and none if few do.
    """
    smallest, largest = FONT_PX
    room = [(width - 2 * PADDING_PX, height - PADDING_PX) for width, height in sizes_px]
    for form in forms:
        texts = [form(cell) for cell in cells]
        for size in range(largest, smallest - 1, -1):
            if all(_fits(text, size, *space) for text, space in zip(texts, room, strict=True)):
                return Text(tuple(texts), size)
    texts = [form(cell) for cell in cells]
    fitting = [
        text if _fits(text, smallest, *space) else ""
        for text, space in zip(texts, room, strict=True)
    ]
    # A few labels among many unlabelled cells look like a fault.
    if sum(map(bool, fitting)) * 2 < len(fitting):
        fitting = [""] * len(fitting)
    return Text(tuple(fitting), smallest)


def _fits(text: str, size: int, width: float, height: float) -> bool:
    return labels.width_px(text, size) <= width and labels.height_px(text, size) <= height


def _least(one: Side, length_px: float) -> float:
    return min(stop - start for start, stop in one.edges(length_px))
