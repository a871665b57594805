"""Parameter × layout: the PartitionSpec of each in every layout, with those unlike the baseline's marked."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Sequence

import plotly.graph_objects as go

from inspector.compare.difference import SpecRow
from inspector.figures import frame, labels, palette

_PAD_PX = 9
_LINE_PX = 14
_TEXT_PX = 11
_MOST_LINES, _MOST_HEAD_LINES = 3, 3
_NAME_SHARE, _NARROW_NAME_SHARE = 0.36, 0.24  # of the width, at most, for the paths
_ROOMY_CELL_PX = 100  # what most specs fit in; where all have as much, paths get the rest
ABSENT, _ABSENT_AS_IN_BASELINE = "absent", "–"
# A spec as Python prints it, and how many parts each dimension has where that is said.
_SPEC = re.compile(r"P\((?P<inside>.*)\)(?:, (?P<parts>[0-9×]+) parts)?")
_SEVERAL = re.compile(r"\(([^()]*)\)")
_COLORS = (*palette.OKABE_ITO, *palette.TOL_LIGHT)


def spec_matrix(
    rows: Sequence[SpecRow], names: Sequence[str], baseline: int = 0, *, width_px: int = 960
) -> go.Figure | None:
    """One row for arrays of equal specs, one column a layout; None without rows.

    A spec other than the baseline's has ≠ before it and a color, the same in the whole figure; beyond 15
    specs the colors come again. Texts that do not fit are cut, and stand whole under the pointer.
    """
    if not rows:
        return None
    widest = max(labels.width_px(row.title, _TEXT_PX) for row in rows)
    least = width_px * (_NAME_SHARE if len(names) < 6 else _NARROW_NAME_SHARE)
    rest = min(width_px - _ROOMY_CELL_PX * len(names), width_px * _NAME_SHARE)
    left = min(widest + 14, max(least, rest))
    cell_px = (width_px - left - 4) / len(names)
    most = max(int((cell_px - 8) / labels.width_px("x", _TEXT_PX)), 4)
    texts = [_texts(row, baseline, most) for row in rows]
    heads = [wrapped(name, most, _MOST_HEAD_LINES) for name in names]
    notes = frame.note_lines(_notes(rows, names, baseline), width_px)
    head_px = 10 + _LINE_PX * max(map(len, heads))
    top = frame.heading_px(len(notes)) + head_px
    edges = [0.0]
    for line in texts:
        edges.append(edges[-1] + _PAD_PX + _LINE_PX * max(map(len, line)))
    path_characters = int((left - 14) / labels.width_px("x", _TEXT_PX))
    return frame.figure(
        _heatmaps(rows, names, baseline, texts, edges),
        width_px,
        top + edges[-1] + 6,
        title=frame.title("PartitionSpecs in every layout", width_px),
        margin={"l": left, "r": 4, "t": top, "b": 6, "pad": frame.PAD_PX},
        xaxis=frame.axis(
            range=[-0.5, len(names) - 0.5],
            side="top",
            tickvals=list(range(len(names))),
            ticktext=[
                "<br>".join(f"<b>{labels.escape(one)}</b>" for one in head) for head in heads
            ],
            tickangle=0,
            fixedrange=True,
        ),
        yaxis=frame.axis(
            range=[edges[-1], 0],
            tickvals=[sum(pair) / 2 for pair in itertools.pairwise(edges)],
            ticktext=[labels.escape(_cut_title(row, path_characters)) for row in rows],
            fixedrange=True,
        ),
        annotations=[{**frame.notes_above(notes, left), "yshift": 7 + head_px}],
        hovermode="closest",
    )


def is_different(row: SpecRow, place: int, baseline: int) -> bool:
    """Whether a layout's spec is another one than the baseline's."""
    return row.specs[place] != row.specs[baseline]


def _color_numbers(rows: Sequence[SpecRow], baseline: int) -> dict[str, int]:
    """A number for each spec that differs somewhere, the most frequent first; colors come by it."""
    times: dict[str, int] = {}
    for row in rows:
        for place, spec in enumerate(row.specs):
            if spec is not None and is_different(row, place, baseline):
                times[spec] = times.get(spec, 0) + 1
    ranked = sorted(times, key=lambda spec: (-times[spec], spec))
    return {spec: number % len(_COLORS) for number, spec in enumerate(ranked)}


def _texts(row: SpecRow, baseline: int, most: int) -> list[list[str]]:
    """The lines that stand in each cell of a row."""
    lines = []
    for place, spec in enumerate(row.specs):
        mark = "≠ " if is_different(row, place, baseline) else ""
        said = _ABSENT_AS_IN_BASELINE if spec is None and not mark else mark + short(spec)
        lines.append(wrapped(said, most, _MOST_LINES))
    return lines


def _cut_title(row: SpecRow, most: int) -> str:
    """The row's title in so many characters: it is the path that is cut, not how many there are."""
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
    """One heatmap for each color of text: pale cells, and those with black and with white text."""
    numbers = _color_numbers(rows, baseline)
    pale, absent = len(_COLORS), len(_COLORS) + 1
    colors = (*_COLORS, palette.faded(palette.UNKNOWN, 0.14), palette.faded(palette.UNKNOWN, 0.4))
    z, text, hover = [], [], []
    for row, lines in zip(rows, texts, strict=True):
        z.append(
            [
                pale
                if not is_different(row, place, baseline)
                else absent
                if spec is None
                else numbers[spec]
                for place, spec in enumerate(row.specs)
            ]
        )
        text.append(["<br>".join(map(labels.escape, cell)) for cell in lines])
        hover.append([_hover(row, name, place) for place, name in enumerate(names)])
    scale = palette.steps(colors)
    made = []
    for color, shown in _by_text_color():
        mask = [[number in shown for number in line] for line in z]
        if any(map(any, mask)):
            made.append(
                go.Heatmap(
                    x=list(range(len(names))),
                    y=list(edges),
                    z=_masked(z, mask, None),
                    text=_masked(text, mask, ""),
                    customdata=hover,
                    texttemplate="%{text}",
                    textfont={"size": _TEXT_PX} | ({"color": color} if color else {}),
                    colorscale=scale,
                    zmin=-0.5,
                    zmax=len(colors) - 0.5,
                    showscale=False,
                    xgap=2,
                    ygap=2,
                    hoverongaps=False,
                    hovertemplate="%{customdata}<extra></extra>",
                )
            )
    return made


def short(spec: str | None) -> str:
    """A spec in few characters: its dimensions without quotes, None as a point, axes joined by +.

    `P(('fsdp', 'tensor'), None), 8×1 parts` is `fsdp+tensor, · (8×1)`.
    """
    if spec is None:
        return ABSENT
    found = _SPEC.fullmatch(spec)
    if found is None:
        return spec
    inside = _SEVERAL.sub(lambda axes: axes[1].replace(", ", "+"), found["inside"])
    said = inside.replace("'", "").replace("None", "·").removesuffix(",") or "()"
    return f"{said} ({found['parts']})" if found["parts"] else said


def wrapped(text: str, most: int, lines: int) -> list[str]:
    """The text on lines of at most so many characters; what does not fit is cut."""
    found = textwrap.wrap(text, most, break_on_hyphens=False) or [""]
    kept = found[:lines]
    if len(found) > lines:
        kept[-1] = labels.cut(kept[-1] + "…", most)
    return kept


def _by_text_color() -> list[tuple[str, set[int]]]:
    grouped: dict[str, set[int]] = {palette.BLACK: set(), palette.WHITE: set()}
    for number, color in enumerate(_COLORS):
        grouped[palette.text_on(color)].add(number)
    rest = {len(_COLORS), len(_COLORS) + 1}
    return [*grouped.items(), (frame.MIDDLE_GREY, rest)]


def _masked(values: list[list], mask: list[list[bool]], gap: object) -> list[list]:
    return [
        [value if keep else gap for value, keep in zip(line, kept, strict=True)]
        for line, kept in zip(values, mask, strict=True)
    ]


_MOST_PATHS = 6  # in a hover


def _hover(row: SpecRow, name: str, place: int) -> str:
    spec = row.specs[place]
    paths = [labels.escape(labels.middle_cut(path, 80)) for path in row.paths[:_MOST_PATHS]]
    more = len(row.paths) - len(paths)
    parts = [
        f"<b>{labels.escape(name)}</b>",
        labels.escape(ABSENT if spec is None else spec),
        *(labels.escape(text) for text in row.logical[:2]),
        *paths,
        *([f"and {more:,} more"] if more else []),
    ]
    return "<br>".join(parts)


def _notes(rows: Sequence[SpecRow], names: Sequence[str], baseline: int) -> list[str]:
    arrays = sum(len(row.paths) for row in rows)
    said = (
        f"{arrays:,} arrays in {len(rows):,} rows: arrays whose specs are equal in every layout share one. "
        f"≠ and a color: another spec than in {names[baseline]}; · is a dimension that is not split"
    )
    if any(row.specs[baseline] is None for row in rows):
        said += f", {_ABSENT_AS_IN_BASELINE} is {ABSENT}"
    return [f"{said}."]
