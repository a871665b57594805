"""Bytes that collectives send, by mesh axes and operation."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import plotly.graph_objects as go

from inspector.core.collectives import OPS, Traffic
from inspector.core.formatting import bytes_text, counted, exact_bytes_text, mesh_axes_text
from inspector.figures import bars, frame, labels, palette

# Operations beyond the palette reuse its colors; one that `OPS` does not list has `palette.UNKNOWN`.
COLORS = dict(zip(OPS, itertools.cycle((*palette.OKABE_ITO, "#8C564B")), strict=False))

Axes = tuple[str, ...] | None


def collective_bars(
    rows: Iterable[Traffic], *, of: str = "one run", width_px: int = 480
) -> go.Figure | None:
    """Return a bar for each set of mesh axes; its segments are the operations.

    The length is the bytes that one device sends in `of`. Unknown bytes have no length; the heading of the
    bar names them. Return None if there are no collectives.
    """
    by_axes = grouped(rows)
    if not by_axes:
        return None
    most = max(map(_known, by_axes.values())) or 1
    px_per_byte = max(width_px - 2 * bars.SIDE_PX, 1) / most
    placed = bars.place(
        [
            bars.Bar(_heading(axes, together, width_px), _segments(axes, together, px_per_byte))
            for axes, together in by_axes.items()
        ]
    )
    return bars.figure(
        placed,
        placed.traces(px_per_byte, sorted({row.op for row in _all(by_axes)}, key=_rank)),
        most,
        width_px,
        heading="Traffic by mesh axes",
        notes=[f"bytes that one device sends in {of}; ring algorithm assumed"],
    )


def color_of(op: str) -> str:
    """Return the color of a collective operation; grey for one that XLA did not have yet."""
    return COLORS.get(op, palette.UNKNOWN)


def grouped(rows: Iterable[Traffic]) -> dict[Axes, list[Traffic]]:
    """Group rows by mesh axes, those with the most known bytes first and unknown axes last."""
    by_axes: dict[Axes, list[Traffic]] = {}
    for row in rows:
        by_axes.setdefault(row.mesh_axes, []).append(row)
    return dict(sorted(by_axes.items(), key=lambda item: (item[0] is None, -_known(item[1]))))


def total_text(rows: Sequence[Traffic]) -> str:
    """Return the known bytes and the number of collectives with unknown bytes: `8.0 MiB + 2 unknown`."""
    unknown = sum(row.instructions for row in rows if row.wire_bytes_per_device is None)
    if all(row.wire_bytes_per_device is None for row in rows):
        return "unknown"
    return bytes_text(_known(rows)) + (
        f" + {counted(unknown, 'collective')} unknown" if unknown else ""
    )


def _all(by_axes: dict[Axes, list[Traffic]]) -> list[Traffic]:
    return [row for together in by_axes.values() for row in together]


def _rank(op: str) -> tuple[int, str]:
    return OPS.index(op) if op in OPS else len(OPS), op


def _known(rows: Sequence[Traffic]) -> int:
    return sum(max(row.wire_bytes_per_device or 0, 0) for row in rows)


def _heading(axes: Axes, rows: Sequence[Traffic], width_px: int) -> str:
    total = total_text(rows)
    most = max(labels.fitting(width_px, frame.NOTE_PX) - len(total) - 2, 8)
    name = labels.middle_cut(mesh_axes_text(axes), most)
    return f"{labels.escape(name)}  <b>{labels.escape(total)}</b>"


def _segments(axes: Axes, rows: Sequence[Traffic], px_per_byte: float) -> tuple[bars.Segment, ...]:
    segments: list[bars.Segment] = []
    for row in sorted(rows, key=lambda row: _rank(row.op)):
        size = max(row.wire_bytes_per_device or 0, 0)
        if not size:
            continue
        runs = "unknown" if row.executions is None else f"{row.executions:,}"
        hover = [
            f"{row.op} over {mesh_axes_text(axes)}",
            f"{exact_bytes_text(row.wire_bytes_per_device)} from each device",
            f"{counted(row.instructions, 'instruction')}, executions: {runs}",
        ]
        segments.append(
            bars.Segment(
                row.op,
                segments[-1].stop if segments else 0,
                size,
                color_of(row.op),
                frame.hover(hover),
                bars.fitting_text([bytes_text(size)], size * px_per_byte),
                "" if row.op in COLORS else "/",
            )
        )
    return tuple(segments)
