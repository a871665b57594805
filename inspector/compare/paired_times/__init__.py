"""Layouts timed together: who can be, what happened, and what follows."""

from inspector.compare.paired_times.record import (
    DEFAULT_ROUNDS,
    LEAST_ROUNDS,
    MOST_ROUNDS,
    PROGRAMS,
    Interval,
    PairedTimes,
    Ratio,
    Turn,
    Untimed,
    base_of,
    chosen,
    from_json,
    interval_of_median,
    orders,
    ratios,
)

__all__ = [
    "DEFAULT_ROUNDS",
    "LEAST_ROUNDS",
    "MOST_ROUNDS",
    "PROGRAMS",
    "Interval",
    "PairedTimes",
    "Ratio",
    "Turn",
    "Untimed",
    "base_of",
    "chosen",
    "from_json",
    "interval_of_median",
    "orders",
    "ratios",
]
