"""What each program has on one device, as one stacked bar beside what a chip holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from inspector.core import formatting
from inspector.figures import frame, labels, palette
from inspector.machines.prediction.memory import GROUPS, UNEXPLAINED, Breakdown, summed

OUTPUTS, TEMPORARIES, CODE = "outputs", "temporaries", "code"
SHARED = "shared with outputs"
PEAK = "peak"
NEEDED = "needed, by the compiler that refused it"

# A capacity is drawn where the bars still take this share of the width up to it.
_LEAST_SHARE = 0.3
_BAR_PX, _STRIP_PX, _HEADING_PX, _GAP_PX = 26, 7, 26, 12
_LEAST_PX = 0.5  # a stretch that is nowhere as wide is in the tables only
_LABEL_PX = 20  # the capacity's own line, over the bars
_BEYOND_PX = 4  # the capacity stands out of each bar so far
_LEGEND_LINE_PX, _LEGEND_MARK_PX = 20, 40

_COLORS = {
    GROUPS["params"]: palette.OKABE_ITO[0],
    GROUPS["opt_state"]: palette.OKABE_ITO[1],
    GROUPS["batch"]: palette.OKABE_ITO[2],
    GROUPS["other"]: palette.OKABE_ITO[4],
    UNEXPLAINED: palette.UNKNOWN,
    OUTPUTS: palette.OKABE_ITO[3],
    TEMPORARIES: palette.OKABE_ITO[5],
    CODE: palette.OKABE_ITO[6],
}


class Segment(NamedTuple):
    """One stretch of a program's bar: from how many bytes, how many, and what they are."""

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
    """A bar a program; None where nothing is known of any.

    Args:
      capacity: bytes that one chip holds. It is a line where it is not far outside the bars, else a note.
      chip: what that chip is called.
    """
    drawn = [(program, segments(program)) for program in programs]
    drawn = [(program, parts) for program, parts in drawn if parts]
    if not drawn:
        return None
    longest = max(parts[-1].start + parts[-1].bytes for _, parts in drawn)
    longest = max(longest, *(program.peak or 0 for program, _ in drawn))
    reached = capacity is not None and longest >= _LEAST_SHARE * capacity
    right = max(longest, capacity if reached and capacity else 0) * 1.02
    left_px, right_px = 10, 10
    plot_px = max(width_px - left_px - right_px, 1)
    places, height = [], float(_LABEL_PX if reached else 0)
    for program, _ in drawn:
        places.append(height + _HEADING_PX)
        height += _HEADING_PX + _BAR_PX + (_STRIP_PX + 2 if program.aliased else 0) + _GAP_PX
    traces = [
        *_bars(drawn, places, plot_px / right),
        *_strips(drawn, places),
        *_peaks(drawn, places),
    ]
    notes = frame.note_lines(_notes(capacity, chip, reached, longest), width_px)
    top = frame.heading_px(len(notes))
    bottom = 8 + _legend_px([trace.name for trace in traces], width_px)
    headings = [
        _heading(program, parts, y - _HEADING_PX, width_px)
        for (program, parts), y in zip(drawn, places, strict=True)
    ]
    return frame.figure(
        traces,
        width_px,
        top + height + bottom,
        title=frame.title("Memory on one device", width_px),
        margin={"l": left_px, "r": right_px, "t": top, "b": bottom},
        barmode="overlay",
        hovermode="closest",
        showlegend=True,
        legend=frame.legend_below(),
        xaxis=frame.axis(range=[0, right], showticklabels=False),
        yaxis=frame.axis(range=[height, 0], showticklabels=False),
        annotations=[
            frame.notes_above(notes, left_px),
            *headings,
            *([_capacity_label(capacity, chip, right)] if reached and capacity else []),
        ],
        shapes=_capacity_lines(capacity, drawn, places) if reached and capacity else [],
    )


def segments(program: Breakdown) -> list[Segment]:
    """The stretches of a program's bar, which end at its total; what is unknown or nothing has none.

    Of a program that does not fit, its compiler says how much it needs and no more.
    """
    outputs = summed(part.bytes for part in program.outputs)
    own = None if outputs is None else outputs - (program.aliased or 0)
    named: list[tuple[str, int | None]] = [(part.name, part.bytes) for part in program.arguments]
    named += [(OUTPUTS, own), (TEMPORARIES, program.temporaries)]
    if program.code_on_device:
        named.append((CODE, program.code))
    found, start = [], 0
    for name, number in named:
        # Less than nothing is left unexplained where a compiler packs what an array says it holds.
        if number is not None and number > 0:
            found.append(Segment(name, start, number))
            start += number
    if program.total is None and not found and program.peak:
        return [Segment(NEEDED, 0, program.peak)]
    return found


Drawn = list[tuple[Breakdown, list[Segment]]]


def _bars(drawn: Drawn, places: list[float], px_per_byte: float) -> list[go.Bar]:
    """A trace for each name, so that the legend has each once, and none that cannot be seen."""
    seen = {s.name for _, parts in drawn for s in parts if s.bytes * px_per_byte >= _LEAST_PX}
    names = [*(name for name in _COLORS if name in seen), *sorted(seen.difference(_COLORS))]
    traces = []
    for name in names:
        held = [
            (program, segment, y)
            for (program, parts), y in zip(drawn, places, strict=True)
            for segment in parts
            if segment.name == name
        ]
        color = _COLORS.get(name, palette.UNKNOWN)
        hatched = color == palette.UNKNOWN
        traces.append(
            go.Bar(
                orientation="h",
                name=labels.escape(name),
                x=[segment.bytes for _, segment, _ in held],
                base=[segment.start for _, segment, _ in held],
                y=[y + _BAR_PX / 2 for *_, y in held],
                width=_BAR_PX,
                marker={
                    "color": color,
                    "pattern": {"shape": "/" if hatched else ""},
                },
                # On a hatch no text can be read; the legend has the name, and the pointer tells the bytes.
                text=None if hatched else [_inside(part, px_per_byte) for _, part, _ in held],
                textposition="inside",
                insidetextanchor="middle",
                textangle=0,
                constraintext="none",
                textfont={"size": frame.TICK_PX, "color": palette.text_on(color)},
                customdata=[
                    [labels.escape(program.program), formatting.exact_bytes_text(segment.bytes)]
                    for program, segment, _ in held
                ],
                hovertemplate="%{customdata[0]}<br>"
                + labels.escape(name)
                + ": %{customdata[1]}<extra></extra>",
            )
        )
    return traces


def _strips(drawn: Drawn, places: list[float]) -> list[go.Bar]:
    """Under the arguments, how much of them the outputs are written over: the state comes first in both."""
    shared = [
        (program, y) for (program, _), y in zip(drawn, places, strict=True) if program.aliased
    ]
    if not shared:
        return []
    return [
        go.Bar(
            orientation="h",
            name=labels.escape(SHARED),
            x=[program.aliased for program, _ in shared],
            y=[y + _BAR_PX + 2 + _STRIP_PX / 2 for _, y in shared],
            width=_STRIP_PX,
            marker={"color": _COLORS[OUTPUTS], "pattern": {"shape": "x"}},
            customdata=[
                [labels.escape(program.program), formatting.exact_bytes_text(program.aliased)]
                for program, _ in shared
            ],
            hovertemplate=f"%{{customdata[0]}}<br>{SHARED}: %{{customdata[1]}}<extra></extra>",
        )
    ]


def _peaks(drawn: Drawn, places: list[float]) -> list[go.Scatter]:
    known = [
        (one, y)
        for (one, parts), y in zip(drawn, places, strict=True)
        if one.peak is not None and not _refused(parts)
    ]
    if not known:
        return []
    return [
        go.Scatter(
            name=PEAK,
            x=[program.peak for program, _ in known],
            y=[y - 5 for _, y in known],
            mode="markers",
            marker={"symbol": "triangle-down", "size": 10, "color": frame.MIDDLE_GREY},
            cliponaxis=False,
            customdata=[
                [labels.escape(program.program), formatting.exact_bytes_text(program.peak)]
                for program, _ in known
            ],
            hovertemplate="%{customdata[0]}<br>most at one time, as the compiler says: "
            "%{customdata[1]}<extra></extra>",
        )
    ]


def _refused(parts: list[Segment]) -> bool:
    return parts[0].name == NEEDED


def _notes(capacity: int | None, chip: str, reached: bool, longest: int) -> list[str]:
    if capacity is None or reached:
        return []
    times = capacity / longest
    return [
        f"the {formatting.bytes_text(capacity)} of one {chip} chip are {times:,.{0 if times >= 10 else 1}f} "
        "times the longest bar"
    ]


def _heading(program: Breakdown, parts: list[Segment], y: float, width_px: float) -> dict[str, Any]:
    said = f"{program.program}: {formatting.bytes_text(program.total)}"
    if _refused(parts):
        said = f"{program.program}: does not fit, needs {formatting.bytes_text(program.peak)}"
    elif program.peak is not None:
        said += f", peak {formatting.bytes_text(program.peak)}"
    most = int(width_px / labels.width_px("x", frame.NOTE_PX))
    return {
        "text": labels.escape(labels.cut(said, most)),
        "showarrow": False,
        "x": 0,
        "xref": "paper",
        "xanchor": "left",
        "xshift": -8,
        "y": y,
        "yanchor": "top",
        "font": {"size": frame.NOTE_PX},
    }


def _capacity_lines(capacity: int, drawn: Drawn, places: list[float]) -> list[dict[str, Any]]:
    """A stretch under the label and one across each bar, which leave the headings between them alone."""
    stretches: list[tuple[float, float]] = [(0, _LABEL_PX)]
    stretches += [
        (y - _BEYOND_PX, y + _BAR_PX + (_STRIP_PX + 2 if program.aliased else 0) + _BEYOND_PX)
        for (program, _), y in zip(drawn, places, strict=True)
    ]
    return [
        {
            "type": "line",
            "x0": capacity,
            "x1": capacity,
            "y0": start,
            "y1": stop,
            "line": {"color": frame.MIDDLE_GREY, "width": 3},
        }
        for start, stop in stretches
    ]


def _capacity_label(capacity: int, chip: str, right: float) -> dict[str, Any]:
    # Beside the line on the side that has more room.
    at_right = capacity < right / 2
    return {
        "text": labels.escape(f"{chip}: {formatting.bytes_text(capacity)}"),
        "showarrow": False,
        "x": capacity,
        "xanchor": "left" if at_right else "right",
        "xshift": 3 if at_right else -3,
        "y": 0,
        "yanchor": "top",
        "font": {"size": frame.NOTE_PX},
    }


def _inside(segment: Segment, px_per_byte: float) -> str:
    """What fits into a stretch: its name and bytes, only the bytes, or nothing."""
    room = segment.bytes * px_per_byte - 6
    said = formatting.bytes_text(segment.bytes)
    for text in (f"{segment.name} {said}", said):
        if labels.width_px(text, frame.TICK_PX) <= room:
            return labels.escape(text)
    return ""


def _legend_px(names: Sequence[str], width_px: float) -> float:
    """The height of a legend whose entries all are as wide as the widest one, as Plotly sets them."""
    widest = max(labels.width_px(name, frame.NOTE_PX) for name in names) + _LEGEND_MARK_PX
    per_line = max(int((width_px - 20) // widest), 1)
    return 10 + _LEGEND_LINE_PX * -(-len(names) // per_line)
