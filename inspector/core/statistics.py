"""The distribution of measured times: median, quartiles and range."""

from __future__ import annotations

import statistics as stdlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from inspector.core.formatting import seconds_text


@dataclass(frozen=True)
class Statistics:
    """The distribution of some numbers. Quartiles are interpolated linearly, as NumPy does by default."""

    count: int
    least: float
    lower_quartile: float
    median: float
    upper_quartile: float
    most: float


def statistics(numbers: Sequence[float]) -> Statistics | None:
    """Return median, quartiles and range, or None if there are no numbers."""
    if not numbers:
        return None
    ordered = sorted(numbers)
    # Before Python 3.13 `quantiles` refuses a single number.
    lower, median, upper = (
        stdlib.quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else ordered * 3
    )
    return Statistics(len(ordered), ordered[0], lower, median, upper, ordered[-1])


def statistics_text(measured: Statistics) -> str:
    """Return median, quartiles and count: `median 70.3 ms (69.1 ms – 72.4 ms), n = 20`."""
    lower, median, upper = map(
        seconds_text, (measured.lower_quartile, measured.median, measured.upper_quartile)
    )
    return f"median {median} ({lower} – {upper}), n = {measured.count}"


def sum_known(numbers: Iterable[int | None]) -> int | None:
    """Return the sum; None if a number is unknown."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total
