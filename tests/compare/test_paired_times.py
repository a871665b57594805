"""Ratios, their intervals and the order of runs, counted a second way."""

from __future__ import annotations

import itertools
import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.compare import paired_times
from inspector.compare.paired_times import PROGRAMS, PairedTimes, Turn, Untimed
from inspector.compare.ratio import of_rounds
from inspector.text.errors import InvalidInput

SECONDS = st.floats(1e-6, 100.0)


def times_of(seconds: np.ndarray, programs: tuple[str, ...] = PROGRAMS) -> PairedTimes:
    """seconds: (program, layout, round)."""
    _, layouts, rounds = seconds.shape
    order = paired_times.orders(range(layouts), rounds)
    turns = [
        Turn(number, layout, name, float(seconds[place, layout, number]))
        for number in range(rounds)
        for place, name in enumerate(programs)
        for layout in order[number]
    ]
    return PairedTimes(tuple(turns), (), layouts, rounds, devices=8)


@given(st.integers(1, 8), st.integers(1, 50), st.integers(0, 5))
def test_each_layout_has_each_position_equally_often(layouts: int, rounds: int, seed: int) -> None:
    order = paired_times.orders(range(10, 10 + layouts), rounds, seed)
    assert len(order) == rounds
    assert all(sorted(one) == list(range(10, 10 + layouts)) for one in order)
    for place in range(layouts):
        counts = Counter(one[place] for one in order)
        assert max(counts.values()) - min(counts[one] for one in order[0]) <= 1
    assert order == paired_times.orders(range(10, 10 + layouts), rounds, seed)


def test_the_predecessor_of_a_layout_varies() -> None:
    order = paired_times.orders(range(4), 50)
    follows = Counter(pair for one in order for pair in itertools.pairwise(one))
    assert len(follows) == 12  # every ordered pair of four


@given(st.lists(SECONDS, min_size=12, max_size=12), st.integers(0, 1))
def test_ratios_are_computed_per_round(drawn: list[float], baseline: int) -> None:
    seconds = np.array(drawn).reshape(1, 2, 6)
    times = times_of(seconds, ("train_step",))
    other = 1 - baseline
    assert list(paired_times.ratios(times, baseline, "train_step")) == [other]
    ratio = paired_times.ratios(times, baseline, "train_step")[other]
    each = np.array(drawn).reshape(2, 6)[other] / np.array(drawn).reshape(2, 6)[baseline]
    assert np.isclose(ratio.value, np.median(each))
    # Of six, the whole range: each half has all of them with probability 1/64.
    assert np.allclose((ratio.low, ratio.high), (each.min(), each.max()))
    verdict = "worse" if each.min() > 1 else "better" if each.max() < 1 else "not distinguishable"
    if abs(ratio.value - 1) < 0.01:
        verdict = "not distinguishable"
    assert ratio.answer == verdict
    assert paired_times.ratios(times, baseline, "apply") == {}


@pytest.mark.parametrize("count", [6, 9, 15, 16, 30, 50])
def test_the_interval_has_its_coverage(count: int) -> None:
    draw = np.random.default_rng(20240229)
    trials = 4000
    for sample, median in (
        (draw.exponential(size=(trials, count)), np.log(2)),
        (np.exp(draw.standard_cauchy(size=(trials, count)).clip(-700, 700)), 1.0),  # has no mean at all
    ):
        ratios = [of_rounds([1.0] * count, list(row)) for row in sample]
        hits = np.mean([one.low <= median <= one.high for one in ratios])
        # Five standard deviations of a share of 4,000.
        assert hits > 0.95 - 5 * np.sqrt(0.95 * 0.05 / trials)
    # It is the shortest such: one step further in covers less than 95%.
    ordered = np.sort(sample[0])
    k = int(np.searchsorted(ordered, ratios[0].low))
    heads = draw.binomial(count, 0.5, size=200_000)
    assert np.mean((heads > k + 1) & (heads < count - k - 1)) < 0.95


def test_times_survive_json() -> None:
    times = times_of(np.random.default_rng(1).random((2, 3, 7)) + 0.1)
    plain = json.loads(json.dumps(times.to_json()))
    assert paired_times.from_json(plain) == times


@pytest.mark.parametrize(
    "change",
    [
        {"format": "something"},
        {"version": 2},
        {"turns": "none"},
    ],
)
def test_invalid_times_are_rejected(change: dict) -> None:
    plain = times_of(np.ones((2, 2, 6))).to_json() | change
    with pytest.raises(InvalidInput):
        paired_times.from_json(plain)


def test_times_follow_moved_pins() -> None:
    seconds = np.random.default_rng(2).random((2, 3, 6)) + 0.1
    times = times_of(seconds)
    moved = paired_times.chosen(times, [2, None, 0], "later")
    assert moved.layouts == 3 and moved.timed == (0, 2)
    assert moved.seconds(0, "apply") == times.seconds(2, "apply")
    assert moved.untimed == (Untimed(1, "later"),)
    ratio = paired_times.ratios(moved, 0, "train_step")[2]
    assert np.isclose(ratio.value, np.median(seconds[0, 0] / seconds[0, 2]))


def test_without_a_timed_baseline_the_first_layout_is_used() -> None:
    times = paired_times.chosen(times_of(np.ones((2, 3, 6))), [None, 0, 1], "why")
    assert paired_times.base_of(times, 0) == 1
    assert paired_times.base_of(times, 2) == 2
    assert paired_times.ratios(times, 0, "apply") == {}
    assert paired_times.base_of(PairedTimes((), (), 2, 6, 8), 0) is None
