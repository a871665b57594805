"""The candidates of a search: time of a step against memory of a device, one point for each.

The legend names the best one. A line joins those that no other one beats in both.
"""

import math
from collections.abc import Collection, Iterator, Sequence

import plotly.graph_objects as go

from inspector.figures import frame, labels, palette, ticks
from inspector.machines import hardware
from inspector.prediction.memory import capacity_of
from inspector.search.answer import SearchAnswer, answer_of, name_of, round_of
from inspector.search.result import Candidate, SearchResult
from inspector.text.formatting import bytes_text, counted, seconds_text

MOST_POINTS = 1500  # partitioned candidates that are drawn, the fastest first: 40 kB
_PLOT_PX = 320
_LEFT_PX, _RIGHT_PX, _BOTTOM_PX = 74, 14, 54
_SLOWEST = 3.0  # candidates slower than this many times the fastest are left out
_MOST_CAPACITY = 30.0  # times the largest memory up to which the line of the chip is in the plot
_ALIKE = "cannot be told apart from the best"
_MARKERS: dict[str, dict[str, object]] = {  # of each kind of candidates, in the order of the legend
    "partitioned": {"symbol": "circle-open", "size": 6, "color": palette.MARK},
    "partitioned, does not fit": {"symbol": "x-thin-open", "size": 6, "color": palette.MARK},
    "compiled": {"symbol": "circle", "size": 11, "color": palette.MARK},
    "compiled, does not fit": {"symbol": "x", "size": 10, "color": palette.BAD},
    _ALIKE: {"symbol": "circle", "size": 8, "color": palette.REMAINING},
}


def search_front(result: SearchResult, *, width_px: int = 640) -> go.Figure | None:
    """Return the scatter plot; None without a candidate whose time and memory are known."""
    known = [
        candidate
        for candidate in result.candidates
        if candidate.stage != "rejected" and _seconds(candidate) and _bytes(candidate)
    ]
    if not known:
        return None
    best, current = result.best_candidate, result.current
    most_seconds = _SLOWEST * min(map(_seconds, known))
    near = [
        candidate
        for candidate in known
        if _seconds(candidate) <= most_seconds or candidate is best or candidate is current
    ]
    traces = [*_frontier(near), *_marks(near, answer_of(result)), *_rings(near, best, current)]
    capacity, shapes, notes = _capacity(result, near)
    if left_out := len(known) - len(near):
        notes.append(f"{counted(left_out, 'slower candidate')} left out")
    seconds = [_seconds(candidate) for candidate in near]
    sizes = [*map(_bytes, near), *capacity]
    predicted = not any(candidate.measured for candidate in near)
    return frame.plot(
        traces,
        width_px,
        _PLOT_PX,
        heading=f"Time of {round_of(result)} against memory of a device",
        notes=notes,
        left=_LEFT_PX,
        right=_RIGHT_PX,
        **frame.legend_below([str(trace.name) for trace in traces], width_px, _BOTTOM_PX, _PLOT_PX),
        shapes=shapes,
        xaxis=frame.axis(
            **ticks.linear(min(seconds), max(seconds), seconds_text),
            title=frame.axis_title(
                f"predicted time of {round_of(result)}"
                if predicted
                else f"time of {round_of(result)}, predicted or measured"
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


def _marks(near: Sequence[Candidate], answer: SearchAnswer | None) -> Iterator[go.Scatter]:
    """Yield a trace for each kind of candidates, with what their memory is."""
    alike = {id(candidate) for candidate in (answer.alike if answer is not None else ())}
    estimated = any(candidate.peak_bytes for candidate in near if candidate.stage == "propagated")
    memory = {
        "partitioned": f"; memory: {'an estimate' if estimated else 'state and batch'}",
        "compiled": "; memory: the compiler's peak",
    }
    for kind, marker in _MARKERS.items():
        own = [candidate for candidate in near if _kind(candidate, alike) == kind][:MOST_POINTS]
        if own:
            yield _points(kind + memory.get(kind, ""), own, marker)


def _kind(candidate: Candidate, alike: Collection[int]) -> str | None:
    """Return the key in `_MARKERS`; None for a candidate that was only planned."""
    if id(candidate) in alike:
        return _ALIKE
    stage = {"propagated": "partitioned", "compiled": "compiled"}.get(candidate.stage)
    return f"{stage}, does not fit" if stage is not None and candidate.fits is False else stage


def _rings(
    near: Sequence[Candidate], best: Candidate | None, current: Candidate | None
) -> Iterator[go.Scatter]:
    """Yield the rings around the best candidate and around the layout from which the search began."""
    for name, candidate, symbol in (("best", best, "star-open"), ("current", current, "diamond-tall-open")):
        if candidate is not None and candidate in near:
            named = f"{name}: {labels.escape(name_of(candidate))}, {seconds_text(_seconds(candidate))}"
            yield _points(named, [candidate], {"symbol": symbol, "size": 20, "color": palette.GOOD})


def _memory_range(least: float, most: float) -> tuple[float, float]:
    """Return the ends of the axis as powers of ten: the powers of two around all sizes, which have labels."""
    lower, upper = 2.0 ** math.floor(math.log2(least)), 2.0 ** math.ceil(math.log2(most))
    room, of_label = 0.06, 0.01
    return (
        min(math.log10(least) - room, math.log10(lower) - of_label),
        max(math.log10(most) + room, math.log10(upper) + of_label),
    )


def _frontier(near: Sequence[Candidate]) -> Iterator[go.Scatter]:
    """Yield the line through the candidates that no other one beats in both time and memory, if several."""
    points = sorted((_seconds(candidate), _bytes(candidate)) for candidate in near if candidate.pareto)
    if len(points) > 1:
        yield go.Scatter(
            x=[seconds for seconds, _ in points],
            y=[count for _, count in points],
            mode="lines",
            name="less time or less memory than any other",
            line={"color": palette.MARK, "width": 1.5, "shape": "hv"},
            hoverinfo="skip",
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
