"""Ratios of layouts timed together, with an interval around each median.

In each round every layout runs once, and its time is divided by the baseline's time in that round. What slows
the machine down for a while slows both. The interval uses order statistics, so it needs no assumption about
the distribution of the times, only that rounds are independent.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from inspector.compare.paired_times.times import PairedTimes
from inspector.compare.ratio import MEASURED, answered
from inspector.core.assessment import Answer

COVERAGE = 0.95


class Interval(NamedTuple):
    """An interval that contains the true median with probability `coverage`."""

    low: float
    high: float
    coverage: float


@dataclass(frozen=True)
class Ratio:
    """The time of a layout relative to the baseline.

    rounds: the ratio of each round. median: the median of these.
    seconds, baseline_seconds: medians over all rounds.
    """

    layout: int
    program: str
    rounds: tuple[float, ...]
    median: float
    interval: Interval
    seconds: float
    baseline_seconds: float

    @property
    def verdict(self) -> Answer:
        """The answer of this interval, as for all ratios of steps."""
        return answered(self.median, self.interval.low, self.interval.high, MEASURED).answer


def interval_of_median(values: Sequence[float], coverage: float = COVERAGE) -> Interval:
    """Return the k-th smallest and the k-th largest value, with the largest k that the coverage allows.

    The median of any distribution is between the two with probability 1 − 2·P(Binomial(n, ½) < k) (Conover,
    Practical Nonparametric Statistics, section 3.2). With too few values, return their range.

    Raises:
      ValueError: if there are no values.
    """
    if not values:
        raise ValueError("there are no values to take an interval of")
    ordered = sorted(values)
    count = len(ordered)
    below = 1  # outcomes of 2**count with fewer than k values below the median
    k, reached = 1, 1 - 2 * below / 2**count
    while k < (count + 1) // 2:
        below += math.comb(count, k)
        covered = 1 - 2 * below / 2**count
        if covered < coverage:
            break
        k, reached = k + 1, covered
    return Interval(ordered[k - 1], ordered[count - k], max(reached, 0.0))


def base_of(times: PairedTimes, baseline: int) -> int | None:
    """Return the layout to divide by: the baseline, or else the first layout that was timed."""
    return baseline if baseline in times.timed else next(iter(times.timed), None)


def ratios(times: PairedTimes, baseline: int, program: str) -> tuple[Ratio, ...]:
    """Return the ratio of every other layout that ran this program, or none if the baseline did not."""
    base = times.seconds(baseline, program)
    found = []
    for layout in times.timed:
        own = times.seconds(layout, program)
        if layout == baseline or not own or not base:
            continue
        each = tuple(time / reference for time, reference in zip(own, base, strict=True))
        found.append(
            Ratio(
                layout,
                program,
                each,
                statistics.median(each),
                interval_of_median(each),
                statistics.median(own),
                statistics.median(base),
            )
        )
    return tuple(found)
