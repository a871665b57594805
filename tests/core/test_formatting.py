"""Quantities in words."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.core.formatting import bytes_text, counted, seconds_text, times_text

UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}


@given(st.integers(0, 2**59))
def test_bytes_read_back_to_within_the_digit_that_is_shown(count: int) -> None:
    number, unit = bytes_text(count).split()
    assert float(number) * UNITS[unit] == pytest.approx(count, abs=0.0501 * UNITS[unit], rel=0.006)
    assert len(re.sub(r"[.]", "", number).lstrip("0")) <= 4


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1_048_576, "1.0 MiB"), (None, "unknown")],
)
def test_bytes_at_the_edges(count: int | None, words: str) -> None:
    assert bytes_text(count) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0000123, "12.3 µs"),
        (0.0701, "70.1 ms"),
        (3.0, "3.00 s"),
        (150.0, "2 min 30 s"),
        (None, "unknown"),
    ],
)
def test_seconds(seconds: float | None, words: str) -> None:
    assert seconds_text(seconds) == words


def test_counted() -> None:
    assert (counted(1, "device"), counted(8, "device")) == ("1 device", "8 devices")


def test_times_have_three_figures_or_all() -> None:
    assert [times_text(one) for one in (None, 1, 2.5, 999.4, 999.6, 8230.4, 131072)] == [
        *("unknown", "1", "2.5", "999", "1,000", "8,230", "131,072")
    ]
