"""The figure of paired times."""

from __future__ import annotations

import math

import numpy as np
import pytest

from inspector.compare import paired_times
from inspector.compare.paired_times import PairedTimes
from inspector.figures.paired_times import ratio_intervals
from inspector.figures.timings import EMULATED
from tests.compare.paired_times.test_paired_times import times_of
from tests.figures import drawn

NAMES = ["base", "<b>x</b> $y$", "third"]


@pytest.fixture
def times() -> PairedTimes:
    draw = np.random.default_rng(3)
    seconds = draw.lognormal(0, 0.1, (2, 3, 15))
    seconds[:, 1] *= 2
    seconds[0, 2, 4] = 1000.0
    return times_of(seconds)


@pytest.mark.parametrize("width", [340, 480, 960])
def test_intervals_medians_and_rounds_match_the_record(times: PairedTimes, width: int) -> None:
    figure = ratio_intervals(times, NAMES, 0, width_px=width)
    rounds, *intervals = drawn.traces(figure, "scatter")
    ratios = [r for name in paired_times.PROGRAMS for r in paired_times.ratios(times, 0, name)]
    assert len(intervals) == len(ratios) == 4
    for trace, ratio in zip(intervals, ratios, strict=True):
        assert np.allclose(trace["x"], [ratio.interval.low, ratio.median, ratio.interval.high])
    assert np.allclose(sorted(rounds["x"]), sorted(r for one in ratios for r in one.rounds))
    low, high = figure.layout.xaxis.range
    assert low < 0 < high  # the baseline's 1 is in sight
    for ratio in ratios:
        assert low < math.log10(ratio.interval.low) and math.log10(ratio.interval.high) < high
    ticks = figure.layout.xaxis.tickvals
    assert 1 in ticks and all(low <= math.log10(tick) <= high for tick in ticks)
    words = [note.text for note in figure.layout.annotations]
    assert any(word.startswith("worse<br>") for word in words)
    assert any("not distinguishable<br>" in word for word in words)
    outside = sum(not low <= math.log10(r) <= high for one in ratios for r in one.rounds)
    assert outside > 1 and f"{outside} dots outside the axis" in words[0].replace("<br>", " ")
    assert EMULATED in figure.layout.title.text


def test_names_are_text(times: PairedTimes) -> None:
    text = str(drawn.spec(ratio_intervals(times, NAMES, 0, width_px=960)))
    assert "<b>x</b>" not in text and "$y$" not in text
    assert "&lt;b&gt;x&lt;/b&gt; &#36;y&#36;" in text


def test_no_ratios_is_no_figure(times: PairedTimes) -> None:
    alone = paired_times.chosen(times, [0, None], "why")
    assert ratio_intervals(alone, NAMES, 0) is None
    nobody = paired_times.chosen(times, [None, None], "why")
    assert ratio_intervals(nobody, NAMES, 0) is None
