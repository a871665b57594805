"""The candidates of a search: time of a step against memory of a device, one point for each.

The best one has its name. A line joins those that no other one beats in both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import plotly.graph_objects as go

from inspector.compare.search.answer import answer_of, name_of
from inspector.compare.search.result import Candidate, SearchResult
from inspector.core.formatting import bytes_text, counted, seconds_text
from inspector.figures import frame, labels, palette, ticks
from inspector.machines import hardware
from inspector.machines.prediction.memory import capacity_of

MOST_POINTS = 1500  # partitioned candidates that are drawn, the fastest first: 40 kB
_PLOT_PX = 320
_LEFT_PX, _RIGHT_PX, _BOTTOM_PX = 74, 14, 54
_SLOWEST = 3.0  # candidates slower than this many times the fastest are left out
_MOST_CAPACITY = 30.0  # times the largest memory up to which the line of the chip is in the plot


def search_front(result: SearchResult, *, width_px: int = 640) -> go.Figure | None:
    """Return the scatter plot; None without a candidate whose time and memory are known."""
    known = [candidate for candidate in result.candidates if _seconds(candidate) and _bytes(candidate)]
    known = [candidate for candidate in known if candidate.stage != "rejected"]
    if not known:
        return None
    fastest = min(_seconds(candidate) for candidate in known)
    best, current = result.best_candidate, result.current
    near = [
        candidate
        for candidate in known
        if _seconds(candidate) <= _SLOWEST * fastest or candidate is best or candidate is current
    ]
    answer = answer_of(result)
    alike = {id(candidate) for candidate in (answer.alike if answer is not None else ())}
    estimated = any(candidate.peak_bytes for candidate in near if candidate.stage == "propagated")
    kinds: list[tuple[str, Callable[[Candidate], bool], dict[str, object]]] = [
        (
            f"partitioned; memory: {'an estimate' if estimated else 'state and batch'}",
            lambda candidate: (
                candidate.stage == "propagated" and candidate.fits is not False and id(candidate) not in alike
            ),
            {"symbol": "circle-open", "size": 6, "color": palette.MARK},
        ),
        (
            "partitioned, does not fit",
            lambda candidate: candidate.stage == "propagated" and candidate.fits is False,
            {"symbol": "x-thin-open", "size": 6, "color": palette.MARK},
        ),
        (
            "compiled; memory: the compiler's peak",
            lambda candidate: (
                candidate.stage == "compiled" and candidate.fits is not False and id(candidate) not in alike
            ),
            {"symbol": "circle", "size": 11, "color": palette.MARK},
        ),
        (
            "compiled, does not fit",
            lambda candidate: candidate.stage == "compiled" and candidate.fits is False,
            {"symbol": "x", "size": 10, "color": palette.BAD},
        ),
        (
            "cannot be told apart from the best",
            lambda candidate: id(candidate) in alike,
            {"symbol": "circle", "size": 8, "color": palette.REMAINING},
        ),
    ]
    traces: list[go.Scatter] = []
    front = [candidate for candidate in near if candidate.pareto]
    if len(front) > 1:
        traces.append(_frontier(front))
    for name, belongs, marker in kinds:
        own = [candidate for candidate in near if belongs(candidate)][:MOST_POINTS]
        if own:
            traces.append(_points(name, own, marker))
    for name, candidate, symbol in (("best", best, "star"), ("current", current, "diamond-tall")):
        if candidate is not None and candidate in near:
            ring = {"symbol": f"{symbol}-open", "size": 20, "color": palette.GOOD}
            traces.append(_points(name, [candidate], ring))
    capacity, shapes, notes = _capacity(result, near)
    left_out = len(known) - len(near)
    if left_out:
        notes.append(f"{counted(left_out, 'slower candidate')} left out")
    seconds = [_seconds(candidate) for candidate in near]
    sizes = [*(_bytes(candidate) for candidate in near), *capacity]
    named = [] if best is None or best not in near else [_label(best, seconds, sizes)]
    names = [str(trace.name) for trace in traces]
    return frame.plot(
        traces,
        width_px,
        _PLOT_PX,
        heading="Time of a step against memory of a device",
        notes=notes,
        left=_LEFT_PX,
        right=_RIGHT_PX,
        **frame.legend_below(names, width_px, _BOTTOM_PX, _PLOT_PX),
        shapes=shapes,
        annotations=named,
        xaxis=frame.axis(
            **ticks.linear(min(seconds), max(seconds), seconds_text),
            title=frame.axis_title(
                "time of a step, predicted or measured"
                if any(candidate.measured for candidate in near)
                else "predicted time of a step"
            ),
            showgrid=True,
        ),
        yaxis=frame.axis(
            **ticks.logarithmic(
                *_memory_range(min(sizes), max(sizes)),
                _PLOT_PX,
                lambda value: bytes_text(int(value)),
                digits=None,
                upright=True,
            ),
            title=frame.axis_title("memory", 4),
            showgrid=True,
        ),
    )


def _memory_range(least: float, most: float) -> tuple[float, float]:
    """Return the ends of the axis as powers of ten: the powers of two around all sizes, which have labels."""
    lower, upper = 2.0 ** math.floor(math.log2(least)), 2.0 ** math.ceil(math.log2(most))
    room, of_label = 0.06, 0.01
    return (
        min(math.log10(least) - room, math.log10(lower) - of_label),
        max(math.log10(most) + room, math.log10(upper) + of_label),
    )


def _frontier(front: Sequence[Candidate]) -> go.Scatter:
    """Return the line through the candidates that no other one beats in both time and memory."""
    points = sorted((_seconds(candidate), _bytes(candidate)) for candidate in front)
    return go.Scatter(
        x=[seconds for seconds, _ in points],
        y=[count for _, count in points],
        mode="lines",
        name="less time or less memory than any other",
        line={"color": palette.MARK, "width": 1.5, "shape": "hv"},
        hoverinfo="skip",
    )


def _label(best: Candidate, seconds: Sequence[float], sizes: Sequence[float]) -> dict[str, Any]:
    """Return the name and the time of the best candidate, beside its point and inside of the plot."""
    right = _seconds(best) > (min(seconds) + max(seconds)) / 2
    least, most, own = (math.log(size) for size in (min(sizes), max(sizes), _bytes(best)))
    # Few layouts are as fast as the best one and need more memory.
    above = own < most - 0.15 * (most - least) or least == most
    return frame.annotation(
        labels.escape(f"{name_of(best)}, {seconds_text(_seconds(best))}"),
        _seconds(best),
        math.log10(_bytes(best)),
        xanchor="right" if right else "left",
        xshift=10 if right else -10,
        yanchor="bottom" if above else "top",
        yshift=12 if above else -12,
        font={"size": frame.NOTE_PX, "color": palette.GOOD},
    )


def _points(name: str, own: Sequence[Candidate], marker: dict[str, object]) -> go.Scatter:
    return go.Scatter(
        x=[_seconds(candidate) for candidate in own],
        y=[_bytes(candidate) for candidate in own],
        mode="markers",
        name=name,
        marker={"line": {"width": 1.5}, **marker},
        customdata=[_hover(candidate) for candidate in own],
        hovertemplate=frame.HOVER_TEXT,
    )


def _hover(candidate: Candidate) -> str:
    between = ""
    if candidate.low is not None and candidate.high is not None:
        between = f" ({seconds_text(candidate.low)} to {seconds_text(candidate.high)})"
    return frame.hover(
        [
            name_of(candidate),
            f"{seconds_text(_seconds(candidate))}{between}",
            f"{bytes_text(int(_bytes(candidate)))} on a device",
        ]
    )


def _capacity(
    result: SearchResult, near: Sequence[Candidate]
) -> tuple[list[float], list[dict[str, object]], list[str]]:
    """Return the memory of the chip if it is in the plot, a line at it, and a note about it."""
    if result.chip is None or result.chip not in hardware.CHIPS:
        return [], [], []
    chip = hardware.CHIPS[result.chip]
    capacity = capacity_of(chip)
    note = f"{chip.title} has {bytes_text(capacity)}"
    if max(_bytes(candidate) for candidate in near) * _MOST_CAPACITY < capacity:
        return [], [], [note]
    style = {"color": palette.BAD, "width": 2, "dash": "dash"}
    line = frame.line(0, 1, capacity, capacity, **style) | {"xref": "paper"}
    return [float(capacity)], [line], [f"{note}, the dashed line"]


def _seconds(candidate: Candidate) -> float:
    return candidate.step or 0.0


def _bytes(candidate: Candidate) -> float:
    """Return the peak or its estimate, or else the lower bound that the state and the batch need."""
    return float(candidate.peak_bytes or candidate.state_bytes or 0)
