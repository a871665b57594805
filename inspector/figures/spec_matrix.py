"""Parameter × layout: the PartitionSpec of each parameter in every layout, with differences marked."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from inspector.figures import cells, frame, labels, palette, ticks

if TYPE_CHECKING:
    from inspector.compare.difference import SpecRow

_PAD_PX = 9
_LINE_PX = 14
_TEXT_PX = 11
_MOST_LINES, _MOST_HEAD_LINES = 3, 3
_NAME_SHARE, _NARROW_NAME_SHARE = 0.36, 0.24  # of the width, at most, for the paths
_ROOMY_CELL_PX = 100  # most specs fit; if all cells have this much, the paths get the rest
_MOST_PATHS = 6  # in a hover text
ABSENT, _ABSENT_AS_IN_BASELINE = "absent", "–"
# A spec as Python prints it, and the parts of each dimension if they are known.
_SPEC = re.compile(r"P\((?P<inside>.*)\)(?:, (?P<parts>[0-9×]+) parts)?")
_SEVERAL = re.compile(r"\(([^()]*)\)")
_AXIS = re.compile(r"'([^']*)'")
# As in the baseline, and absent. The theme's text color can be read on both.
_SAME, _GONE = palette.faded(palette.UNKNOWN, 0.14), palette.faded(palette.UNKNOWN, 0.4)


def spec_matrix(
    rows: Sequence[SpecRow], names: Sequence[str], baseline: int = 0, *, width_px: int = 960
) -> go.Figure | None:
    """Return a row for arrays with equal specs and a column per layout; None if there are no rows.

    A spec that differs from the baseline has ≠ before it, and the color of its mesh axes. Texts that do not
    fit are cut; hover texts are complete.
    """
    if not rows or not names:
        return None
    widest = max(labels.width_px(row.title, _TEXT_PX) for row in rows)
    least = width_px * (_NAME_SHARE if len(names) < 6 else _NARROW_NAME_SHARE)
    rest = min(width_px - _ROOMY_CELL_PX * len(names), width_px * _NAME_SHARE)
    left = min(widest + 14, max(least, rest))
    cell_px = (width_px - left - 4) / len(names)
    most = max(labels.fitting(cell_px - 8, _TEXT_PX), 4)
    texts = [[_lines(row, place, baseline, most) for place in range(len(names))] for row in rows]
    heads = [labels.wrapped(name, most, _MOST_HEAD_LINES) for name in names]
    heights = [_PAD_PX + _LINE_PX * max(map(len, line)) for line in texts]
    edges = [0.0, *itertools.accumulate(heights)]
    path_characters = labels.fitting(left - 14, _TEXT_PX)
    return frame.plot(
        _heatmaps(rows, names, baseline, texts, edges),
        width_px,
        edges[-1],
        heading="PartitionSpecs in every layout",
        notes=[_note(rows, names, baseline)],
        left=left,
        right=4,
        bottom=6,
        above=10 + _LINE_PX * max(map(len, heads)),
        xaxis=frame.axis(
            range=[-0.5, len(names) - 0.5],
            side="top",
            tickvals=list(range(len(names))),
            ticktext=["<br>".join(f"<b>{labels.escape(line)}</b>" for line in head) for head in heads],
            tickangle=0,
            fixedrange=True,
        ),
        yaxis=frame.axis(
            range=[edges[-1], 0],
            **ticks.settings(
                [sum(pair) / 2 for pair in itertools.pairwise(edges)],
                [_cut_title(row, path_characters) for row in rows],
            ),
            fixedrange=True,
        ),
    )


def short(spec: str | None) -> str:
    """Return a spec without quotes, None as a point, and the axes of a dimension joined by +.

    `P(('fsdp', 'tensor'), None), 8×1 parts` becomes `fsdp+tensor, · (8×1)`.
    """
    if spec is None:
        return ABSENT
    match = _SPEC.fullmatch(spec)
    if match is None:
        return spec
    inside = _SEVERAL.sub(lambda axes: axes[1].replace(", ", "+"), match["inside"])
    text = inside.replace("'", "").replace("None", "·").removesuffix(",") or "()"
    return f"{text} ({match['parts']})" if match["parts"] else text


def _differs(row: SpecRow, place: int, baseline: int) -> bool:
    return row.specs[place] != row.specs[baseline]


def _color(row: SpecRow, place: int, baseline: int) -> str:
    spec = row.specs[place]
    if not _differs(row, place, baseline):
        return _SAME
    return _GONE if spec is None else palette.color_of_axes(tuple(_AXIS.findall(spec)))


def _lines(row: SpecRow, place: int, baseline: int, most: int) -> list[str]:
    """Return the lines of one cell."""
    spec, mark = row.specs[place], "≠ " if _differs(row, place, baseline) else ""
    text = _ABSENT_AS_IN_BASELINE if spec is None and not mark else mark + short(spec)
    return labels.wrapped(text, most, _MOST_LINES)


def _cut_title(row: SpecRow, most: int) -> str:
    """Cut the path of a row's title; keep the words `and 3 more`."""
    path, word, more = row.title.rpartition(" and ")
    if not word or not more.endswith(" more"):
        path, word, more = row.title, "", ""
    return labels.middle_cut(path, most - len(word + more)) + word + more


def _heatmaps(
    rows: Sequence[SpecRow],
    names: Sequence[str],
    baseline: int,
    texts: Sequence[Sequence[Sequence[str]]],
    edges: Sequence[float],
) -> list[go.Heatmap]:
    colors = [_color(row, place, baseline) for row in rows for place in range(len(names))]
    distinct = tuple(dict.fromkeys(colors))
    z = np.array([distinct.index(color) for color in colors], float).reshape(len(rows), len(names))
    text_colors = np.array(
        ["" if color in (_SAME, _GONE) else palette.text_on(color) for color in distinct], dtype=object
    )
    text = np.empty(z.shape, dtype=object)
    hover = np.empty(z.shape, dtype=object)
    for place in np.ndindex(*z.shape):
        row, column = place
        text[place] = labels.lines("\n".join(texts[row][column]))
        hover[place] = _hover(rows[row], names[column], column)
    return cells.by_text_color(
        z,
        text,
        text_colors[z.astype(int)],
        _TEXT_PX,
        hover,
        x=list(range(len(names))),
        y=list(edges),
        **palette.coloring(distinct),
        xgap=2,
        ygap=2,
    )


def _hover(row: SpecRow, name: str, place: int) -> str:
    spec = row.specs[place]
    more = len(row.paths) - _MOST_PATHS
    return frame.hover(
        [
            name,
            ABSENT if spec is None else spec,
            *row.logical[:2],
            *(labels.middle_cut(path, 80) for path in row.paths[:_MOST_PATHS]),
            *([f"and {more:,} more"] if more > 0 else []),
        ]
    )


def _note(rows: Sequence[SpecRow], names: Sequence[str], baseline: int) -> str:
    arrays = sum(len(row.paths) for row in rows)
    note = (
        f"{arrays:,} arrays in {len(rows):,} rows; arrays with the same specs in every layout share a row; "
        f"≠ and a color: differs from {names[baseline]}; ·: a dimension that is not split"
    )
    if any(row.specs[baseline] is None for row in rows):
        note += f"; {_ABSENT_AS_IN_BASELINE}: {ABSENT}"
    return note
