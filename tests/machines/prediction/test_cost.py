"""Times of one chip: FLOPs over peaks, bytes over bandwidth, and the batch at which both are equal."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.core.errors import InvalidInput
from inspector.machines.hardware import CHIPS, chip
from inspector.machines.prediction.cost import (
    compute_time,
    critical_intensity,
    critical_rows,
    hbm_time,
    matmul_flops,
    matmul_time,
    si_text,
)

sizes = st.integers(1, 10**6)
chips = st.sampled_from(tuple(CHIPS.values()))


@given(chips, sizes, sizes, sizes)
def test_a_matmul_takes_the_longer_of_both_bounds(on, rows, contracted, columns) -> None:
    flops = matmul_flops(rows, contracted, columns)
    assert flops == 2 * rows * contracted * columns
    moved = 2 * (rows * contracted + contracted * columns + rows * columns)
    expected = max(compute_time(flops, on, "bfloat16").seconds, hbm_time(moved, on).seconds)
    found = matmul_time(rows, contracted, columns, on, "bfloat16", 2)
    assert found.seconds == pytest.approx(expected)


@given(chips, st.integers(64, 10**5), st.integers(64, 10**5))
def test_at_the_critical_batch_both_bounds_are_equal(on, contracted, columns) -> None:
    peak = on.peak("bfloat16").flops_per_second
    bandwidth = on.hbm_bytes_per_second_per_device
    rows = critical_rows(contracted, columns, 2, peak, bandwidth)
    if math.isinf(rows):  # even without the weights, its activations take longer
        assert 2 / peak <= 2 * (1 / contracted + 1 / columns) / bandwidth
        return
    moved = 2 * (rows * contracted + contracted * columns + rows * columns)
    assert 2 * rows * contracted * columns / peak == pytest.approx(moved / bandwidth)
    # Infinite matrices give the batch of large ones.
    assert critical_rows(math.inf, math.inf, 2, peak, bandwidth) <= rows
    assert critical_rows(math.inf, math.inf, 2, peak, bandwidth) == pytest.approx(
        critical_intensity(peak, bandwidth)
    )


def test_two_devices_of_a_chip_have_half_of_it_each() -> None:
    v3 = chip("v3")
    assert compute_time(1.4e14, v3, "bfloat16").seconds == pytest.approx(2)
    assert hbm_time(9e11, v3).seconds == pytest.approx(2)


@given(chips, st.floats(1, 1e20))
def test_a_formula_gives_its_number(on, count: float) -> None:
    """What stands in the text, rounded to three figures, comes out as the seconds."""
    for found in (compute_time(count, on, "float32"), hbm_time(count, on)):
        numerator, denominator = map(_quantity, found.formula.split(" ÷ "))
        assert numerator / denominator == pytest.approx(found.seconds, rel=0.012)


def _quantity(text: str) -> float:
    found = re.match(r"([\d.]+) ([kMGTPEZY]?)(FLOP|B)", text)
    assert found is not None, text
    return float(found[1]) * 1000 ** (" kMGTPEZY".index(found[2] or " "))


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "1", None, True])
def test_nonsense_is_refused(value) -> None:
    for call in (
        lambda: compute_time(value, chip("v5p"), "bfloat16"),
        lambda: hbm_time(value, chip("v5p")),
        lambda: critical_intensity(1e12, value),
    ):
        with pytest.raises(InvalidInput):
            call()


@pytest.mark.parametrize(("name", "dtype"), [("v5p", "float64"), ("a100", "float8_e4m3fn")])
def test_a_type_without_a_peak_is_refused_by_name(name: str, dtype: str) -> None:
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
def test_decimal_quantities(value: float, text: str) -> None:
    assert si_text(value, "B") == text
