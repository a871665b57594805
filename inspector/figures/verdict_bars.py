"""The bars of a verdict: the time of a step, and the memory of a device against its HBM.

Every place that shows one of them draws this figure: the head of a page, its tabs, searches and reports. All
lengths are in pixels, so that one figure has bars of different units.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import plotly.graph_objects as go

from inspector.assessment import memory_words, part_text
from inspector.figures import frame, labels, palette
from inspector.records.assessment import (
    INTERVAL,
    MEMORY,
    STEP,
    TRAFFIC,
    LayoutFigures,
    MemoryKind,
    Step,
    StepPart,
)
from inspector.text.formatting import bytes_text, seconds_text, share_text

BAR_PX, GHOST_PX, HEAD_PX = 24, 5, 20
_GAP_PX, _BETWEEN_PX = 10, 36
_NARROW_PX = 290  # narrower bars are below each other
_BOLD = 0.92  # the width of a text over that of a bold one
_LEAST_NAME = 14  # characters of a name that a value leaves
_LEAST_PX = 4  # of a bar
_SHORT = 0.05  # of the width: a shorter bar has its amount next to it
_LONGEST = 1.7  # the end of a long interval, in times of the bar
_ROOM = 0.94  # of the width for the longest bar: the rest is for the ends of intervals
_WHISKER_PX = 4
# Black with a white border: one of both can be seen on each grey, and on either theme.
_WHISKER_STYLES: tuple[dict[str, Any], ...] = (
    {"color": palette.WHITE, "width": 4},
    {"color": palette.BLACK, "width": 1.6},
)


@dataclass(frozen=True)
class _Segment:
    name: str
    size: float
    text: str
    fill: palette.Fill
    hover: str
    hidden: float = 0.0


@dataclass(frozen=True)
class _Bar:
    """A bar in its own unit: its name, its value, its end, and the interval and the limit on its scale."""

    name: str
    values: Sequence[str]  # the first that fits is written
    segments: Sequence[_Segment]
    longest: float
    interval: tuple[float, float] | None = None
    ends: str = INTERVAL  # the kind of the interval's ends
    interval_text: str = ""
    work: float = 0.0  # seconds of a step without waits
    limit: tuple[float, str] | None = None
    at_least: bool = False
    if_short: tuple[str, str] | None = None  # its amount and share, next to a bar far shorter than its limit


def verdict_bars(
    layouts: Sequence[LayoutFigures], *, values: bool = True, step: str = STEP, width_px: int = 960
) -> go.Figure | None:
    """Return a bar for each layout's memory, step and traffic; None if none of them is known.

    The bars of one figure have one scale. Measured steps without parts have another one.

    Args:
      values: whether to write the figures above the bars, for places that do not have them elsewhere.
      step: the timed work.
    """
    groups = [(title, bars) for title, bars in _groups(layouts, step) if any(bar.segments for bar in bars)]
    if not groups:
        return None
    drawing = _Drawing([], [], [], [], set())
    beside = len(groups) > 1 and (width_px - _BETWEEN_PX * (len(groups) - 1)) / len(groups) >= _NARROW_PX
    column_px = (width_px - 4 - _BETWEEN_PX * (len(groups) - 1)) / len(groups) if beside else width_px - 4
    height = 0.0
    for number, (title, bars) in enumerate(groups):
        left, top = (number * (column_px + _BETWEEN_PX), 0.0) if beside else (0.0, height)
        if bars[0].name:
            drawing.write(f"<b>{title}</b>", left, top, frame.NOTE_PX + 1)
            top += HEAD_PX
        scale = max(bar.longest for bar in bars) or 1.0
        for bar in bars:
            bottom = drawing.add(
                bar,
                title,
                left=left,
                top=top,
                width=column_px,
                per_unit=column_px * _ROOM / scale,
                values=values,
            )
            if bar.name:  # rows of all figures are next to each other
                top = top + HEAD_PX + BAR_PX + GHOST_PX + 2 if beside or bar.segments else bottom
            else:
                top = drawing.legend([bar], left, bottom, column_px)
            top += _GAP_PX
        if bars[0].name:
            top = drawing.legend(bars, left, top - _GAP_PX / 2, column_px) + 2 * _GAP_PX
        height = max(height, top)
    height -= _GAP_PX
    return frame.figure(
        drawing.traces,
        width_px,
        height + 4,
        margin={"l": 2, "r": 2, "t": 2, "b": 2, "pad": 0},
        annotations=drawing.annotations,
        shapes=drawing.shapes,
        barmode="overlay",
        xaxis=frame.axis(range=[0, width_px - 4], showticklabels=False, fixedrange=True),
        yaxis=frame.axis(range=[height, 0], showticklabels=False, fixedrange=True),
        meta={"statement": labels.escape(" ".join(f"{line}." for line in drawing.lines[: frame.MOST_SAID]))},
    )


def _groups(layouts: Sequence[LayoutFigures], timed: str) -> list[tuple[str, list[_Bar]]]:
    """Return the bars of each figure. Of several layouts, an unknown figure has a heading alone."""
    measured = [
        layout
        for layout in layouts
        if layout.step is not None and layout.step.kind == "measured" and not layout.step.parts
    ]
    predicted = [layout for layout in layouts if layout not in measured]
    with_traffic = [layout for layout in layouts if layout.traffic is not None or layout.unknown]
    return [
        (MEMORY, list(map(_memory, layouts))),
        (timed, list(map(_step, predicted))),
        (f"{timed}, measured", list(map(_step, measured))),
        (TRAFFIC, list(map(_traffic, with_traffic))),
    ]


_LEAST_NAMED = 0.01  # share of a bar


def fill_of_part(part: StepPart) -> palette.Fill:
    """Return the fill of a part of a step: that of its mesh axes, or a grey."""
    if not part.is_communication:
        return palette.WORK[part.kind]
    fill = palette.fill_of_axes(None if part.axes is None else part.axes.split("+"))
    return palette.between_slices(fill) if part.kind == "between" else fill


def fill_of_memory(kind: MemoryKind) -> palette.Fill:
    """Return the fill of a kind of memory."""
    if kind == "unknown":
        return palette.NOT_KNOWN
    kinds = ("state", "activations", "constants", "temporaries")
    return palette.Fill(palette.neutrals(len(kinds))[kinds.index(kind)])


def _bar(layout: LayoutFigures, title: str, values: Sequence[str] = (), *drawn: Any, **settings: Any) -> _Bar:
    """Return a bar; without values, one that is unknown."""
    if not values:
        why = layout.unknown.get(title, "")
        return _Bar(layout.name, [f"unknown: {why}", "unknown"] if why else ["unknown"], (), 0.0)
    marks = layout.marks.get(title, ("", ""))
    marked = [" ".join(filter(None, (value, mark))) for value in values for mark in marks]
    return _Bar(layout.name, [*dict.fromkeys(marked)], *drawn, **settings)


def _step(layout: LayoutFigures) -> _Bar:
    step = layout.step
    if step is None:
        return _bar(layout, STEP)
    across = any(part.kind == "between" for part in step.parts)
    segments = [_segment(part, step, across) for part in step.parts]
    if not segments:  # measured without a profile
        text = seconds_text(step.seconds)
        segments = [_Segment("measured", step.seconds, text, palette.Fill(palette.MARK), frame.hover([text]))]
    work = math.fsum(part.seconds for part in step.parts if not part.is_communication)
    end = min(step.high or 0.0, _LONGEST * step.seconds)
    interval = None if step.low is None or step.high is None else (step.low, step.high)
    values = [f"{step.text}, {step.kind}"] if step.kind != "at least" else []
    values += [step.text, step.value_text]
    at_least = step.kind == "at least"
    longest = max(step.seconds, end)
    return _bar(
        layout, STEP, values, segments, longest, interval, step.ends, step.interval,
        work=work, at_least=at_least,
    )  # fmt: skip


def _traffic(layout: LayoutFigures) -> _Bar:
    sent = layout.traffic
    if sent is None:
        return _bar(layout, TRAFFIC)
    segments = []
    sender = "each device" if sent.at_most is None else "the device that sends most"
    for axes in sorted(sent.by_axes, key=lambda axes: -sent.by_axes[axes]):
        for part, size in sent.by_network(axes):
            if size:
                name = part_text(part, bool(sent.between_slices))
                text = bytes_text(size)
                hover = frame.hover([f"{name}: {text}", f"sent by {sender} in a step"])
                segments.append(_Segment(name, size, text, fill_of_part(part), hover))
    return _bar(layout, TRAFFIC, [sent.text], segments, float(sent.bytes))


def _segment(part: StepPart, step: Step, across: bool) -> _Segment:
    name, seconds = part_text(part, across, step.kind == "measured"), seconds_text(part.seconds)
    lines = [f"{name}: {seconds}"]
    if step.kind != "at least":
        lines.append(f"{share_text(part.seconds / step.seconds, 0)} of the step")
    if part.is_communication:
        lines[0] = f"waits for communication over {lines[0]}"
        if part.hidden:
            lines.append(f"{seconds_text(part.hidden)} more while the device works")
        if part.bytes is not None:
            lines.append(f"{bytes_text(part.bytes)} sent by each device")
    return _Segment(name, part.seconds, seconds, fill_of_part(part), frame.hover(lines), part.hidden)


def _memory(layout: LayoutFigures) -> _Bar:
    need = layout.memory
    if need is None:
        return _bar(layout, MEMORY)
    capacity = need.capacity_bytes
    segments = []
    for kind, size in need.parts.items():
        word, text = memory_words(kind, need)[0], bytes_text(size)
        segments.append(
            _Segment(word, size, text, fill_of_memory(kind), frame.hover([f"{word}: {text} on each device"]))
        )
    interval = (need.low, need.high) if need.is_estimated and need.high is not None else None
    end = min(interval[1], _LONGEST * need.peak_bytes) if interval else 0
    limit = None if capacity is None else (capacity, f"HBM {bytes_text(capacity)}")
    longest = max(need.peak_bytes, end, capacity or 0)
    cross = ", too large" if need.fits is False else ""
    values = [", ".join(filter(None, (need.text, need.fits_text))), need.text + cross]
    values.append(need.text.removeprefix("about ").replace("at least ", "≥ ") + cross)
    if_short = None
    if capacity:
        if_short = replace(need, capacity_bytes=None).text, f"{share_text(need.peak_bytes / capacity)} of HBM"
    return _bar(
        layout, MEMORY, values, segments, longest, interval, INTERVAL, need.interval,
        limit=limit, at_least=need.at_least, if_short=if_short,
    )  # fmt: skip


@dataclass(frozen=True)
class _Drawing:
    """The elements that are drawn so far, and the same in words."""

    traces: list[Any]
    annotations: list[dict[str, Any]]
    shapes: list[dict[str, Any]]
    lines: list[str]
    named: set[str]  # the parts that have their name and their size in the bar

    def add(
        self, bar: _Bar, title: str, left: float, top: float, width: float, per_unit: float, values: bool
    ) -> float:
        """Draw a bar with its heading and its legend, and return its lower end."""
        self.lines.append(f"{bar.name or title}: {bar.values[0]}")
        name, value = _fitting(bar.name or title, bar.values if values else [""], width)
        self.write(f"{labels.escape(name)}  <b>{labels.escape(value)}</b>", left, top, frame.NOTE_PX + 1)
        top += HEAD_PX
        if not bar.segments:
            return top - _GAP_PX / 2
        x = left
        whole = sum(part.size for part in bar.segments) * per_unit
        if 0 < whole < _LEAST_PX:  # the largest part alone, so that the bar is visible
            largest = max(bar.segments, key=lambda part: part.size)
            self._fill(largest, x, top=top, wide=_LEAST_PX, limit=None, left=left, per_unit=per_unit)
            x += _LEAST_PX
        else:
            for part in bar.segments:
                wide = part.size * per_unit
                self._fill(part, x, top=top, wide=wide, limit=bar.limit, left=left, per_unit=per_unit)
                x += wide
        if bar.if_short is not None and whole < _SHORT * width:
            beside = ", ".join(bar.if_short[values:])  # the heading has the amount
            self.write(labels.escape(beside), x + 3 + 16 * bar.at_least, top + 4, frame.TICK_PX)
        if bar.limit is not None:
            self._limit(left + bar.limit[0] * per_unit, top)
        if bar.interval is not None:
            self._whisker(bar, left, top, per_unit, left + width)
        elif bar.at_least:
            self.write("→", x + 2, top + 2, 14)
        bottom = top + BAR_PX
        if any(part.hidden for part in bar.segments):
            self._ghost(bar, left, bottom + 2, per_unit, width)
            bottom += GHOST_PX + 2
        return bottom + _WHISKER_PX + 1

    def write(self, text: str, x: float, y: float, size: int) -> None:
        self.annotations.append(
            frame.annotation(text, x, y, xref="x", yref="y", yanchor="top", font={"size": size})
        )

    def _fill(
        self,
        part: _Segment,
        x: float,
        top: float,
        wide: float,
        limit: tuple[float, str] | None,
        left: float,
        per_unit: float,
    ) -> None:
        """Draw a segment; the part beyond the limit is red."""
        inside = wide
        if limit is not None:
            inside = min(max(left + limit[0] * per_unit - x, 0.0), wide)
        for start, length, fill in (
            (x, inside, part.fill),
            (x + inside, wide - inside, palette.Fill(palette.BAD, part.fill.hatch)),
        ):
            if length <= 0:
                continue
            text = f"{part.name} {part.text}"  # else both are in the legend
            fits = fill.hatch in ("", palette.DOTS) and labels.width_px(text, frame.TICK_PX) <= length - 6
            written = text if fits and (start == x or not inside) else ""
            if written:
                self.named.add(part.name)
            self._draw_bar(
                start, top, length, BAR_PX, fill, part.hover,
                text=[labels.escape(written)],
                textposition="inside",
                insidetextanchor="middle",
                textangle=0,
                constraintext="none",
                textfont={"size": frame.TICK_PX, "color": palette.text_on(fill.color)},
            )  # fmt: skip

    def _ghost(self, bar: _Bar, left: float, top: float, per_unit: float, width: float) -> None:
        """Draw the hidden communication below the bar, from its beginning."""
        x = left
        for part in bar.segments:
            wide = min(part.hidden * per_unit, left + width - x)
            if wide <= 0:
                continue
            hover = [f"{part.name}: {seconds_text(part.hidden)} hidden", "while the device works"]
            self._draw_bar(x, top, wide, GHOST_PX, part.fill, frame.hover(hover), opacity=0.45)
            x += wide

    def _draw_bar(
        self, x: float, top: float, width: float, height: int, fill: palette.Fill, hover: str, **more: Any
    ) -> None:
        """Draw a bar with 1 px of space after it."""
        self.traces.append(
            go.Bar(
                orientation="h",
                base=[x],
                x=[max(width - 1, 0.5)],
                y=[top + height / 2],
                width=height,
                marker=fill.marker,
                customdata=[hover],
                hovertemplate=frame.HOVER_TEXT,
                **more,
            )
        )

    def _limit(self, x: float, top: float) -> None:
        self.shapes.append(frame.line(x, x, top - 4, top + BAR_PX + 4, width=3, color=palette.BAD))

    def _whisker(self, bar: _Bar, left: float, top: float, per_unit: float, right: float) -> None:
        assert bar.interval is not None
        low, high = (min(left + end * per_unit, right) for end in bar.interval)
        middle = top + BAR_PX  # the lower edge: its ends are below the texts
        cut = left + bar.interval[1] * per_unit > right
        lines = [(low, high, middle, middle)]
        for end in (low,) if cut else (low, high):
            lines.append((end, end, middle - _WHISKER_PX, middle + _WHISKER_PX))
        for style in _WHISKER_STYLES:
            self.shapes.extend(frame.line(*ends, **style) for ends in lines)

    def legend(self, bars: Sequence[_Bar], left: float, top: float, width: float) -> float:
        """Write the parts of bars in lines, and return their lower end.

        Those of a single bar have sizes, unless they have them in the bar. Parts below 1% of a bar, which are
        slivers, have only their hover text.
        """
        entries: dict[str, str] = {}
        for bar in bars:
            least = _LEAST_NAMED * sum(part.size for part in bar.segments)
            for part in bar.segments:
                if part.size > least and not (len(bars) == 1 and part.name in self.named):
                    name = part.name if len(bars) > 1 else f"{part.name} {part.text}"
                    entries[name] = _squares(part.fill)
        ghosts = [part for bar in bars for part in bar.segments if part.hidden]
        if ghosts:
            fills = [part.fill for part in ghosts]
            colors = dict.fromkeys(color for fill in fills for color in (fill.color, fill.over) if color)
            hidden = f" {_hidden_text(bars[0])}" if len(bars) == 1 else ""
            entries[f"hidden behind work{hidden}"] = "".join(_colored("▂", color) for color in colors)
        for bar in (bar for bar in bars if bar.interval):
            entries[f"{bar.ends} {bar.interval_text}" if len(bars) == 1 else bar.ends] = "├┤"
        for limit in dict.fromkeys(bar.limit[1] for bar in bars if bar.limit is not None):
            entries[limit] = _colored("┃", palette.BAD)
        lines: list[str] = []
        used = width
        for text, mark in entries.items():
            signs = max(mark.count("</span>"), 1) * frame.TICK_PX
            need = signs + labels.arial_px(f" {text}   ", frame.TICK_PX)
            entry = f"{mark} {labels.escape(text)}"
            if used + need > width:
                lines.append(entry)
                used = need
            else:
                lines[-1] += f"   {entry}"
                used += need
        self.write("<br>".join(lines), left, top, frame.TICK_PX)
        return top + 1.35 * frame.TICK_PX * len(lines)


def _fitting(name: str, values: Sequence[str], room: float) -> tuple[str, str]:
    """Return a name and the first value next to which it fits. The name is cut if none is short enough."""
    size = frame.NOTE_PX + 1

    def fits(name: str, value: str) -> bool:
        return labels.arial_px(f"{name}  ", size) + labels.arial_px(value, size) / _BOLD <= room

    shorter = (labels.middle_cut(name, most) for most in range(len(name), _LEAST_NAME - 1, -1))
    for own in (name, *shorter):
        for value in values:
            if fits(own, value):
                return own, value
    least, value = labels.middle_cut(name, _LEAST_NAME), values[-1]
    while value and not fits(least, f"{value}…"):
        value = value[:-1]
    return least, f"{value}…"


def _hidden_text(bar: _Bar) -> str:
    """Return `304 ms, over 2 axes at once`: only so is more hidden than the work of a step takes."""
    hidden = [part for part in bar.segments if part.hidden]
    total = math.fsum(part.hidden for part in hidden)
    if len(hidden) < 2 or total <= bar.work:
        return seconds_text(total)
    # Several mesh axes of one collective, or one axis inside slices and between them.
    colors = {part.fill.color for part in hidden if not part.fill.over}
    what = "axes" if len(colors) == len(hidden) else "sets of links"
    return f"{seconds_text(total)}, over {len(hidden)} {what} at once"


def _squares(fill: palette.Fill) -> str:
    """Return a square in the color of a fill, or two for stripes; a dotted one is pale."""
    if fill.hatch == palette.DOTS:
        return _colored("▒", fill.color)
    colors = [fill.color, *([fill.over] if fill.over else [])]
    return "".join(_colored("■", color) for color in colors)


def _colored(sign: str, color: str) -> str:
    return f'<span style="color:{color}">{sign}</span>'
