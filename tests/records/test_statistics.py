"""Median, interval and range of measured times."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.records.statistics import LEAST_FOR_SHARE, statistics, statistics_text


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=40))
def test_the_interval_agrees_with_numpy(numbers: list[float]) -> None:
    figures = statistics(numbers)
    assert figures is not None
    assert (figures.count, figures.least, figures.most) == (len(numbers), min(numbers), max(numbers))
    interval = (figures.low, figures.median, figures.high)
    ends = (10, 50, 90) if len(numbers) >= LEAST_FOR_SHARE else (0, 50, 100)
    assert interval == pytest.approx(np.percentile(numbers, ends), rel=1e-9)


def test_an_interval_of_80_percent_needs_a_number_on_each_side() -> None:
    """Ten numbers are the fewest of which one of ten is a number."""
    for count in (LEAST_FOR_SHARE - 1, LEAST_FOR_SHARE):
        figures = statistics([float(number) for number in range(count)])
        assert figures is not None
        outside = sum(not figures.low <= number <= figures.high for number in range(count))
        assert outside == (2 if count >= LEAST_FOR_SHARE else 0)
        assert ("80%" in statistics_text(figures)) == (outside > 0)


def test_no_numbers_have_no_statistics() -> None:
    assert statistics([]) is None


def test_statistics_as_text() -> None:
    figures = statistics([0.0703] * 20)
    assert figures is not None
    assert statistics_text(figures) == "median 70.3 ms, 80% of 20 steps 70.3 ms – 70.3 ms"
