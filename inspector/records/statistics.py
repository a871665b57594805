"""Sums and groups of values, and the distribution of measured times: median, interval of 80%, range."""

import statistics as stdlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from inspector.text.formatting import seconds_text

Key = TypeVar("Key")
Value = TypeVar("Value")


def by_key(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values of each key, in the order of the pairs."""
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


# With fewer numbers, none of them is the one of ten that is below or above the interval.
LEAST_FOR_SHARE = 10


@dataclass(frozen=True)
class Statistics:
    """The distribution of some numbers.

    `low` and `high` have 10% of the numbers below and above them. They are interpolated linearly, as NumPy
    does by default. Of fewer than `LEAST_FOR_SHARE` numbers, they are the least and the most.
    """

    count: int
    least: float
    low: float
    median: float
    high: float
    most: float


def statistics(numbers: Sequence[float]) -> Statistics | None:
    """Return median, interval and range, or None if there are no numbers."""
    if not numbers:
        return None
    ordered = sorted(numbers)
    low, high = ordered[0], ordered[-1]
    if len(ordered) >= LEAST_FOR_SHARE:
        low, *_, high = stdlib.quantiles(ordered, n=10, method="inclusive")
    return Statistics(len(ordered), ordered[0], low, stdlib.median(ordered), high, ordered[-1])


def statistics_text(measured: Statistics) -> str:
    """Return median, interval and count: `median 70.3 ms, 80% of 20 steps 69.1 ms – 72.4 ms`.

    >>> statistics_text(statistics([0.07, 0.08, 0.075]))
    'median 75.0 ms, 3 steps 70.0 ms – 80.0 ms'
    """
    low, median, high = map(seconds_text, (measured.low, measured.median, measured.high))
    if measured.count < 2:
        return f"{median}, 1 step"
    share = "80% of " if measured.count >= LEAST_FOR_SHARE else ""
    return f"median {median}, {share}{measured.count} steps {low} – {high}"


def sum_known(numbers: Iterable[int | None]) -> int | None:
    """Return the sum; None if a number is unknown."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total
