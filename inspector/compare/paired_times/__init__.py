"""Layouts timed together: which can be, their times, and their ratios."""

from inspector.compare.paired_times.ratios import (
    Interval,
    Ratio,
    base_of,
    interval_of_median,
    ratios,
)
from inspector.compare.paired_times.times import (
    DEFAULT_ROUNDS,
    LEAST_ROUNDS,
    MOST_ROUNDS,
    PROGRAMS,
    PairedTimes,
    Turn,
    Untimed,
    chosen,
    from_json,
    orders,
)
