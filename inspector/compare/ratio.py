"""Which of two steps is shorter, from two assessments: the one rule for comparisons, searches and pages."""

from __future__ import annotations

from dataclasses import dataclass

from inspector.core.assessment import Answer, Assessment
from inspector.machines.prediction.ratios import ratio_interval


@dataclass(frozen=True)
class Ratio:
    """The step of a candidate over that of a baseline.

    Attributes:
      answer: Whether the step of the candidate is shorter: only if the whole interval of the ratio says so.
      value: The ratio.
      low: Lower end of its interval. None if unknown.
      high: Upper end. None if unknown.
      pairs: Number of published pairs behind the interval. 0 for measured steps and bounds.
      reason: What qualifies the answer, as a clause. None if there is nothing to add.
    """

    answer: Answer
    value: float
    low: float | None = None
    high: float | None = None
    pairs: int = 0
    reason: str | None = None


def ratio_of(before: Assessment, after: Assessment, scale: float = 1.0) -> Ratio | None:
    """Return the ratio of two steps with the same evidence; None if one is unknown or only a lower bound.

    Args:
      scale: tokens of the baseline over those of the candidate.
    """
    was, now = before.step, after.step
    if was is None or now is None or "at least" in (was.kind, now.kind) or was.kind != now.kind:
        return None
    value = scale * now.seconds / was.seconds
    if now.kind == "measured" or was.outside or now.outside:
        measured = now.kind == "measured"
        if not (was.low and was.high and now.low and now.high):
            answer: Answer = "not comparable" if measured else "not distinguishable"
            why = "one measured step has no spread" if measured else "their bounds are unknown"
            return Ratio(answer, value, reason=why)
        reason = None if measured else f"only bounds: {now.outside or was.outside}"
        return _answered(value, scale * now.low / was.high, scale * now.high / was.low, 0, reason)
    before_compile = after.evidence is None or after.evidence.before_compile
    interval = ratio_interval(not before_compile)
    if interval is None:
        return None
    return _answered(value, value / interval.factor, value * interval.factor, interval.pairs)


def _answered(value: float, low: float, high: float, pairs: int, reason: str | None = None) -> Ratio:
    answer: Answer = "worse" if low > 1 else "better" if high < 1 else "not distinguishable"
    return Ratio(answer, value, low, high, pairs, reason)
