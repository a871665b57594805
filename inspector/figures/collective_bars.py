"""What collectives put on the wire: one bar for each set of mesh axes, in pieces by op."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import plotly.graph_objects as go

from inspector.core.collectives import OPS, Traffic
from inspector.core.formatting import bytes_text, counted, exact_bytes_text
from inspector.figures import frame, labels, palette

_BAR_PX = 26
_ROW_PX = 44  # a bar, and the words under it
_LEGEND_PX = 20

# Operations beyond the palette reuse its colors; one that `OPS` does not list has `palette.UNKNOWN`.
COLORS = dict(zip(OPS, itertools.cycle((*palette.OKABE_ITO, "#8C564B")), strict=False))

Axes = tuple[str, ...] | None


def axes_text(axes: Axes) -> str:
    """Mesh axes in words: `data × model`, `no axis` for groups of one device, `unknown axes`."""
    if axes is None:
        return "unknown axes"
    return " × ".join(axes) or "no axis"


def collective_bars(
    rows: Iterable[Traffic], *, of: str = "one run", width_px: int = 480
) -> go.Figure | None:
    """Bytes that leave one device in `of`, by mesh axes and op; None of no collectives.

    The bars are to one scale. What is unknown has no length, and is said in words beside its bar.
    """
    by_axes = grouped(rows)
    if not by_axes:
        return None
    names = [axes_text(axes) for axes in by_axes]
    left = 14 + max(labels.width_px(name, frame.NOTE_PX) for name in names)
    texts = [total_text(each) for each in by_axes.values()]
    most = max(_known(each) for each in by_axes.values()) or 1
    plot_px = max(width_px - left - 10, 80)
    ops = sorted({row.op for each in by_axes.values() for row in each}, key=_rank)
    legend = _legend_lines(ops, width_px)
    notes = frame.note_lines(
        [f"bytes on the wire, of one device in {of}; ring algorithm"], width_px
    )
    top = frame.heading_px(len(notes)) + _LEGEND_PX * len(legend)
    height = _ROW_PX * len(by_axes)
    return frame.figure(
        [_bars(op, by_axes, most) for op in ops] + [_totals(texts)],
        width_px,
        top + height + 8,
        title=frame.title("Traffic by mesh axes", width_px),
        margin={"l": left, "r": 10, "t": top, "b": 8, "pad": frame.PAD_PX},
        xaxis=frame.axis(range=[0, most], showticklabels=False),
        yaxis=frame.axis(
            range=[len(names) - 0.5, -0.5],
            tickvals=list(range(len(names))),
            ticktext=[labels.escape(name) for name in names],
            tickfont={"size": frame.NOTE_PX},
        ),
        barmode="overlay",
        annotations=[
            frame.notes_above(notes, left) | {"yshift": 7 + _LEGEND_PX * len(legend)},
            *_legend(legend, left, plot_px),
        ],
        hovermode="closest",
    )


def color_of(op: str) -> str:
    """The color of an op; one grey for those that a file may name and that are none."""
    return COLORS.get(op, palette.UNKNOWN)


def grouped(rows: Iterable[Traffic]) -> dict[Axes, list[Traffic]]:
    """The rows by mesh axes, those with the most known bytes first; unknown axes come last."""
    by_axes: dict[Axes, list[Traffic]] = {}
    for row in rows:
        by_axes.setdefault(row.mesh_axes, []).append(row)
    return dict(sorted(by_axes.items(), key=lambda item: (item[0] is None, -_known(item[1]))))


def total_text(rows: list[Traffic]) -> str:
    """The bytes of one bar in words, with how much of it is not known: `8.0 MiB + 2 unknown`."""
    unknown = sum(row.instructions for row in rows if row.wire_bytes_per_device is None)
    if all(row.wire_bytes_per_device is None for row in rows):
        return "unknown"
    text = bytes_text(_known(rows))
    return text + (f" + {counted(unknown, 'collective')} unknown" if unknown else "")


def _rank(op: str) -> tuple[int, str]:
    return OPS.index(op) if op in OPS else len(OPS), op


def _known(rows: list[Traffic]) -> int:
    return sum(row.wire_bytes_per_device or 0 for row in rows)


def _bars(op: str, by_axes: dict[Axes, list[Traffic]], most: int) -> go.Bar:
    starts, lengths, places, hovers = [], [], [], []
    for place, (axes, rows) in enumerate(by_axes.items()):
        start = 0
        for row in sorted(rows, key=lambda row: _rank(row.op)):
            length = row.wire_bytes_per_device or 0
            if row.op == op:
                starts.append(start)
                lengths.append(length)
                places.append(place)
                hovers.append(_hover(axes, row))
            start += length
    return go.Bar(
        orientation="h",
        base=starts,
        x=lengths,
        y=[place - 0.12 for place in places],
        width=_BAR_PX / _ROW_PX,
        marker={"color": color_of(op), "line": {"width": 0}},
        customdata=hovers,
        hovertemplate="%{customdata}<extra></extra>",
    )


def _hover(axes: Axes, row: Traffic) -> str:
    runs = "unknown" if row.executions is None else f"{row.executions:,}"
    return (
        f"<b>{labels.escape(row.op)} over {labels.escape(axes_text(axes))}</b><br>"
        f"{exact_bytes_text(row.wire_bytes_per_device)} leave each device<br>"
        f"{counted(row.instructions, 'instruction')}, executions: {runs}"
    )


def _totals(texts: list[str]) -> go.Scatter:
    """Each bar's bytes in words, under it, where they fit however long the bar is."""
    return go.Scatter(
        x=[0] * len(texts),
        y=[place + 0.34 for place in range(len(texts))],
        mode="text",
        text=[labels.escape(text) for text in texts],
        textposition="middle right",
        textfont={"size": frame.NOTE_PX},
        hoverinfo="skip",
        cliponaxis=False,
    )


def _legend_lines(ops: list[str], width_px: float) -> list[list[str]]:
    """The ops on as few lines as hold their names."""
    lines: list[list[str]] = [[]]
    used = 0.0
    for op in ops:
        wide = _entry_px(op)
        if lines[-1] and used + wide > width_px:
            lines.append([])
            used = 0.0
        lines[-1].append(op)
        used += wide
    return lines


def _entry_px(op: str) -> float:
    return labels.width_px(f"■ {op}", frame.NOTE_PX) + 14


def _legend(lines: list[list[str]], left_px: float, plot_px: float) -> list[dict]:
    """Names of the ops with their colors, over the plot: Plotly's legend is not as high as it says."""
    entries = []
    for number, line in enumerate(reversed(lines)):
        at = 0.0
        for op in line:
            entries.append(
                {
                    "text": f'<span style="color:{color_of(op)}">■</span> {labels.escape(op)}',
                    "showarrow": False,
                    "x": 0,
                    "xref": "paper",
                    "xanchor": "left",
                    "xshift": -left_px + 2 + at,
                    "y": 1,
                    "yref": "paper",
                    "yanchor": "bottom",
                    "yshift": 4 + _LEGEND_PX * number,
                    "font": {"size": frame.NOTE_PX},
                }
            )
            at += _entry_px(op)
    return entries
