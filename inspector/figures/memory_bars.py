"""The memory of each program on one device, as one stacked bar, compared with the capacity of a chip."""

from collections.abc import Sequence

import plotly.graph_objects as go

from inspector.core import formatting
from inspector.core.array_groups import USE_GROUPS
from inspector.core.program_names import title
from inspector.figures import bars, frame, palette
from inspector.machines.prediction.memory import (
    CODE,
    OUTPUTS,
    OUTPUTS_AND_TEMPORARIES,
    TEMPORARIES,
    UNEXPLAINED,
    UNSCHEDULED,
    Breakdown,
)

SHARED = "shared with outputs"

# The capacity is drawn as a line if the bars then still take this share of the width up to it.
LEAST_SHARE = 0.3
_STRIP_PX = 7

COLORS = {
    **{style.heading: palette.color_of_group(group) for group, style in USE_GROUPS.items()},
    UNSCHEDULED: palette.UNKNOWN,
    OUTPUTS_AND_TEMPORARIES: palette.color_of_group("temporary"),
    UNEXPLAINED: palette.UNKNOWN,
    OUTPUTS: palette.color_of_group("output"),
    TEMPORARIES: palette.color_of_group("temporary"),
    CODE: palette.UNKNOWN,
}


def memory_bars(
    programs: Sequence[Breakdown],
    capacity: int | None = None,
    chip: str = "",
    *,
    width_px: int = 480,
) -> go.Figure | None:
    """Return a bar per program, with the content of memory at its peak; None if no memory is known.

    The `capacity` of one chip in bytes is a line, or a note if it is far beyond the bars.
    """
    drawn = [(program, list(program.parts)) for program in programs if program.parts]
    if not drawn:
        return None
    longest = max(sum(size for _, size in parts) for _, parts in drawn)
    limit, notes = None, []
    if capacity is not None and longest >= LEAST_SHARE * capacity:
        limit = (capacity, f"{chip}: {formatting.bytes_text(capacity)}")
    elif capacity is not None:
        times = capacity / longest
        notes = [
            f"the {formatting.bytes_text(capacity)} of one {chip} chip are "
            f"{times:,.{0 if times >= 10 else 1}f} times the longest bar"
        ]
    return bars.stacked(
        [_bar(program, parts) for program, parts in drawn],
        width_px,
        longest=longest,
        order=[*COLORS],
        limit=limit,
        more=lambda tops: _strips(drawn, tops),
        heading="Memory on one device at the peak",
        notes=notes,
    )


Drawn = Sequence[tuple[Breakdown, list[tuple[str, int]]]]


def _bar(program: Breakdown, parts: list[tuple[str, int]]) -> bars.Bar:
    drawn = []
    for name, number in parts:
        color, size = COLORS.get(name, palette.UNKNOWN), formatting.bytes_text(number)
        hatch = "/" if color == palette.UNKNOWN else ""
        hover = _hover(program, name, number)
        drawn.append(bars.Segment(name, number, color, hover, (f"{name} {size}", size), hatch))
    value = formatting.bytes_text(program.needed)
    if _is_rejected(program):
        value = f"does not fit, needs {value}"
    strip = _STRIP_PX + 2 if (program.aliased or 0) > 0 else 0
    return bars.Bar(title(program.program), value, drawn, strip)


def _hover(program: Breakdown, name: str, size: int | None) -> str:
    return frame.hover([title(program.program), f"{name}: {formatting.exact_bytes_text(size)}"])


def _strips(drawn: Drawn, tops: Sequence[float]) -> list[go.Bar]:
    """Return strips below the arguments that are reused for outputs; the state comes first in both."""
    shared = [
        (program, top) for (program, _), top in zip(drawn, tops, strict=True) if (program.aliased or 0) > 0
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
            marker={"color": COLORS[OUTPUTS], "pattern": {"shape": "x"}},
            customdata=[_hover(program, SHARED, program.aliased) for program, _ in shared],
            hovertemplate=frame.HOVER_TEXT,
        )
    ]


def _is_rejected(program: Breakdown) -> bool:
    """Return whether the compiler reported only the need of the program, because it does not fit."""
    return program.total is None and program.use is None and not program.arguments
