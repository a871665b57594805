"""The timeline of a step: short operations are merged into few bars, and a period has each operation."""

from __future__ import annotations

import itertools
import re

import pytest

from inspector.figures.timeline import WHOLE_STEP, timeline, windows
from inspector.machines import hardware
from inspector.prediction.predicted import predicted_in
from tests.figures.drawn import size_bytes, traces
from tests.prediction.schedules import long_step

OPERATIONS = 6_000
FOUND = long_step(OPERATIONS)
PROGRAM = FOUND.program("train_step")
assert PROGRAM is not None
STEP = predicted_in(FOUND, PROGRAM, hardware.chip("v5e")).simulated
assert STEP is not None
MOST_BARS, MOST_BYTES = 1_500, 400_000


def bars(window: tuple[float, float] | None = None) -> list[tuple[float, float, int, object]]:
    """Return start, end, number of operations and what a click passes on, of each bar in order."""
    figure = timeline(STEP, PROGRAM, window)
    assert figure is not None and size_bytes(figure) < MOST_BYTES
    drawn = []
    for trace in traces(figure, "bar"):
        for start, length, (picked, hover) in zip(
            trace["base"], trace["x"], trace["customdata"], strict=True
        ):
            merged = re.match(r"<b>([\d,]+) operations", hover)
            number = int(merged[1].replace(",", "")) if merged else 1
            drawn.append((start, start + length, number, picked))
    return sorted(drawn)


def test_every_operation_is_in_one_of_few_bars() -> None:
    drawn = bars()
    assert len(STEP.spans) > OPERATIONS > 4 * len(drawn) and len(drawn) < MOST_BARS
    assert sum(number for _, _, number, _ in drawn) == len(STEP.spans)
    end = max(span.end for span in STEP.spans)
    assert drawn[0][0] == 0 and drawn[-1][1] == pytest.approx(end)
    for (_, before, _, _), (start, _, _, _) in itertools.pairwise(drawn):
        assert start == pytest.approx(before), "the core is never idle in this step"
    for start, stop, number, picked in drawn:
        if number == 1:
            assert picked in {f"{span.computation} {span.position}" for span in STEP.spans}
        else:
            assert picked == pytest.approx([start, stop])


@pytest.mark.parametrize("share", [0.1, 0.001])
def test_a_period_has_each_operation_that_can_be_seen_in_it(share: float) -> None:
    end = max(span.end for span in STEP.spans)
    low, high = 0.4 * end, (0.4 + share) * end
    inside = {
        f"{span.computation} {span.position}"
        for span in STEP.spans
        if span.start < high and span.end > low and span.end - span.start > (high - low) / 300
    }
    drawn = bars((low, high))
    assert inside and inside <= {picked for _, _, number, picked in drawn if number == 1}
    assert len(drawn) < MOST_BARS
    assert sum(number for _, _, number, _ in drawn) == len(STEP.spans)


def test_the_periods_are_the_whole_step_and_an_iteration_of_its_loop() -> None:
    (whole, period), (_, (start, stop)) = windows(STEP, PROGRAM).items()
    assert whole == WHOLE_STEP and period == (0.0, max(span.end for span in STEP.spans))
    body = [span for span in STEP.spans if span.computation == "body"]
    assert (start, stop) == pytest.approx((body[0].start, body[-1].end))
