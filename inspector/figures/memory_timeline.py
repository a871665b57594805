"""The memory of one device while a program runs, stacked by group, with the peak and a chip's capacity."""

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import plotly.graph_objects as go

from inspector.figures import frame, palette
from inspector.records.snapshot import MemoryUse
from inspector.sharding.array_groups import USE_GROUPS
from inspector.text.formatting import bytes_text, exact_bytes_text

_PLOT_PX = 230
_LEFT_PX, _RIGHT_PX, _BOTTOM_PX = 64, 12, 88
_LEGEND_Y = -0.16  # of the plot, below the names of the phases
# A phase is named if it has this share of the width.
_LEAST_PHASE = 0.09
# Places where the name of an area can be, and the number of those on each side that it covers.
_AT, _COVERED = np.linspace(0, 1, 61), 6
# A phase that begins nearer to the left end, as a share of the width, has no line there.
_EDGE = 0.02
# The capacity is drawn if the peak takes at least this share of it.
_LEAST_SHARE = 0.3
_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("bytes", 1))


def memory_timeline(
    use: MemoryUse,
    heading: str,
    capacity: int | None = None,
    chip: str = "",
    note: str = "",
    *,
    width_px: int = 700,
) -> go.Figure | None:
    """Return the bytes of each group at each point of a program; None if it has no points.

    Args:
      capacity: bytes of one device of a chip. It is a line, or a note if it is far above the peak.
      note: a line above the plot.
    """
    if not use.points:
        return None
    most = max(use.totals)
    unit, divisor = next(scale for scale in _UNITS if most >= scale[1] or scale[1] == 1)
    count = max(use.instructions - 1, 1)
    places = [round(point / count, 5) for point in use.points]
    notes, top = [note] if note else [], most / divisor
    limit = []
    if capacity is not None and most >= _LEAST_SHARE * capacity:
        top = max(top, capacity / divisor)
        limit = [_line([0, 1], [capacity / divisor] * 2, "dash", f"{chip}: {bytes_text(capacity)}")]
    elif capacity is not None:
        notes.append(f"one {chip} chip has {bytes_text(capacity)}")
    top *= 1.12
    names = [*_area_names(use, places, divisor, top)]
    traces = [*_areas(use, places, unit, divisor, {name["text"] for name in names}), *limit]
    traces.append(_peak(places[use.peak], most, divisor))
    phases = _phases(use, places)
    traces += [_line([left] * 2, [0, top], "dot") for _, left, _ in phases if left > _EDGE]
    return frame.plot(
        traces,
        width_px,
        _PLOT_PX,
        heading=heading,
        notes=notes,
        left=_LEFT_PX,
        right=_RIGHT_PX,
        bottom=_BOTTOM_PX,
        annotations=[*map(_phase_name, phases), *names],
        showlegend=True,
        legend={**frame.LEGEND_BELOW, "y": _LEGEND_Y, "traceorder": "normal"},
        xaxis=frame.axis(range=[0, 1], showticklabels=False, fixedrange=True),
        yaxis=frame.axis(
            range=[0, top],
            title=frame.axis_title(f"{unit} in use", 4),
            nticks=6,
            fixedrange=True,
        ),
    )


def _area_names(
    use: MemoryUse, places: Sequence[float], divisor: int, top: float
) -> Iterator[dict[str, Any]]:
    """Yield the name of each group inside of its area, where that is highest."""
    along = np.searchsorted(places, _AT, side="right") - 1
    below = np.zeros(len(_AT))
    for group in use.groups:
        heights = np.asarray(group.bytes)[along] / divisor
        if (at := _place_of_name(heights, top)) is not None:
            fill = palette.color_of_group(group.group)
            yield {
                "x": _AT[at],
                "y": below[at] + heights[at] / 2,
                "text": USE_GROUPS[group.group],
                "showarrow": False,
                "bgcolor": fill,
                "font": {"size": frame.NOTE_PX, "color": palette.text_on(fill)},
            }
        below += heights


def _place_of_name(heights: np.ndarray, top: float) -> int | None:
    """Return the place where an area has most room for a name in a line; None if it has too little."""
    least = np.lib.stride_tricks.sliding_window_view(heights, 2 * _COVERED + 1).min(axis=1)
    at = int(least.argmax())
    return at + _COVERED if least[at] * _PLOT_PX / top > 1.6 * frame.NOTE_PX else None


def _phase_name(phase: tuple[str, float, float]) -> dict[str, Any]:
    name, left, right = phase
    return {
        "x": (left + right) / 2,
        "y": 0,
        "yanchor": "top",
        "text": name,
        "showarrow": False,
        "font": {"size": frame.NOTE_PX},
    }


def _areas(
    use: MemoryUse, places: Sequence[float], unit: str, divisor: int, named: Collection[str]
) -> Iterator[go.Scatter]:
    """Yield the area of each group that can be seen. The legend has those without their name inside."""
    along, least = np.asarray(places, dtype=np.float32), max(use.totals) / 1000
    for group in use.groups:
        if max(group.bytes) >= least:
            heading, color = USE_GROUPS[group.group], palette.color_of_group(group.group)
            yield go.Scatter(
                x=along,
                y=np.asarray(group.bytes, dtype=np.float32) / np.float32(divisor),
                name=heading,
                showlegend=heading not in named,
                stackgroup="memory",
                mode="lines",
                line={"width": 0.5, "color": color, "shape": "hv"},
                fillcolor=color,
                hovertemplate=f"<b>{heading}</b><br>%{{y:.3~f}} {unit}<extra></extra>",
            )


def _peak(at: float, most: int, divisor: int) -> go.Scatter:
    """Return the mark of the peak, with its bytes."""
    return go.Scatter(
        x=[at],
        y=[most / divisor],
        mode="markers+text",
        marker={"symbol": "triangle-down", "size": 11, "color": frame.MIDDLE_GREY},
        text=[f"peak {bytes_text(most)}"],
        textposition="top right" if at < 0.5 else "top left",
        cliponaxis=False,
        showlegend=False,
        customdata=[frame.hover([f"peak: {exact_bytes_text(most)}"])],
        hovertemplate=frame.HOVER_TEXT,
    )


def _line(x: list[float], y: list[float], dash: str, name: str = "") -> go.Scatter:
    return go.Scatter(
        x=x,
        y=y,
        mode="lines",
        name=name,
        showlegend=bool(name),
        line={"width": 2 if name else 1, "dash": dash, "color": palette.BAD if name else frame.MIDDLE_GREY},
        hoverinfo="skip",
    )


def _phases(use: MemoryUse, places: list[float]) -> list[tuple[str, float, float]]:
    """Return (phase, left end, right end) of each long part of the program in one phase."""
    intervals, start = [], 0
    for phase, same in groupby(use.phases):
        end = start + len(list(same))
        left, right = places[start], places[end] if end < len(places) else 1.0
        if right - left >= _LEAST_PHASE and phase != "unknown":
            intervals.append((str(phase), left, right))
        start = end
    return intervals
