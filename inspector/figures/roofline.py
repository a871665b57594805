"""The roofline of a chip with all programs."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from inspector.core.program_names import title
from inspector.figures import frame, labels, palette, ticks
from inspector.machines.cost import critical_intensity, si_text
from inspector.machines.hardware import Chip
from inspector.machines.prediction.step_model import Modelled

_PLOT_PX = 230
_LEFT_PX, _RIGHT_PX, _BOTTOM_PX = 46, 12, 44
_LABEL_PX = 17
_POINT_PX = 10
_ROOF_STEP_PX = 5
_ROOF_NAME_PX = 90

_Placed = tuple[Modelled, float, float]  # a program, FLOP per HBM byte, FLOP/s
_Peak = tuple[str, float]  # operand dtypes, FLOP/s of one device


def roofline(chip: Chip, points: Iterable[Modelled], *, width_px: int = 480) -> go.Figure:
    """Return both roofs of one device on logarithmic axes, with a labelled point per program.

    The point of a program is at its FLOPs per HBM byte and its FLOPs per second of the modelled step, if
    everything overlaps. If communication keeps it below the roof, a dotted line leads up to the roof. The
    notes name programs without a point.
    """
    programs = list(points)
    placed = [(program, *place) for program in programs if (place := _place(program)) is not None]
    peaks = _peaks(chip, programs)
    bandwidth = chip.hbm_bytes_per_second_per_device
    ridges = [critical_intensity(rate, bandwidth) for _, rate in peaks]
    view = _view(placed, peaks, ridges, max(width_px - _LEFT_PX - _RIGHT_PX, 1))
    names, leaders = _point_labels(
        [title(modelled.program) for modelled, _, _ in placed],
        [view.pixels(math.log10(x), math.log10(y)) for _, x, y in placed],
        view.roofs(peaks, bandwidth),
        view.width_px,
    )
    marks = [*names, *_roof_labels(peaks, view.x_high)]
    if len(ridges) == 1:  # two labels would overlap, and the notes contain them
        left_px, _ = view.pixels(math.log10(ridges[0]), view.y_low)
        marks.append(_ridge_label(ridges[0], left_px, view.width_px))
    return frame.plot(
        [*_roof_lines(peaks, bandwidth, view), *_gaps(placed, bandwidth, peaks), _points(placed)],
        width_px,
        _PLOT_PX,
        heading=f"Roofline of {chip.title}, modelled",
        notes=_roofline_notes(chip, programs, placed, peaks, bandwidth),
        left=_LEFT_PX,
        right=_RIGHT_PX,
        bottom=_BOTTOM_PX,
        xaxis=_axis(view.x_low, view.x_high, view.width_px, title=frame.axis_title("FLOP per HBM byte")),
        yaxis=_axis(view.y_low, view.y_high, _PLOT_PX, upright=True),
        shapes=leaders
        + [
            frame.line(ridge, ridge, 10**view.y_low, rate, dash="dash")
            for ridge, (_, rate) in zip(ridges, peaks, strict=True)
        ],
        annotations=marks,
    )


@dataclass(frozen=True)
class _View:
    """The ends of both axes as powers of ten, and the width of the plot."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    width_px: float

    def pixels(self, x: float, y: float) -> tuple[float, float]:
        """Return the place of a point, given by its powers of ten, from the upper left corner."""
        x_scale, y_scale = self.width_px / (self.x_high - self.x_low), _PLOT_PX / (self.y_high - self.y_low)
        return (x - self.x_low) * x_scale, (self.y_high - y) * y_scale

    def roofs(self, peaks: Sequence[_Peak], bandwidth: float) -> list[tuple[float, float]]:
        """Return points in pixels along the roofs."""
        per_px = (self.x_high - self.x_low) / self.width_px
        return [
            (x, self.pixels(0, min(x * per_px + self.x_low + math.log10(bandwidth), math.log10(rate)))[1])
            for _, rate in peaks
            for x in range(0, int(self.width_px), _ROOF_STEP_PX)
        ]


def _view(
    placed: Sequence[_Placed], peaks: Sequence[_Peak], ridges: Sequence[float], width_px: float
) -> _View:
    """Return axes with all points and ridges, and with room for the name of the lowest point."""
    rates = [rate for _, rate in peaks]
    xs = [*(x for _, x, _ in placed), *ridges]
    ys = [*(y for _, _, y in placed), min(rates) / 100]
    return _View(
        math.floor(math.log10(min(xs)) - 0.5),
        math.ceil(math.log10(max(xs)) + 0.5),
        math.floor(math.log10(min(ys)) - 0.5),
        math.log10(max(rates)) + 0.45,
        width_px,
    )


def _roof_lines(peaks: Sequence[_Peak], bandwidth: float, view: _View) -> Iterator[go.Scatter]:
    """Yield the roof of each peak."""
    for (name, rate), dash in zip(peaks, itertools.cycle(("solid", "dash", "dot"))):
        yield go.Scatter(
            x=[10**view.x_low, critical_intensity(rate, bandwidth), 10**view.x_high],
            y=[10**view.x_low * bandwidth, rate, rate],
            mode="lines",
            line={"color": palette.MARK, "width": 2, "dash": dash},
            hovertemplate=f"{labels.escape(name)} peak {si_text(rate, 'FLOP/s')}, HBM "
            f"{si_text(bandwidth, 'B/s')}<extra></extra>",
        )


def _gaps(placed: Sequence[_Placed], bandwidth: float, peaks: Sequence[_Peak]) -> Iterator[go.Scatter]:
    """Yield a line up to the roof from each program that communication keeps below it."""
    roof = max(rate for _, rate in peaks)
    for modelled, x, y in placed:
        under = min(x * bandwidth, modelled.flops_per_second or roof)
        if under > y * 1.05:
            yield go.Scatter(
                x=[x, x],
                y=[y, under],
                mode="lines",
                line={"color": frame.MIDDLE_GREY, "width": 1, "dash": "dot"},
                hoverinfo="skip",
            )


def _points(placed: Sequence[_Placed]) -> go.Scatter:
    return go.Scatter(
        x=[x for _, x, _ in placed],
        y=[y for _, _, y in placed],
        mode="markers",
        marker={"size": _POINT_PX, "color": palette.MARK},
        customdata=[
            f"{labels.escape(title(modelled.program))}: {si_text(x, 'FLOP/B')}, {si_text(y, 'FLOP/s')}, "
            "modelled"
            for modelled, x, y in placed
        ],
        hovertemplate=frame.HOVER_TEXT,
    )


def _place(modelled: Modelled) -> tuple[float, float] | None:
    """Return (FLOP per HBM byte, FLOP/s) of a program; None if one of them is not positive or unknown."""
    flops, moved, seconds = modelled.flops or 0, modelled.hbm_bytes or 0, modelled.lower_seconds or 0
    return None if min(flops, moved, seconds) <= 0 else (flops / moved, flops / seconds)


def _peaks(chip: Chip, programs: Sequence[Modelled]) -> list[_Peak]:
    """Return (operand dtypes, FLOP/s of one device) of the dtypes that programs use, else of bf16."""
    names = (name for program in programs for name in program.runs_as)
    used = dict.fromkeys(name for name in names if name in chip.flops_per_second) or ["bf16"]
    together: dict[float, list[str]] = {}
    for name in used:
        together.setdefault(chip.flops_per_second[name] / chip.devices, []).append(name)
    return [(" and ".join(names), rate) for rate, names in sorted(together.items())]


def _roofline_notes(
    chip: Chip,
    programs: Sequence[Modelled],
    placed: Sequence[_Placed],
    peaks: Sequence[_Peak],
    bandwidth: float,
) -> list[str]:
    where = "one device" if chip.devices > 1 else "one chip"
    notes = [f"FLOP/s of {where}; HBM bandwidth {si_text(bandwidth, 'B/s')}"]
    notes += [
        f"{name}: {si_text(rate, 'FLOP/s')}, compute-bound from "
        f"{si_text(critical_intensity(rate, bandwidth), 'FLOP/B')}"
        for name, rate in peaks
    ]
    drawn = {id(modelled) for modelled, _, _ in placed}
    left_out = []
    for program in programs:
        if id(program) not in drawn:
            why = "no matrix products" if program.flops == 0 else "unknown"
            left_out.append(f"{title(program.program)} ({why})")
    if left_out:
        notes.append(f"not drawn: {', '.join(left_out)}")
    return notes


def _axis(
    low: float, high: float, length_px: float, upright: bool = False, **settings: Any
) -> dict[str, Any]:
    return frame.axis(
        **ticks.logarithmic(low, high, length_px, _tick_text, digits=(1,), upright=upright),
        showgrid=True,
        gridcolor=palette.faded(frame.MIDDLE_GREY, 0.25),
        **settings,
    )


def _tick_text(value: float) -> str:
    """Return a power of ten with its prefix: `0.1`, `100`, `10G`."""
    number, _, prefix = si_text(value, "").partition(" ")
    return f"{value:g}" if value < 1 else f"{float(number):g}{prefix}"


def _point_labels(
    names: Sequence[str],
    pixels: Sequence[tuple[float, float]],
    roofs: Sequence[tuple[float, float]],
    plot_width: float,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Place each name near its point, so that it covers no point, name or roof.

    Return the annotations, and lines from the points to names that are not next to them.
    """
    most = max(int(plot_width * 0.45 / labels.width_px("x", frame.NOTE_PX)), 6)
    # (left, right, middle) of everything in the way; the names of the roofs are at their right ends.
    lines = [(x - _ROOF_STEP_PX, x + _ROOF_STEP_PX, y) for x, y in roofs]
    ends = {y for x, y in roofs if x == max(x for x, _ in roofs)}
    taken = [(x - _POINT_PX, x + _POINT_PX, y) for x, y in pixels]
    taken += [(plot_width - _ROOF_NAME_PX, plot_width, y - _LABEL_PX / 2) for y in ends]
    placed, leaders = [], []
    for name, (x, y) in zip(names, pixels, strict=True):
        text = labels.middle_cut(name, most)
        width = labels.width_px(text, frame.NOTE_PX)
        places = [
            (start, at)
            for at in _heights(y)
            for start in (x + _POINT_PX, x - _POINT_PX - width)
            if 0 <= start <= plot_width - width
        ]
        free = [place for place in places if not _covers(*place, width, taken)]
        off_lines = [place for place in free if not _covers(*place, width, lines)]
        start, at = (*off_lines, *free, *places, (0.0, y))[0]
        taken.append((start, start + width, at))
        placed.append(
            frame.on_paper(labels.escape(text), start / plot_width, 1 - at / _PLOT_PX, yanchor="middle")
        )
        if abs(at - y) > _LABEL_PX / 2:  # not next to its point
            near = start if start > x else min(start + width, x)
            leaders.append(
                frame.line(
                    x / plot_width,
                    near / plot_width,
                    1 - y / _PLOT_PX,
                    1 - (at - math.copysign(_LABEL_PX * 0.35, at - y)) / _PLOT_PX,
                )
                | {"xref": "paper", "yref": "paper"}
            )
    return placed, leaders


def _heights(y: float) -> list[float]:
    """Return heights inside the plot, ordered by their distance from the point."""
    steps = sorted(range(-4, 5), key=lambda step: (abs(step), -step))
    heights = [y + step * _LABEL_PX * 0.75 for step in steps]
    return [at for at in heights if _LABEL_PX / 2 <= at <= _PLOT_PX - _LABEL_PX / 2] or [y]


def _covers(start: float, at: float, width: float, taken: Sequence[tuple[float, float, float]]) -> bool:
    return any(
        abs(at - other) < _LABEL_PX * 0.8 and start < right and left < start + width
        for left, right, other in taken
    )


def _ridge_label(ridge: float, place: float, plot_width: float) -> dict[str, Any]:
    """Return the critical intensity, next to the lower end of its line."""
    text = si_text(ridge, "FLOP/B")
    left = place + labels.width_px(text, frame.TICK_PX) + 8 > plot_width
    return frame.on_paper(
        labels.escape(text),
        place / plot_width,
        0,
        xanchor="right" if left else "left",
        xshift=-3 if left else 3,
        yanchor="bottom",
        yshift=2,
        font={"size": frame.TICK_PX},
    )


def _roof_labels(peaks: Sequence[_Peak], x_high: float) -> list[dict[str, Any]]:
    """Return the name of each peak above the right end of its roof."""
    return [
        frame.annotation(
            labels.escape(f"{name} peak"),
            x_high,
            math.log10(rate),  # on logarithmic axes the place of an annotation is the exponent
            xanchor="right",
            yanchor="bottom",
            font={"size": frame.TICK_PX},
        )
        for name, rate in peaks
    ]
