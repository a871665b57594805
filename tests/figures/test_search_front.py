"""The picture of a search: which candidates it shows, and what its axes and marks mean."""

from __future__ import annotations

from typing import Any

import pytest

from inspector import layout as layouts
from inspector.figures.search_front import search_front
from inspector.search.result import Candidate, Counts, SearchResult

LAYOUT = layouts.parse({"mesh": "8", "axes": "data", "rules": "batch=data"}).unwrap().to_json()


def candidate(stage: Any, seconds: float, **fields: Any) -> Candidate:
    known = {"peak_bytes": 2**20, "state_bytes": 2**19} | fields
    return Candidate(stage, seconds=seconds, layout=LAYOUT, **known)


def points(*candidates: Candidate, best: int | None) -> tuple[Any, dict[str, list[float]]]:
    """Return the figure, and the seconds of the points by the name of their mark."""
    search_result = SearchResult("cpu", None, "now", Counts(), candidates, best)
    figure = search_front(search_result)
    assert figure is not None
    return figure, {trace.name.split(";")[0].split(":")[0]: list(trace.x) for trace in figure.data}


def test_the_best_and_the_current_layout_are_shown_however_slow_they_are() -> None:
    best, current = candidate("compiled", 9.0), candidate("propagated", 20.0, current=True)
    figure, seconds = points(
        best, candidate("propagated", 1.0), candidate("propagated", 3.5), current, best=0
    )
    assert seconds["best"] == [9.0] and seconds["current"] == [20.0]
    assert seconds["partitioned"] == [1.0, 20.0] and seconds["compiled"] == [9.0]
    assert any("1 slower candidate" in annotation.text for annotation in figure.layout.annotations)


@pytest.mark.parametrize("measured", [None, 2.0])
def test_measured_seconds_are_drawn_and_named(measured: float | None) -> None:
    figure, seconds = points(candidate("compiled", 1.0, measured=measured), best=0)
    assert seconds["compiled"] == [measured or 1.0]
    assert ("measured" in figure.layout.xaxis.title.text) == (measured is not None)


@pytest.mark.parametrize("peak", [None, 2**20])
def test_memory_before_a_compile_is_an_estimate_or_the_state(peak: int | None) -> None:
    figure, _ = points(candidate("propagated", 1.0, peak_bytes=peak), best=None)
    (name,) = [trace.name for trace in figure.data]
    assert ("estimate" in name) == (peak is not None)
    assert figure.data[0].y[0] == (peak or 2**19)


def test_the_best_has_its_name_and_a_line_joins_those_that_none_beats() -> None:
    fast = candidate("propagated", 1.0, pareto=True, peak_bytes=2**24)
    small = candidate("propagated", 2.0, pareto=True)
    figure, seconds = points(fast, candidate("propagated", 2.5), small, best=0)
    assert seconds["less time or less memory than any other"] == [1.0, 2.0]
    assert "best: data 8, 1.00 s" in [trace.name for trace in figure.data]
    # No text is between the points.
    assert not [text for text in figure.layout.annotations if text.xref == "x" or text.yref == "y"]


@pytest.mark.parametrize(
    ("chip", "peak", "drawn"), [("v5e", 2**31, True), ("v5e", 2**20, False), (None, 1, False)]
)
def test_the_memory_of_the_chip_is_a_line_unless_it_is_far_from_all_points(chip, peak, drawn) -> None:
    search_result = SearchResult(
        "cpu", chip, "now", Counts(), (candidate("propagated", 1.0, peak_bytes=peak),), None
    )
    figure = search_front(search_result)
    assert figure is not None and bool(figure.layout.shapes) == drawn
    assert ("dashed" in str(figure.layout.annotations)) == drawn


@pytest.mark.parametrize(
    "sizes", [(193 * 2**10, 196 * 2**10), (769 * 2**10, 1.5 * 2**20), (3, 3), (2**20, 2**34)]
)
def test_two_labels_enclose_the_memory_of_all_candidates(sizes: tuple[float, float]) -> None:
    every = tuple(candidate("propagated", 1.0, peak_bytes=int(size)) for size in sizes)
    figure = search_front(SearchResult("cpu", None, "now", Counts(), every, None))
    assert figure is not None
    axis = figure.layout.yaxis
    assert axis.tickvals[0] <= min(sizes) and max(sizes) <= axis.tickvals[-1]
    assert len(axis.tickvals) > 1
    low, high = (10**end for end in axis.range)
    assert low < axis.tickvals[0] and axis.tickvals[-1] < high
