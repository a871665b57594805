"""The candidates of a search: time of a step against memory of a device, one point for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import plotly.graph_objects as go

from inspector.compare.search.result import Candidate, SearchResult, layout_of
from inspector.core.formatting import bytes_text, counted, mesh_sizes_text, seconds_text
from inspector.figures import frame, palette, ticks
from inspector.machines import hardware
from inspector.machines.prediction.memory import capacity_of

MOST_POINTS = 1500  # propagated candidates that are drawn, the fastest first: 40 kB
_PLOT_PX = 320
_LEFT_PX, _RIGHT_PX, _BOTTOM_PX = 74, 14, 54
_SLOWEST = 3.0  # candidates slower than this many times the fastest are left out


def search_front(found: SearchResult, *, width_px: int = 640) -> go.Figure | None:
    """Return the scatter plot; None without a candidate whose time and memory are known."""
    known = [one for one in found.candidates if _seconds(one) and _bytes(one)]
    known = [one for one in known if one.stage != "rejected"]
    if not known:
        return None
    fastest = min(_seconds(one) for one in known)
    best, current = found.best_candidate, found.current
    near = [
        one for one in known if _seconds(one) <= _SLOWEST * fastest or one is best or one is current
    ]
    estimated = any(one.peak_bytes for one in near if one.stage == "propagated")
    kinds: list[tuple[str, Callable[[Candidate], bool], dict[str, object]]] = [
        (
            f"partitioned; memory: {'an estimate' if estimated else 'state and batch'}",
            lambda one: one.stage == "propagated",
            {"symbol": "circle-open", "size": 6, "color": frame.MIDDLE_GREY},
        ),
        (
            "compiled; memory: the compiler's peak",
            lambda one: one.stage == "compiled" and one.fits is not False,
            {"symbol": "circle", "size": 11, "color": palette.OKABE_ITO[0]},
        ),
        (
            "compiled, does not fit",
            lambda one: one.stage == "compiled" and one.fits is False,
            {"symbol": "x", "size": 10, "color": palette.OKABE_ITO[1]},
        ),
    ]
    traces: list[go.Scatter] = []
    for name, belongs, marker in kinds:
        own = [one for one in near if belongs(one)][:MOST_POINTS]
        if own:
            traces.append(_points(name, own, marker))
    for name, one, symbol in (("best", best, "star"), ("current", current, "diamond-tall")):
        if one is not None and one in near:
            ring = {"symbol": f"{symbol}-open", "size": 20, "color": palette.OKABE_ITO[2]}
            traces.append(_points(name, [one], ring))
    shapes, notes = _capacity(found, near)
    left_out = len(known) - len(near)
    if left_out:
        notes.append(f"{counted(left_out, 'slower candidate')} left out")
    seconds = [_seconds(one) for one in near]
    sizes = [_bytes(one) for one in near]
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
        xaxis=frame.axis(
            **ticks.linear(min(seconds), max(seconds), seconds_text),
            title=frame.axis_title(
                "time of a step, predicted or measured"
                if any(one.measured for one in near)
                else "predicted time of a step"
            ),
            showgrid=True,
        ),
        yaxis=frame.axis(
            **ticks.logarithmic(
                math.log10(min(sizes)) - 0.06,
                math.log10(max(sizes)) + 0.06,
                _PLOT_PX,
                lambda value: bytes_text(int(value)),
                digits=None,
                upright=True,
            ),
            title=frame.axis_title("memory", 4),
            showgrid=True,
        ),
    )


def _points(name: str, own: Sequence[Candidate], marker: dict[str, object]) -> go.Scatter:
    return go.Scatter(
        x=[_seconds(one) for one in own],
        y=[_bytes(one) for one in own],
        mode="markers",
        name=name,
        marker={"line": {"width": 1.5}, **marker},
        customdata=[_hover(one) for one in own],
        hovertemplate=frame.HOVER_TEXT,
    )


def _hover(one: Candidate) -> str:
    layout = layout_of(one)
    between = ""
    if one.low is not None and one.high is not None:
        between = f" ({seconds_text(one.low)} to {seconds_text(one.high)})"
    return frame.hover(
        [
            mesh_sizes_text(layout.axis_names, layout.mesh_shape),
            f"{seconds_text(_seconds(one))}{between}",
            f"{bytes_text(int(_bytes(one)))} on a device",
        ]
    )


def _capacity(
    found: SearchResult, near: Sequence[Candidate]
) -> tuple[list[dict[str, object]], list[str]]:
    """Return a line at the memory of the chip if it is in the plot, and a note about it."""
    if found.chip is None or found.chip not in hardware.CHIPS:
        return [], []
    chip = hardware.CHIPS[found.chip]
    capacity = capacity_of(chip)
    note = f"{chip.title} has {bytes_text(capacity)}"
    if max(_bytes(one) for one in near) < 0.6 * capacity:
        return [], [note]
    style = {"color": palette.OKABE_ITO[1], "width": 2, "dash": "dash"}
    return [frame.line(0, 1, capacity, capacity, **style) | {"xref": "paper"}], [
        f"{note}, the dashed line"
    ]


def _seconds(one: Candidate) -> float:
    return one.step or 0.0


def _bytes(one: Candidate) -> float:
    """Return the peak or its estimate, or else the lower bound that the state and the batch need."""
    return float(one.peak_bytes or one.state_bytes or 0)
