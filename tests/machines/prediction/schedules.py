"""Schedules of small programs."""

from __future__ import annotations

from inspector.core.snapshot import Schedule, ScheduledComputation, ScheduledOperation


def schedule(*operations: ScheduledOperation, **others: tuple[ScheduledOperation, ...]) -> Schedule:
    """Return a schedule with these operations in `main`, and `others` in computations of their own."""
    computations = {"main": operations, **others}
    return Schedule(
        "main", tuple(ScheduledComputation(name, each) for name, each in computations.items())
    )
