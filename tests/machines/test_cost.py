"""Roofline times of one chip, and decimal units."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.machines.hardware import CHIPS, chip, compute_time, critical_intensity, hbm_time, si_text
from inspector.text.errors import InvalidInput

chips = st.sampled_from(tuple(CHIPS.values()))


def test_two_devices_share_a_chip() -> None:
    v3 = chip("v3")
    assert compute_time(1.4e14, v3, "bfloat16").seconds == pytest.approx(2)
    assert hbm_time(9e11, v3).seconds == pytest.approx(2)


@given(chips, st.floats(1, 1e20))
def test_formula_evaluates_to_the_seconds(on, count: float) -> None:
    for estimate in (compute_time(count, on, "float32"), hbm_time(count, on)):
        numerator, denominator = map(_quantity, estimate.formula.split(" ÷ "))
        assert numerator / denominator == pytest.approx(estimate.seconds, rel=0.012)


def _quantity(text: str) -> float:
    match = re.match(r"([\d.]+) ([kMGTPEZY]?)(FLOP|B)", text)
    assert match is not None, text
    return float(match[1]) * 1000 ** (" kMGTPEZY".index(match[2] or " "))


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "1", None, True])
def test_invalid_amounts(value) -> None:
    for call in (
        lambda: compute_time(value, chip("v5p"), "bfloat16"),
        lambda: hbm_time(value, chip("v5p")),
        lambda: critical_intensity(1e12, value),
    ):
        with pytest.raises(InvalidInput):
            call()


@pytest.mark.parametrize(("name", "dtype"), [("v5p", "float64"), ("a100", "complex64")])
def test_type_without_a_peak(name: str, dtype: str) -> None:
    with pytest.raises(InvalidInput, match=dtype):
        compute_time(1.0, chip(name), dtype)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (12, "12 B"),
        (0.5625, "0.56 B"),
        (999.6, "1.00 kB"),
        (33_600_000_000, "33.6 GB"),
        (9.2e14, "920 TB"),
        (1e30, "1000000 YB"),
    ],
)
def test_si_text(value: float, text: str) -> None:
    assert si_text(value, "B") == text
