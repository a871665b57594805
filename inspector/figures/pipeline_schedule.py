"""The schedule of pipelines: a row for each device along the stage axis, a column for each iteration."""

from collections.abc import Iterator, Sequence
from typing import Any

import plotly.graph_objects as go

from inspector.figures import frame, labels, palette, ticks
from inspector.prediction import pipelines as schedule
from inspector.records.snapshot import Pipeline

# One iteration of a loop; None for a gap.
Column = tuple[Pipeline, int] | None
GAP = "⋯"

_ROW_PX, _LEAST_ROW_PX, _MOST_PX = 24, 6, 480
_LEAST_CELL_PX, _CELL_PX = 3, 34
_SEPARATED_PX = 6
_MOST_DEVICES, _MOST_TURNS = 256, 32  # of a picture
_SHADES = 2  # neighboring microbatches differ, where their numbers have room
_BUBBLE = palette.REMAINING
_NUMBER_PX = 10


def drawn(pipelines: Sequence[Pipeline]) -> list[Pipeline]:
    """Return the pipelines whose schedule is known and fits: the first forward, the first backward one."""
    first: dict[bool, Pipeline] = {}
    for pipeline in pipelines:
        fits = pipeline.stages <= _MOST_DEVICES and pipeline.repeats <= _MOST_TURNS
        if pipeline.microbatches is not None and fits:
            first.setdefault(pipeline.backward, pipeline)
    return [first[backward] for backward in sorted(first)]


def columns_of(pipelines: Sequence[Pipeline], most: int) -> list[Column]:
    """Return the iterations of all loops in order; None between loops, and where some are left out."""
    columns: list[Column] = []
    for pipeline in pipelines:
        count = pipeline.iterations or 0
        half = max(most // len(pipelines) - 2, 8) // 2
        kept: list[int | None] = [*range(min(count, 2 * half + 1))]
        if count > 2 * half + 1:
            kept = [*range(half), None, *range(count - half, count)]
        columns += [None] if columns else []
        columns += [None if iteration is None else (pipeline, iteration) for iteration in kept]
    return columns


def pipeline_schedule(pipelines: Sequence[Pipeline], *, width_px: int = 960) -> go.Figure | None:
    """Return the microbatch of each device in each iteration, and the bubble; None if they are unknown.

    The backward pass follows the forward pass. Turns of a circular pipeline have their own shades.
    """
    pipelines = drawn(pipelines)
    if not pipelines:
        return None
    devices = max(pipeline.stages for pipeline in pipelines)
    left = 12 + labels.width_px(f"device {devices - 1}", frame.TICK_PX)
    columns = columns_of(pipelines, int((width_px - left) / _LEAST_CELL_PX))
    row_px = max(min(_ROW_PX, _MOST_PX / devices), _LEAST_ROW_PX)
    cell_px = min((width_px - left - 8) / len(columns), _CELL_PX)
    last = str(max(pipeline.microbatches or 1 for pipeline in pipelines) - 1)
    is_numbered = row_px > _NUMBER_PX and cell_px > labels.width_px(last, _NUMBER_PX) + 2
    iterations = [str(column[1]) if column else "" for column in columns]
    places, shown = ticks.every_nth(list(range(len(columns))), iterations, cell_px)
    rows, row_names = ticks.every_nth(
        list(range(devices)), [_row(pipelines[0], device) for device in range(devices)], row_px, upright=True
    )
    return frame.plot(
        [_heatmap(pipelines, columns, devices, is_numbered, cell_px)],
        width_px,
        row_px * devices,
        heading="Schedule of the pipeline",
        notes=[
            f"Columns are iterations{', cells microbatches from 0 in two shades' if is_numbered else ''}. "
            "Grey is the bubble: the device has no microbatch."
        ],
        left=left,
        right=max(width_px - left - cell_px * len(columns), 8),
        bottom=28,
        above=18,
        annotations=list(_annotations(pipelines, columns, devices)),
        amounts=[
            f"{'Backward' if pipeline.backward else 'Forward'}: {schedule.bubble(pipeline)}"
            for pipeline in pipelines
        ],
        xaxis=frame.axis(range=[-0.5, len(columns) - 0.5], **ticks.settings(places, shown)),
        yaxis=frame.axis(range=[devices - 0.5, -0.5], **ticks.settings(rows, row_names)),
    )


def _heatmap(
    pipelines: Sequence[Pipeline],
    columns: Sequence[Column],
    devices: int,
    is_numbered: bool,
    cell_px: float,
) -> go.Heatmap:
    """Return the cells, each in the shade of its turn and, if numbered, of its microbatch."""
    shades = _SHADES if is_numbered else 1
    axes = pipelines[0].axes
    color = palette.color_of_axis(axes[0]) if axes else palette.MARK
    turns = max(pipeline.repeats for pipeline in pipelines)
    rows = [[_cell(column, device, shades) for column in columns] for device in range(devices)]
    return go.Heatmap(
        z=[[number for number, _, _ in row] for row in rows],
        text=[[text if is_numbered else "" for _, text, _ in row] for row in rows],
        texttemplate="%{text}",
        textfont={"size": _NUMBER_PX, "color": palette.BLACK},
        customdata=[[hover for _, _, hover in row] for row in rows],
        hovertemplate=frame.HOVER_TEXT,
        hoverongaps=False,
        xgap=int(cell_px >= _SEPARATED_PX),
        ygap=1,
        showscale=False,
        **palette.coloring([_BUBBLE, *palette.shades_of(color, shades * turns)]),
    )


def _annotations(
    pipelines: Sequence[Pipeline], columns: Sequence[Column], devices: int
) -> Iterator[dict[str, Any]]:
    """Yield the name of each pass above its first column, and a sign where columns are left out."""
    for pipeline in pipelines:
        at = next(at for at, column in enumerate(columns) if column and column[0] is pipeline)
        yield frame.annotation(
            "backward" if pipeline.backward else "forward", at - 0.5, -0.5, yanchor="bottom"
        )
    for at, column in enumerate(columns):
        if column is None and columns[at - 1 : at] and _same_loop(columns, at):
            yield frame.annotation(GAP, at, (devices - 1) / 2, xanchor="center")


def in_text(pipelines: Sequence[Pipeline], most: int = 100) -> str | None:
    """Return the same rows as text, `.` for the bubble; None if nothing is known, or if they do not fit."""
    pipelines = drawn(pipelines)
    if not pipelines or max(pipeline.stages for pipeline in pipelines) > 32:
        return None
    rows = []
    for pipeline in pipelines:
        wide = len(str((pipeline.microbatches or 1) - 1))
        columns = columns_of([pipeline], most // (wide + 1))
        rows.append("backward" if pipeline.backward else "forward")
        for device in range(pipeline.stages):
            cells = (_text(column, device).rjust(wide) for column in columns)
            rows.append(" ".join([f"{_row(pipeline, device):<9}", *cells]))
    return "\n".join(rows)


def _work(column: Column, device: int) -> tuple[int, int] | None:
    return None if column is None else schedule.work_at(column[0], device, column[1])


def _text(column: Column, device: int) -> str:
    if column is None:
        return GAP
    work = _work(column, device)
    return "." if work is None else str(work[0])


def _row(pipeline: Pipeline, device: int) -> str:
    """Return the name of a row: of a device, if it has several stages."""
    return f"{'stage' if pipeline.repeats == 1 else 'device'} {device}"


def _cell(column: Column, device: int, shades: int) -> tuple[int | None, str, str]:
    """Return the number of the color, the text and the hover text of a cell."""
    if column is None or device >= column[0].stages:
        return None, "", ""
    pipeline, iteration = column
    place = f"Device {device} along the pipeline, iteration {iteration}"
    work = _work(column, device)
    if work is None:
        return 0, "", frame.hover([place, "Nothing that it computes is used: the bubble."])
    microbatch, turn = work
    lines = [place, f"Microbatch {microbatch}"]
    if pipeline.repeats > 1:
        lines.append(f"Stage {turn * pipeline.stages + device}, turn {turn + 1} of {pipeline.repeats}")
    return 1 + shades * turn + microbatch % shades, str(microbatch), frame.hover(lines)


def _same_loop(columns: Sequence[Column], at: int) -> bool:
    before, after = columns[at - 1], columns[at + 1] if at + 1 < len(columns) else None
    return before is not None and after is not None and before[0] is after[0]
