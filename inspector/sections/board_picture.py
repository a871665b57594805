"""The board as one figure for a slide: one array on every mesh, and one row per question."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from inspector.compare import difference
from inspector.compare.difference import Answer
from inspector.core import sharding
from inspector.core.formatting import mesh_text
from inspector.core.snapshot import Snapshot
from inspector.figures import (
    cells,
    frame,
    labels,
    mesh_layout,
    palette,
    stamp,
)
from inspector.figures.block_map import why_no_map
from inspector.figures.lattice import Text
from inspector.machines.hardware import Chip
from inspector.sections import comparison, provenance
from inspector.sections.arrays import largest

_TITLE_COLUMN_PX = 180
_COLUMN_PX = (160, 320)  # least and most of a layout's column
_WIDE_PX = 1400
_GAP_PX = 14
_TOP_PX = 40
_MAP_PX = 130
_TEXT_PX = stamp.TEXT_PX
_LINE_PX = stamp.LINE_PX
_ROW_GAP_PX = 8
_MOST_LINES = 4  # of an answer; the report has longer ones in full
_HEADING_PX = 13

Named = Sequence[tuple[str, Snapshot]]

# Readable on white and on black. A sign and a word have the same meaning.
_COLORS = {"better": "#009E73", "worse": "#D55E00", "different": "#2B8CC4"}


class _Sheet:
    """Texts and lines of a figure, in pixels from its upper left corner."""

    def __init__(self, width_px: float) -> None:
        self.width_px = width_px
        self.y = 0.0
        self.traces: list[Any] = []
        self.lines: list[float] = []
        self._texts: dict[tuple[str | None, int, bool], list[tuple[float, float, str]]]
        self._texts = defaultdict(list)

    def text(
        self,
        x: float,
        y: float,
        line: str,
        *,
        color: str | None = None,
        size: int = _TEXT_PX,
        bold: bool = False,
    ) -> None:
        """Add one line of unescaped text with its upper left corner at (x, y)."""
        if line:
            self._texts[color, size, bold].append((x, y, line))

    def figure(self) -> go.Figure:
        """Return everything as one figure."""
        written = [
            go.Scatter(
                x=[x for x, _, _ in each],
                y=[y + size * 0.65 for _, y, _ in each],
                mode="text",
                text=[
                    f"<b>{labels.escape(t)}</b>" if bold else labels.escape(t) for _, _, t in each
                ],
                textposition="middle right",
                textfont={"size": size} | ({} if color is None else {"color": color}),
                hoverinfo="skip",
                cliponaxis=False,
            )
            for (color, size, bold), each in self._texts.items()
        ]
        height = self.y
        return frame.figure(
            [*self.traces, *written],
            self.width_px,
            _TOP_PX + height + 4,
            title=frame.title("Layouts side by side", self.width_px),
            margin={"l": 6, "r": 6, "t": _TOP_PX, "b": 4},
            xaxis=frame.axis(range=[0, self.width_px - 12], showticklabels=False, fixedrange=True),
            yaxis=frame.axis(range=[height, 0], showticklabels=False, fixedrange=True),
            shapes=[
                {
                    "type": "line",
                    "x0": 0,
                    "x1": self.width_px - 12,
                    "y0": y,
                    "y1": y,
                    "line": {"width": 0.5, "color": palette.faded(frame.MIDDLE_GREY, 0.6)},
                }
                for y in self.lines
            ],
        )


def board_picture(named: Named, chip: Chip | None = None) -> go.Figure:
    """Return the board of these Snapshots with their provenance below; the first is the baseline."""
    low, high = _COLUMN_PX
    each = min(max((_WIDE_PX - _TITLE_COLUMN_PX) / len(named), low), high)
    sheet = _Sheet(_TITLE_COLUMN_PX + each * len(named) + 12)
    lefts = [_TITLE_COLUMN_PX + each * place for place in range(len(named))]
    _draw_names(sheet, named, lefts, each)
    _draw_maps(sheet, named, lefts, each)
    _draw_questions(sheet, named, chip, lefts, each)
    return stamp.stamped_with(sheet.figure(), provenance.lines(named))


def _draw_names(sheet: _Sheet, named: Named, lefts: Sequence[float], each: float) -> None:
    most = 0.0
    for place, ((name, _), left) in enumerate(zip(named, lefts, strict=True)):
        # A heading is bold and larger than the text that `wrap` measures.
        lines = _cut(stamp.wrap(name, (each - _GAP_PX) * _TEXT_PX / _HEADING_PX * 0.9), 2)
        for number, line in enumerate(lines):
            sheet.text(left, number * 18, line, size=_HEADING_PX, bold=True)
        if place == 0 and len(named) > 1:
            sheet.text(left, len(lines) * 18, "baseline", color=frame.MIDDLE_GREY)
            most = len(lines) * 18 + _LINE_PX
        most = max(most, len(lines) * 18)
    sheet.y += most + 10


def _draw_maps(sheet: _Sheet, named: Named, lefts: Sequence[float], each: float) -> None:
    """Draw the meshes, colored by the blocks of the largest array that differs, else of the largest one."""
    rows = difference.spec_rows([found for _, found in named])
    paths = comparison.differing(named, rows, 1) or [one.path for one in largest(named[0][1], 1)]
    if not paths:
        return
    path = paths[0]
    titles = stamp.wrap(f"Mesh, colored by blocks of {path}", _TITLE_COLUMN_PX - _GAP_PX)
    for number, line in enumerate(titles):
        sheet.text(0, sheet.y + number * _LINE_PX, line)
    tallest = len(titles) * _LINE_PX
    for (_, found), left in zip(named, lefts, strict=True):
        array = next((one for one in found.arrays if one.path == path), None)
        if array is None or found.mesh is None or why_no_map(array, found.mesh) is not None:
            words = "no such array" if array is None else "placement unknown"
            sheet.text(left, sheet.y, words, color=frame.MIDDLE_GREY)
            continue
        placement = sharding.place_array(array, found.mesh)
        assert placement is not None  # `why_no_map` has just placed it
        grid = mesh_layout.mesh_grid(found.mesh, [placement.block])
        laid, _, high, _ = mesh_layout.layout(grid, found.mesh, int(each - _GAP_PX))
        height = max(min(high, _MAP_PX), laid.rows.gaps_px + 2 * len(laid.rows.sizes))
        wide = max(each - _GAP_PX, laid.columns.gaps_px + len(laid.columns.sizes))
        columns = [(left + a, left + b) for a, b in laid.columns.edges(wide)]
        downs = [(sheet.y + a, sheet.y + b) for a, b in laid.rows.edges(height)]
        held = [int(placement.block[place]) for place in grid.position.reshape(-1).tolist()]
        none = Text(("",) * len(held), _TEXT_PX)
        sheet.traces += cells.heatmaps(laid, columns, downs, held, placement.blocks, none, None)
        sheet.text(
            left,
            sheet.y + height + 3,
            mesh_text(found.mesh),
            color=frame.MIDDLE_GREY,
        )
        tallest = max(tallest, height + 3 + _LINE_PX)
    sheet.y += tallest + 12


def _draw_questions(
    sheet: _Sheet,
    named: Named,
    chip: Chip | None,
    lefts: Sequence[float],
    each: float,
) -> None:
    section = None
    for row in difference.questions([found for _, found in named], 0, chip):
        if row.section != section:
            section = row.section
            sheet.y += 6
            sheet.text(0, sheet.y, section, bold=True, color=frame.MIDDLE_GREY)
            sheet.y += _LINE_PX + 4
        sheet.lines.append(sheet.y - 4)
        titles = stamp.wrap(row.title, _TITLE_COLUMN_PX - _GAP_PX)
        for number, line in enumerate(titles):
            sheet.text(0, sheet.y + number * _LINE_PX, line)
        tallest = len(titles)
        for answer, left in zip(row.answers, lefts, strict=True):
            tallest = max(tallest, _draw_answer(sheet, answer, left, each))
        sheet.y += tallest * _LINE_PX + _ROW_GAP_PX


def _draw_answer(sheet: _Sheet, answer: Answer, left: float, each: float) -> int:
    """Draw an answer with its mark and return its number of lines."""
    mark_color = _COLORS.get(answer.verdict, frame.MIDDLE_GREY)
    parts = ((answer.text, None, False), (comparison.mark(answer), mark_color, True))
    number = 0
    for words, color, bold in parts:
        for line in _cut(stamp.wrap(words, (each - _GAP_PX) * (0.92 if bold else 1)), _MOST_LINES):
            sheet.text(left, sheet.y + number * _LINE_PX, line, color=color, bold=bold)
            number += 1
    return number


def _cut(lines: Sequence[str], most: int) -> list[str]:
    if len(lines) <= most:
        return list(lines)
    return [*lines[: most - 1], lines[most - 1][:-2] + "…"]
