"""Device × device maps: the bytes that go from each device to each other device.

The color of a cell shows its bytes. Bytes that stay on their device are grey. If there are many devices,
neighboring devices share a cell.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from inspector.core import formatting
from inspector.figures import frame, labels, palette

MOST_DEVICES = 64  # more of them on one side are drawn in runs
_CELL_PX = (6, 34)  # lowest and highest row
_ROWS_HEIGHT_PX = 520
_TEXT_PX = 11
_PARTED_PX = 12  # cells at least so large are parted by a gap
_COLORBAR_PX = 96
_FULL_NAMES_PX = 560  # a figure at least so wide has a color bar


@dataclass(frozen=True)
class Grid:
    """Bytes between runs of devices: `moved` to others and `kept`, both (source runs, target runs)."""

    sources: tuple[tuple[int, ...], ...]
    targets: tuple[tuple[int, ...], ...]
    moved: np.ndarray
    kept: np.ndarray

    @property
    def longest_run(self) -> int:
        return max(max(map(len, self.sources)), max(map(len, self.targets)))


Parts = Mapping[tuple[int, int], Sequence[Sequence[int]]]


def grid(
    sources: Sequence[int], targets: Sequence[int], matrix: np.ndarray, most: int = MOST_DEVICES
) -> Grid:
    """Bytes (sources, targets) summed over runs of neighbouring devices, at most `most` runs on a side."""
    same = np.array(sources, np.int64)[:, None] == np.array(targets, np.int64)[None, :]
    rows, columns = _runs(len(sources), most), _runs(len(targets), most)
    return Grid(
        tuple(tuple(sources[start:stop]) for start, stop in rows),
        tuple(tuple(targets[start:stop]) for start, stop in columns),
        _summed(np.where(same, 0, matrix), rows, columns),
        _summed(np.where(same, matrix, 0), rows, columns),
    )


def device_grid(
    cells: Grid,
    *,
    title: str,
    notes: Sequence[str],
    verb: str,
    parts: Parts | None = None,
    width_px: int = 760,
) -> go.Figure:
    """From each device (rows) to each device (columns), with what each sends and receives.

    Args:
      notes: texts above the plot, not escaped.
      verb: what the bytes do, as the color bar says it.
      parts: of one array, the index ranges that go from source to target, to be shown under the pointer.
    """
    rows, columns = len(cells.sources), len(cells.targets)
    row_names = [_run_name(run) for run in cells.sources]
    column_names = [_run_name(run) for run in cells.targets]
    sent = [_amount("sends", size) for size in cells.moved.sum(axis=1).tolist()]
    received = [_amount("gets", size) for size in cells.moved.sum(axis=0).tolist()]
    bar = bool(cells.moved.any()) and width_px >= _FULL_NAMES_PX
    left = 38 + max(labels.width_px(name, frame.TICK_PX) for name in row_names)
    sent_px = 14 + max(labels.width_px(size, frame.TICK_PX) for size in sent)
    right = sent_px + (_COLORBAR_PX if bar else 8)
    across = max(width_px - left - right, 40) / columns
    low, high = _CELL_PX
    down = min(max(_ROWS_HEIGHT_PX / rows, low), high)
    widest = max(
        labels.width_px(text, frame.TICK_PX) for text in itertools.chain(column_names, received)
    )
    with_received = widest + 6 <= across
    column_texts = [
        f"{labels.escape(name)}<br>{size}" if with_received else labels.escape(name)
        for name, size in zip(column_names, received, strict=True)
    ]
    column_step = 1 if with_received else _tick_step(column_names, across)
    row_step = max(1, math.ceil((frame.TICK_PX + 3) / down))
    scale = [] if bar else _scale_in_words(cells)
    above = frame.note_lines([*notes, *scale], width_px)
    top, bottom = frame.heading_px(len(above)), 66 if with_received else 48
    return frame.figure(
        [*_heatmaps(cells, parts or {}, across, down, verb if bar else None), _anchor()],
        width_px,
        top + down * rows + bottom,
        title=frame.title(title, width_px),
        margin={"l": left, "r": right, "t": top, "b": bottom, "pad": frame.PAD_PX},
        xaxis=frame.axis(
            range=[-0.5, columns - 0.5],
            tickvals=list(range(0, columns, column_step)),
            ticktext=column_texts[::column_step],
            tickangle=0,
            title=_axis_title(f"to device{_order_text(cells.targets)}"),
        ),
        yaxis=frame.axis(
            range=[rows - 0.5, -0.5],
            tickvals=list(range(0, rows, row_step)),
            ticktext=[labels.escape(name) for name in row_names[::row_step]],
            title=_axis_title(f"from device{_order_text(cells.sources)}"),
        ),
        yaxis2=frame.axis(
            overlaying="y",
            side="right",
            anchor="x",
            range=[rows - 0.5, -0.5],
            tickvals=list(range(0, rows, row_step)),
            ticktext=sent[::row_step],
        ),
        annotations=[frame.notes_above(above, left)],
        hovermode="closest",
        shapes=[_outline(rows, columns)],
    )


def _outline(rows: int, columns: int) -> dict:
    """Return a thin frame around the cells; a cell without bytes shows the page through it."""
    return {
        "type": "rect",
        "x0": -0.5,
        "x1": columns - 0.5,
        "y0": -0.5,
        "y1": rows - 0.5,
        "line": {"width": 1, "color": palette.faded(frame.MIDDLE_GREY, 0.5)},
    }


def _scale_in_words(cells: Grid) -> list[str]:
    """What a figure too narrow for a color bar says of its colors; nothing where all are the same."""
    amounts = cells.moved[cells.moved > 0]
    least, most = (int(amounts.min()), int(amounts.max())) if amounts.size else (0, 0)
    if least == most:
        return []
    return [
        f"the darker the more, from {formatting.bytes_text(least)} to {formatting.bytes_text(most)}"
    ]


def _order_text(runs: Sequence[Sequence[int]]) -> str:
    """That the devices do not count up, where they do not; nothing where they do."""
    devices = list(itertools.chain.from_iterable(runs))
    return "" if devices == sorted(devices) else ", in mesh order"


def _axis_title(text: str) -> dict:
    return {"text": text, "standoff": 9, "font": {"size": frame.NOTE_PX}}


def _amount(verb: str, size: int) -> str:
    return f"{verb} {formatting.bytes_text(size)}" if size else "–"


def _heatmaps(
    cells: Grid, parts: Parts, across: float, down: float, verb: str | None
) -> list[go.Heatmap]:
    moves, stays = cells.moved > 0, (cells.kept > 0) & (cells.moved == 0)
    most = int(cells.moved.max(initial=0)) or 1
    stops = palette.CIVIDIS
    nearest = np.rint(cells.moved / most * (len(stops) - 1)).astype(int)
    takes_black = np.array([palette.text_on(stop) == palette.BLACK for stop in stops])[nearest]
    moving, grey = palette.ramp(stops), palette.steps((palette.REPLICATED,))
    drawn = []
    for shown, sizes, scale, color in (
        (moves & takes_black, cells.moved, moving, palette.BLACK),
        (moves & ~takes_black, cells.moved, moving, palette.WHITE),
        (stays, cells.kept, grey, palette.BLACK),
    ):
        if shown.any():
            drawn.append(_heatmap(cells, parts, shown, sizes, scale, color, most, across, down))
    if drawn and verb is not None:
        drawn[0].update(showscale=True, colorbar=_colorbar(most, verb))
    return drawn


def _heatmap(
    cells: Grid,
    parts: Parts,
    shown: np.ndarray,
    sizes: np.ndarray,
    scale: palette.Colorscale,
    color: str,
    most: int,
    across: float,
    down: float,
) -> go.Heatmap:
    def text(row: int, column: int) -> str:
        words = formatting.bytes_text(int(sizes[row, column])) if shown[row, column] else ""
        fits = labels.width_px(words, _TEXT_PX) + 4 <= across and down >= _TEXT_PX + 4
        return words if fits else ""

    places = [range(len(cells.sources)), range(len(cells.targets))]
    texts = [[text(row, column) for column in places[1]] for row in places[0]]
    parted = 1.5 if min(across, down) >= _PARTED_PX else 0
    return go.Heatmap(
        z=np.where(shown, sizes, np.nan).astype(np.float32),
        zmin=0,
        zmax=most,
        colorscale=scale,
        showscale=False,
        xgap=parted,
        ygap=parted,
        text=texts if any(map(any, texts)) else None,
        texttemplate="%{text}" if any(map(any, texts)) else None,
        textfont={"size": _TEXT_PX, "color": color},
        customdata=[
            [
                _hover(cells, parts, row, column) if shown[row, column] else ""
                for column in places[1]
            ]
            for row in places[0]
        ],
        hovertemplate="%{customdata}<extra></extra>",
        hoverongaps=False,
    )


def _colorbar(most: int, verb: str) -> dict:
    return {
        "title": {"text": verb, "side": "right", "font": {"size": 11}},
        "tickvals": [0, most / 2, most],
        "ticktext": ["0", formatting.bytes_text(most // 2), formatting.bytes_text(most)],
        "tickfont": {"size": frame.TICK_PX},
        "thickness": 10,
        "outlinewidth": 0,
        "len": 1,
        "y": 0.5,
        "x": 1,
        "xanchor": "right",
        "xref": "container",
    }


def _hover(cells: Grid, parts: Parts, row: int, column: int) -> str:
    source, target = cells.sources[row], cells.targets[column]
    # In full where it does not make thousands of long texts.
    size_text = formatting.exact_bytes_text if cells.moved.size <= 1024 else formatting.bytes_text
    moved, kept = int(cells.moved[row, column]), int(cells.kept[row, column])
    lines = []
    if moved:
        lines.append(f"<b>{_devices(source)} → {_devices(target)}</b>")
        lines.append(f"{size_text(moved)} moves")
    if kept:
        lines.append(("" if moved else f"<b>{_devices(target)}</b><br>") + "stays: ")
        lines[-1] += size_text(kept)
    if len(source) == len(target) == 1 and (source[0], target[0]) in parts:
        lines.append(f"index {formatting.ranges_text(parts[source[0], target[0]])}")
    return "<br>".join(lines)


def _devices(run: Sequence[int]) -> str:
    return f"device{'s' * (len(run) != 1)} {_run_name(run)}"


def _anchor() -> go.Scatter:
    """A trace without points: Plotly draws no axis that has no trace."""
    return go.Scatter(x=[None], y=[None], yaxis="y2", hoverinfo="skip", showlegend=False)


def _run_name(run: Sequence[int]) -> str:
    if len(run) > 1 and list(run) == list(range(run[0], run[0] + len(run))):
        return f"{run[0]}–{run[-1]}"
    return str(run[0]) if len(run) == 1 else f"{run[0]}, …"


def _runs(devices: int, most: int) -> list[tuple[int, int]]:
    length = math.ceil(devices / most)
    return [(start, min(start + length, devices)) for start in range(0, devices, length)]


def _summed(matrix: np.ndarray, rows: list, columns: list) -> np.ndarray:
    by_row = np.add.reduceat(matrix, [start for start, _ in rows], axis=0)
    return np.add.reduceat(by_row, [start for start, _ in columns], axis=1)


def _tick_step(names: Sequence[str], across: float) -> int:
    widest = max(labels.width_px(name, frame.TICK_PX) for name in names)
    return 2 ** max(0, math.ceil(math.log2((widest + 8) / across)))
