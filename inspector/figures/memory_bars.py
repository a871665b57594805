"""The memory of each program on one device, as one stacked bar, compared with the capacity of a chip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from inspector.core import formatting
from inspector.core.array_groups import ARRAY_GROUPS
from inspector.core.statistics import sum_known
from inspector.figures import bars, frame, labels, palette
from inspector.machines.prediction.memory import UNEXPLAINED, Breakdown

OUTPUTS, TEMPORARIES, CODE = "outputs", "temporaries", "code"
SHARED = "shared with outputs"
PEAK = "peak"
NEEDED = "needed, according to the compiler"

# The capacity is drawn as a line if the bars then still take this share of the width up to it.
_LEAST_SHARE = 0.3
_STRIP_PX = 7
_CAPACITY_LABEL_PX = 20
_BEYOND_PX = 4  # the line of the capacity exceeds each bar by this much

_COLORS = {
    **{style.heading: style.color for style in ARRAY_GROUPS.values()},
    UNEXPLAINED: palette.UNKNOWN,
    OUTPUTS: ARRAY_GROUPS["output"].color,
    TEMPORARIES: ARRAY_GROUPS["activation"].color,
    CODE: palette.OKABE_ITO[6],
}


class Segment(NamedTuple):
    """A part of a program's bar: its name, and its first byte and size in bytes."""

    name: str
    start: int
    bytes: int


def memory_bars(
    programs: Sequence[Breakdown],
    capacity: int | None = None,
    chip: str = "",
    *,
    width_px: int = 480,
) -> go.Figure | None:
    """Return a bar per program; None if no memory of any program is known.

    Args:
      capacity: bytes of one chip. It is drawn as a line, or noted if it is far beyond the bars.
      chip: the name of that chip.
    """
    drawn = [(program, parts) for program in programs if (parts := segments(program))]
    if not drawn:
        return None
    longest = max(parts[-1].start + parts[-1].bytes for _, parts in drawn)
    longest = max(longest, *(program.peak or 0 for program, _ in drawn))
    limit = capacity if capacity is not None and longest >= _LEAST_SHARE * capacity else None
    right = max(longest, limit or 0) * 1.02
    px_per_byte = max(width_px - 2 * bars.SIDE_PX, 1) / right
    placed = bars.place(
        [_bar(program, parts, limit, px_per_byte, width_px) for program, parts in drawn],
        _CAPACITY_LABEL_PX if limit else 0,
    )
    notes = []
    if capacity is not None and limit is None:
        times = capacity / longest
        notes = [
            f"the {formatting.bytes_text(capacity)} of one {chip} chip are "
            f"{times:,.{0 if times >= 10 else 1}f} times the longest bar"
        ]
    return bars.figure(
        placed,
        [
            *placed.traces(px_per_byte, [*_COLORS]),
            *_strips(drawn, placed.tops),
            *_peaks(drawn, placed.tops),
        ],
        right,
        width_px,
        heading="Memory on one device",
        notes=notes,
        annotations=[_limit_label(limit, chip, right)] if limit else [],
        shapes=_limit_lines(limit, placed) if limit else [],
    )


def segments(program: Breakdown) -> list[Segment]:
    """Return the parts of a program's bar that are known and not empty; they end at its total.

    For a program that does not fit, the compiler reports only the bytes that it needs.
    """
    outputs = sum_known(part.bytes for part in program.outputs)
    own = None if outputs is None else outputs - (program.aliased or 0)
    named: list[tuple[str, int | None]] = [(part.name, part.bytes) for part in program.arguments]
    named += [(OUTPUTS, own), (TEMPORARIES, program.temporaries)]
    if program.code_on_device:
        named.append((CODE, program.code))
    parts, start = [], 0
    for name, number in named:
        # The unexplained rest is negative if a compiler packs an array tighter than its dtype.
        if number is not None and number > 0:
            parts.append(Segment(name, start, number))
            start += number
    if program.total is None and not parts and program.peak and program.peak > 0:
        return [Segment(NEEDED, 0, program.peak)]
    return parts


Drawn = Sequence[tuple[Breakdown, list[Segment]]]


def _bar(
    program: Breakdown,
    parts: list[Segment],
    limit: int | None,
    px_per_byte: float,
    width_px: float,
) -> bars.Bar:
    drawn = []
    for part in parts:
        # The line of the capacity would cross the text.
        crossed = limit is not None and part.start < limit < part.start + part.bytes
        color = _COLORS.get(part.name, palette.UNKNOWN)
        size = formatting.bytes_text(part.bytes)
        drawn.append(
            bars.Segment(
                part.name,
                part.start,
                part.bytes,
                color,
                _hover(program, part.name, part.bytes),
                ""
                if crossed
                else bars.fitting_text([f"{part.name} {size}", size], part.bytes * px_per_byte),
                "/" if color == palette.UNKNOWN else "",
            )
        )
    heading = f"{program.program}: {formatting.bytes_text(program.total)}"
    if _does_not_fit(parts):
        heading = f"{program.program}: does not fit, needs {formatting.bytes_text(program.peak)}"
    elif program.peak is not None:
        heading += f", peak {formatting.bytes_text(program.peak)}"
    heading = labels.cut(heading, labels.fitting(width_px, frame.NOTE_PX))
    strip = _STRIP_PX + 2 if (program.aliased or 0) > 0 else 0
    return bars.Bar(labels.escape(heading), tuple(drawn), strip)


def _hover(program: Breakdown, name: str, size: int | None) -> str:
    return f"{labels.escape(program.program)}<br>{labels.escape(name)}: {formatting.exact_bytes_text(size)}"


def _strips(drawn: Drawn, tops: Sequence[float]) -> list[go.Bar]:
    """Return strips below the arguments that are reused for outputs; the state comes first in both."""
    shared = [
        (program, top)
        for (program, _), top in zip(drawn, tops, strict=True)
        if (program.aliased or 0) > 0
    ]
    if not shared:
        return []
    return [
        go.Bar(
            orientation="h",
            name=SHARED,
            x=[program.aliased for program, _ in shared],
            y=[top + bars.BAR_PX + 2 + _STRIP_PX / 2 for _, top in shared],
            width=_STRIP_PX,
            marker={"color": _COLORS[OUTPUTS], "pattern": {"shape": "x"}},
            customdata=[_hover(program, SHARED, program.aliased) for program, _ in shared],
            hovertemplate=frame.HOVER_TEXT,
        )
    ]


def _peaks(drawn: Drawn, tops: Sequence[float]) -> list[go.Scatter]:
    known = [
        (program, top)
        for (program, parts), top in zip(drawn, tops, strict=True)
        if program.peak is not None and not _does_not_fit(parts)
    ]
    if not known:
        return []
    text = "largest amount alive at one time, according to the compiler"
    return [
        go.Scatter(
            name=PEAK,
            x=[program.peak for program, _ in known],
            y=[top - 5 for _, top in known],
            mode="markers",
            marker={"symbol": "triangle-down", "size": 10, "color": frame.MIDDLE_GREY},
            cliponaxis=False,
            customdata=[_hover(program, text, program.peak) for program, _ in known],
            hovertemplate=frame.HOVER_TEXT,
        )
    ]


def _does_not_fit(parts: list[Segment]) -> bool:
    return parts[0].name == NEEDED


def _limit_lines(limit: int, placed: bars.Placed) -> list[dict[str, Any]]:
    """Return a line below the label and one across each bar; none crosses a heading."""
    spans = [(0.0, float(_CAPACITY_LABEL_PX))]
    spans += [
        (top - _BEYOND_PX, top + bars.BAR_PX + bar.below_px + _BEYOND_PX)
        for bar, top in zip(placed.bars, placed.tops, strict=True)
    ]
    return [frame.line(limit, limit, start, stop, width=3) for start, stop in spans]


def _limit_label(limit: int, chip: str, right: float) -> dict[str, Any]:
    # On the side of the line that has more room.
    at_right = limit < right / 2
    return frame.annotation(
        labels.escape(f"{chip}: {formatting.bytes_text(limit)}"),
        limit,
        0,
        xanchor="left" if at_right else "right",
        xshift=3 if at_right else -3,
        yanchor="top",
    )
