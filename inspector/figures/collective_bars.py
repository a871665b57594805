"""Bytes that collectives send, by mesh axes and operation."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import plotly.graph_objects as go

from inspector.core.collectives import OPS, Traffic, axes_text
from inspector.core.formatting import bytes_text, counted, exact_bytes_text
from inspector.core.grouping import by_key
from inspector.figures import bars, frame, palette

# Operations beyond the palette reuse its colors; one that `OPS` does not list has `palette.UNKNOWN`.
COLORS = dict(zip(OPS, itertools.cycle((*palette.OKABE_ITO, "#8C564B")), strict=False))


def collective_bars(rows: Iterable[Traffic], *, of: str = "one run", width_px: int = 480) -> go.Figure | None:
    """Return a bar for each set of mesh axes; its segments are the operations.

    The length is the bytes that one device sends in `of`. Unknown bytes have no length; the heading of the
    bar names them. Return None if there are no collectives.
    """
    by_axes = grouped(rows)
    if not by_axes:
        return None
    return bars.stacked(
        [
            bars.Bar(axes, total_text(together), _segments(axes, together))
            for axes, together in by_axes.items()
        ],
        width_px,
        order=sorted({row.op for together in by_axes.values() for row in together}, key=_rank),
        heading="Traffic by mesh axes",
        notes=[f"bytes that one device sends in {of}; ring algorithm assumed"],
    )


def color_of(op: str) -> str:
    """Return the color of a collective operation; grey for one that XLA did not have yet."""
    return COLORS.get(op, palette.UNKNOWN)


def grouped(rows: Iterable[Traffic]) -> dict[str, list[Traffic]]:
    """Group rows by the text of their mesh axes, most known bytes first and unknown axes last.

    Rows of the same axes over different networks are apart.
    """
    by_axes = by_key((axes_text(row), row) for row in rows)
    return dict(sorted(by_axes.items(), key=lambda item: (item[1][0].mesh_axes is None, -_known(item[1]))))


def total_text(rows: Sequence[Traffic]) -> str:
    """Return the known bytes and the number of collectives with unknown bytes: `8.0 MiB + 2 unknown`."""
    unknown = sum(row.instructions for row in rows if row.wire_bytes_per_device is None)
    if all(row.wire_bytes_per_device is None for row in rows):
        return "unknown"
    return bytes_text(_known(rows)) + (f" + {counted(unknown, 'collective')} unknown" if unknown else "")


def _rank(op: str) -> tuple[int, str]:
    return OPS.index(op) if op in OPS else len(OPS), op


def _known(rows: Sequence[Traffic]) -> int:
    return sum(max(row.wire_bytes_per_device or 0, 0) for row in rows)


def _segments(axes: str, rows: Sequence[Traffic]) -> list[bars.Segment]:
    segments = []
    for row in sorted(rows, key=lambda row: _rank(row.op)):
        size = max(row.wire_bytes_per_device or 0, 0)
        if not size:
            continue
        runs = "unknown" if row.executions is None else f"{row.executions:,}"
        hover = [
            f"{row.op} over {axes}",
            f"{exact_bytes_text(size)} from each device",
            f"{counted(row.instructions, 'instruction')}, executions: {runs}",
        ]
        hatch = "" if row.op in COLORS else "/"
        text = (bytes_text(size),)
        segments.append(bars.Segment(row.op, size, color_of(row.op), frame.hover(hover), text, hatch))
    return segments
