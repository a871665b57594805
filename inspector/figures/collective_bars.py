"""Bytes that collectives send, by mesh axes and operation."""

from collections.abc import Iterable, Sequence

import plotly.graph_objects as go

from inspector.core.collectives import OPS
from inspector.core.formatting import bytes_text, counted, exact_bytes_text
from inspector.core.grouping import by_key
from inspector.core.traffic import Traffic, axes_text
from inspector.figures import bars, frame, palette


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
        heading="Traffic by mesh axes",
        notes=[f"bytes that one device sends in {of}; ring algorithm assumed"],
    )


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
    """Return a segment for each operation, in shades of the axes, the strongest first."""
    known = [
        row for row in sorted(rows, key=lambda row: _rank(row.op)) if (row.wire_bytes_per_device or 0) > 0
    ]
    segments = []
    for row, color in zip(known, _shades(rows[0], len(known)), strict=True):
        size = row.wire_bytes_per_device or 0
        runs = "unknown" if row.executions is None else f"{row.executions:,}"
        hover = [
            f"{row.op} over {axes}",
            f"{exact_bytes_text(size)} from each device",
            f"{counted(row.instructions, 'instruction')}, executions: {runs}",
        ]
        texts = (f"{row.op} {bytes_text(size)}", bytes_text(size), row.op)
        segments.append(bars.Segment(f"{row.op} over {axes}", size, color, frame.hover(hover), texts))
    return segments


def _shades(row: Traffic, count: int) -> Sequence[str]:
    axes = row.axis_parts if row.mesh_axes is None else row.mesh_axes
    if not axes:
        return [palette.UNKNOWN] * count
    return palette.shades_of(palette.color_of_axes(axes), count)[::-1]
