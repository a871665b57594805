"""Median, interval and range of measured times."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.core.statistics import statistics, statistics_text


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=40))
def test_the_interval_agrees_with_numpy(numbers: list[float]) -> None:
    figures = statistics(numbers)
    assert figures is not None
    assert (figures.count, figures.least, figures.most) == (len(numbers), min(numbers), max(numbers))
    interval = (figures.low, figures.median, figures.high)
    assert interval == pytest.approx(np.percentile(numbers, (10, 50, 90)), rel=1e-9)


def test_no_numbers_have_no_statistics() -> None:
    assert statistics([]) is None


def test_statistics_as_text() -> None:
    figures = statistics([0.0703] * 20)
    assert figures is not None
    assert statistics_text(figures) == "median 70.3 ms, 80% of 20 steps 70.3 ms – 70.3 ms"
