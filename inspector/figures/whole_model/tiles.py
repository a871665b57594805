"""Tiles: one array as a rectangle that is cut along its dimensions, with the part that one device holds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from inspector.figures.palette import color_of_axis
from inspector.figures.whole_model import machine
from inspector.figures.whole_model.machine import INK, Canvas
from inspector.figures.whole_model.record import Dimension, Tile, product
from inspector.text.formatting import mesh_axes_text

EDGE_PX = 14  # above and left of a tile, for the axes that cut it
SHEET_PX = 3  # between the sheets of a stack
_THIN_SHEET_PX = 1.5  # between those after the third
_MOST_SHEETS = 12
THIN_PX = 9  # the height of an array of one dimension
_LEAST_PX, _HELD_PX = 9.0, 3.0
# Cuts that are nearer to each other are thin lines; below the second, a tint in the color of the axis.
_CUT_PX, _THIN_CUT_PX = 6.0, 2.0
_MOST_NESTED = 12
_EDGE_TEXT_PX = 11


@dataclass(frozen=True)
class Scale:
    """Lengths of sides: cube roots of their sizes, so that a norm is visible next to a vocabulary."""

    most: int
    longest_px: float

    @classmethod
    def of(cls, tiles: Iterable[Tile], longest_px: float) -> Scale:
        """Return a scale for the sides of these tiles."""
        sizes = (product(side) for tile in tiles for side in tile.sides() if side)
        return cls(max(sizes, default=1) or 1, longest_px)

    def length(self, side: tuple[Dimension, ...]) -> float:
        """Return the length of a side in pixels."""
        if not side:
            return THIN_PX
        return max(self.longest_px * math.cbrt(product(side) / self.most), _LEAST_PX)

    def size(self, tile: Tile) -> tuple[float, float]:
        """Return width and height of a tile without its edges and its stack."""
        rows, columns = tile.sides()
        return self.length(columns), self.length(rows)


def cuts_text(tile: Tile) -> str:
    """Return the cuts of a tile, to find the tiles that an edit has changed."""
    return " ".join("+".join(dimension.axes) + str(dimension.parts) for dimension in tile.dimensions)


def sheets(tile: Tile) -> int:
    """Return the number of sheets behind the first one: one for each doubling of the copies."""
    return min(math.ceil(math.log2(max(tile.copies or 1, 1))), _MOST_SHEETS)


def stack_px(tile: Tile) -> float:
    """Return how far the sheets behind a tile reach beyond it."""
    return _shift(sheets(tile))


def _shift(sheet: int) -> float:
    return SHEET_PX * min(sheet, 3) + _THIN_SHEET_PX * max(sheet - 3, 0)


def draw(
    canvas: Canvas, tile: Tile, x: float, y: float, size: tuple[float, float], room: tuple[float, float]
) -> None:
    """Draw a tile whose upper left corner, without edges and stack, is at (x, y).

    room: that of the texts at its edges, to the right from x and upwards from its lower end.
    """
    width, height = size
    for sheet in range(sheets(tile), 0, -1):
        shift, before = _shift(sheet), _shift(sheet - 1)
        path = (
            f"M{x + shift:.1f} {y - before:.1f}V{y - shift:.1f}H{x + width + shift:.1f}"
            f"V{y + height - shift:.1f}H{x + width + before:.1f}"
        )
        canvas.add("path", d=path, fill="none", stroke=INK, stroke_opacity=0.45)
    canvas.rect(x, y, width, height, fill_opacity=0.07, stroke=INK, stroke_opacity=0.45, class_="body")
    rows, columns = tile.sides()
    down, across = _Side.of(rows, height), _Side.of(columns, width)
    rules = {axis: dimension.name for dimension in tile.dimensions for axis in dimension.axes}
    for side in (down, across):
        if side.tint is not None:
            tinted, strength = side.tint
            canvas.rect(x, y, width, height, fill=color_of_axis(tinted), fill_opacity=strength, class_="cuts",
                        data_axis=tinted, data_rule=rules[tinted])  # fmt: skip
    for at, axis in down.cuts:
        _cut(canvas, (x, y + at, x + width, y + at), axis, rules, down.thin)
    for at, axis in across.cuts:
        _cut(canvas, (x + at, y, x + at, y + height), axis, rules, across.thin)
    for top, bottom in down.held:
        for left, right in across.held:
            canvas.rect(
                x + min(left, width - _HELD_PX),
                y + min(top, height - _HELD_PX),
                max(right - left, _HELD_PX),
                max(bottom - top, _HELD_PX),
                fill_opacity=0.72,
                stroke=INK,
                class_="held",
            )
    if across.axes:
        for start, end, axis in _shares(across.axes, x, width):
            canvas.line(start, y - 2.5, end, y - 2.5, color_of_axis(axis), stroke_width=3, data_axis=axis,
                        data_rule=rules[axis])  # fmt: skip
        top = y - 6 - stack_px(tile)
        _edge_text(canvas, x, top, room[0], across)
    if down.axes:
        for start, end, axis in _shares(down.axes, y, height):
            canvas.line(x - 2.5, start, x - 2.5, end, color_of_axis(axis), stroke_width=3, data_axis=axis,
                        data_rule=rules[axis])  # fmt: skip
        _edge_text(canvas, x - 6, y + height, room[1], down, upright=True)


def is_tinted(tile: Tile, size: tuple[float, float]) -> bool:
    """Return whether a side of a tile is cut into more parts than can be drawn as lines."""
    width, height = size
    rows, columns = tile.sides()
    return any(_Side.of(*side).tint is not None for side in ((rows, height), (columns, width)))


@dataclass(frozen=True)
class _Side:
    """One side of a tile in pixels: the part that the device holds, the cuts and the axes.

    Attributes:
      cuts: those that are lines. thin: whether they are thin.
      tint: the axis of cuts that are too near to each other for lines, and the strength of its color, which
        grows with the number of parts.
    """

    held: tuple[tuple[float, float], ...]
    cuts: tuple[tuple[float, str | None], ...]
    axes: tuple[str, ...]
    parts: int
    thin: bool = False
    tint: tuple[str, float] | None = None

    @classmethod
    def of(cls, dimensions: tuple[Dimension, ...], length: float) -> _Side:
        axes = tuple(axis for dimension in dimensions for axis in dimension.axes)
        parts = math.prod(dimension.parts for dimension in dimensions)
        if any(dimension.held is None for dimension in dimensions):
            held: tuple[tuple[float, float], ...] = ()
        else:
            held = _held(dimensions, length)
        cuts = tuple(_cuts(dimensions, length))
        nearest = _nearest(cuts)
        if nearest >= _THIN_CUT_PX or not axes:
            return cls(held, cuts, axes, parts, nearest < _CUT_PX)
        # The cuts of major axes are fewer, so they may still be lines.
        major = tuple(cut for cut in cuts if cut[1] and cut[1] != axes[-1])
        strength = min(0.05 * math.log2(parts), 0.6)
        return cls(
            held, major if _nearest(major) >= _THIN_CUT_PX else (), axes, parts, True, (axes[-1], strength)
        )


def _cells(dimensions: Sequence[Dimension]) -> list[int]:
    """Return the number of cells of each dimension before the last one that is cut."""
    last = max((n for n, dimension in enumerate(dimensions) if dimension.parts > 1), default=0)
    outer = dimensions[:last]
    cells = [dimension.size for dimension in outer]
    if math.prod(cells) > _MOST_NESTED:
        cells = [min(dimension.size, max(dimension.parts, 2)) for dimension in outer]
    if math.prod(cells) > _MOST_NESTED:
        cells = [min(dimension.size, dimension.parts) for dimension in outer]
    return cells


def _held(dimensions: tuple[Dimension, ...], length: float) -> tuple[tuple[float, float], ...]:
    cells = _cells(dimensions)
    spans = [(0.0, length)]
    for place, dimension in enumerate(dimensions[: len(cells) + 1]):
        assert dimension.held is not None
        start, stop = dimension.held
        size = max(dimension.size, 1)
        inner = []
        for low, high in spans:
            wide = high - low
            if place == len(cells):
                inner.append((low + wide * start / size, low + wide * stop / size))
                continue
            count = cells[place]
            first, last = math.floor(start / size * count), math.ceil(stop / size * count)
            inner += [(low + wide * n / count, low + wide * (n + 1) / count) for n in range(first, last)]
        spans = inner
    return tuple(_merged(spans))


def _merged(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for low, high in spans:
        if merged and low - merged[-1][1] < 0.01:
            merged[-1] = merged[-1][0], high
        else:
            merged.append((low, high))
    return merged


def _cuts(dimensions: tuple[Dimension, ...], length: float) -> list[tuple[float, str | None]]:
    """Return the cuts in pixels with the axis of each; None for the border of a cell that cuts nothing."""
    cells = _cells(dimensions)
    spans, cuts = [(0.0, length)], []
    for place, dimension in enumerate(dimensions[: len(cells) + 1]):
        outer = place < len(cells)
        inner = []
        for low, high in spans:
            wide, size = high - low, max(dimension.size, 1)
            if outer:
                count = cells[place]
                per_part = max(count // dimension.parts, 1)
                for n in range(1, count):
                    axis = _axis_of(dimension, n // per_part) if n % per_part == 0 else None
                    cuts.append((low + wide * n / count, axis))
                inner += [(low + wide * n / count, low + wide * (n + 1) / count) for n in range(count)]
            else:
                cuts += [
                    (low + wide * cut / size, _axis_of(dimension, n))
                    for n, cut in enumerate(dimension.cuts, start=1)
                ]
        spans = inner
    return sorted(cuts, key=lambda cut: cut[0])


def _axis_of(dimension: Dimension, cut: int) -> str | None:
    """Return the mesh axis of a cut, the major one of those whose parts end there; "" if none is known."""
    rest = dimension.parts
    for axis, size in zip(dimension.axes, dimension.sizes, strict=True):
        rest //= size
        if cut % rest == 0:
            return axis
    return ""


def _nearest(cuts: Sequence[tuple[float, str | None]]) -> float:
    """Return the least distance between two cuts, infinity for fewer."""
    return min((after[0] - before[0] for before, after in itertools.pairwise(cuts)), default=math.inf)


def _cut(canvas: Canvas, ends: tuple[float, float, float, float], axis: str | None,
         rules: Mapping[str, str | None], thin: bool) -> None:  # fmt: skip
    if axis is None:
        canvas.line(*ends, INK, stroke_opacity=0.25, stroke_width=0.7)
    elif not axis:
        canvas.line(*ends, INK, stroke_opacity=0.6)
    else:
        canvas.line(*ends, color_of_axis(axis), stroke_width=0.7 if thin else 1.3, data_axis=axis,
                    data_rule=rules[axis], class_="cut")  # fmt: skip


def _shares(axes: Sequence[str], start: float, length: float) -> list[tuple[float, float, str]]:
    """Return a part of an edge for each axis that cuts it."""
    part = length / len(axes)
    return [(start + part * n, start + part * (n + 1), axis) for n, axis in enumerate(axes)]


def _name(axes: Sequence[str], parts: int) -> str:
    return f"{mesh_axes_text(axes)} ÷{parts}"


def name_px(dimensions: tuple[Dimension, ...]) -> float:
    """Return the width of the names of the mesh axes that cut a side; 0 if none does."""
    side = _Side.of(dimensions, 1.0)
    return machine.width_px(_name(side.axes, side.parts), _EDGE_TEXT_PX) if side.axes else 0.0


def _edge_text(canvas: Canvas, x: float, y: float, room: float, side: _Side, upright: bool = False) -> None:
    """Write the axes that cut a side, and the number of parts: names, or colors if there is no room."""
    text = _name(side.axes, side.parts)
    canvas.open(transform=f"translate({x:.1f} {y:.1f})" + (" rotate(-90)" if upright else ""))
    at = 0.0
    if machine.width_px(text, _EDGE_TEXT_PX) > room:
        text = f"÷{side.parts}"
        for axis in side.axes:
            canvas.rect(at, -7, 7, 7, fill=color_of_axis(axis), rx=1.5)
            at += 9
    canvas.text(at, 0, text, _EDGE_TEXT_PX)
    canvas.close()
