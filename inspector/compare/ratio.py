"""Which of two steps is shorter, from two assessments: the one rule for comparisons, searches and pages."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from inspector.compare.question import change_text
from inspector.prediction.ratios import (
    KINDS,
    Decider,
    Needs,
    RatioInterval,
    box,
    common,
    decider,
    less_of_everything,
    published,
)
from inspector.records.assessment import LEAST_CHANGE, Answer, Assessment, Verdict
from inspector.records.snapshot import LayoutCost

# The basis of an answer.
LESS, COMMON, PAIRS, MEASURED = (
    "less of everything",
    "common efficiencies",
    "published pairs",
    "measured",
)
_COVERAGE = 0.95  # of the interval of a median
_LONGEST, _EXACT = 1e4, 1.001  # ratios of a bound: the largest that is tried, and where the search of it ends


@dataclass(frozen=True)
class Ratio:
    """The step of a candidate over that of a baseline.

    Attributes:
      answer: Whether the step of the candidate is shorter: only if the whole interval of the ratio says so.
      value: The ratio.
      low: Lower end of its interval. None if unknown.
      high: Upper end. None if unknown.
      pairs: Number of published pairs behind the interval. 0 for others.
      reason: The basis of the answer, or why there is none.
      decider: What decides between two predicted steps that are not distinguishable. None if unknown.
    """

    answer: Answer
    value: float
    low: float | None = None
    high: float | None = None
    pairs: int = 0
    reason: str | None = None
    decider: Decider | None = None


def ratio_of(before: Assessment, after: Assessment, scale: float = 1.0) -> Ratio | None:
    """Return the ratio of two steps with the same evidence; None if one is unknown or only a lower bound.

    Args:
      scale: tokens of the baseline over those of the candidate.
    """
    was, now = before.step, after.step
    if was is None or now is None or "at least" in (was.kind, now.kind) or was.kind != now.kind:
        return None
    value = scale * now.seconds / was.seconds
    if now.kind == "measured":
        if not (was.low and was.high and now.low and now.high):
            return Ratio("not comparable", value, reason="one measured step has no spread")
        ends = scale * now.low / was.high, scale * now.high / was.low
        return answered(value, *ends, MEASURED, "their measured steps overlap")
    checked = None if was.outside or now.outside else _published(after)
    if not was.parts or not now.parts:
        if checked is None:
            return Ratio("not distinguishable", value, reason="the parts of their steps are unknown")
        return _of_pairs(value, checked)
    return of_needs(value, Needs.of(was.parts), Needs.of(now.parts, scale), after.chip or "", checked)


def longer_from(before: Assessment) -> float:
    """Return the seconds from which the bound of a step shows that it is longer than a predicted one.

    The bound is that of a prediction before a compile, whatever the step consists of. Infinite if none shows
    it. Within 0.1%.
    """
    was = before.step
    if was is None or was.kind != "predicted":
        return math.inf
    checked, chip, needs = None if was.outside else _published(before), before.chip or "", Needs.of(was.parts)

    def is_longer(value: float) -> bool:
        if not was.parts:
            return checked is not None and _of_pairs(value, checked).answer == "worse"
        alone = (Needs.alone(kind, value * was.seconds) for kind in KINDS)
        return all(of_needs(value, needs, now, chip, checked).answer == "worse" for now in alone)

    low, high = 1.0, _LONGEST
    if not is_longer(high):
        return math.inf
    while high / low > _EXACT:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_longer(middle) else (middle, high)
    return high * was.seconds


def _published(assessment: Assessment) -> RatioInterval | None:
    evidence = assessment.evidence
    return published(evidence is not None and not evidence.before_compile)


def of_rounds(before: Sequence[float], after: Sequence[float]) -> Ratio:
    """Return the ratio of two steps that ran once in each of some rounds, with the interval of its median.

    The interval contains the median of any distribution with a probability of `_COVERAGE`, if the rounds are
    independent: its ends are the k-th smallest and the k-th largest ratio, with the largest k that has
    2·P(Binomial(n, ½) < k) ≤ 1 − `_COVERAGE` (Conover, Practical Nonparametric Statistics, section 3.2). From
    too few rounds, it is their range.
    """
    rounds = sorted(now / was for was, now in zip(before, after, strict=True))
    count, below, k = len(rounds), 1, 1
    while k < (count + 1) // 2 and 2 * (below := below + math.comb(count, k)) <= (1 - _COVERAGE) * 2**count:
        k += 1
    ends = rounds[k - 1], rounds[count - k]
    return answered(statistics.median(rounds), *ends, MEASURED, "their intervals of 95% overlap")


def of_needs(value: float, was: Needs, now: Needs, chip: str, checked: RatioInterval | None) -> Ratio:
    """Return the ratio of two predicted steps from their needs.

    The answer is that of the common efficiencies or of the published pairs, whichever decides more closely.

    checked: the interval of published pairs; None for programs outside of their range.
    """
    ends = box(chip)
    low, high = common(was, now, ends)
    if less_of_everything(was, now, high):
        return answered(value, low, min(high, math.nextafter(1, 0)), LESS)
    if less_of_everything(now, was, 1 / low if low else math.inf):
        return answered(value, max(low, math.nextafter(1, 2)), high, LESS)
    ratios = [answered(value, low, high, COMMON, "what is known of the machine allows both")]
    ratios += [] if checked is None else [_of_pairs(value, checked)]
    best = min(
        ratios, key=lambda one: (one.answer == "not distinguishable", (one.high or 1) / (one.low or 1))
    )
    if best.answer == "not distinguishable" and not _equal(value):
        best = replace(best, decider=decider(was, now, ends))
    return best


def _of_pairs(value: float, checked: RatioInterval) -> Ratio:
    ends = value / checked.factor, value * checked.factor
    why = "in published pairs, a difference as small decides too little"
    return replace(answered(value, *ends, PAIRS, why), pairs=checked.pairs)


def answered(value: float, low: float, high: float, basis: str, why: str = "") -> Ratio:
    """Return the answer of an interval. A difference below 1% gives no answer.

    why: why there is none if the interval contains 1.
    """
    if _equal(value):
        return Ratio(
            "not distinguishable", value, low, high, reason=f"they differ by less than {LEAST_CHANGE:.0%}"
        )
    answer: Answer = "worse" if low > 1 else "better" if high < 1 else "not distinguishable"
    return Ratio(answer, value, low, high, reason=why if answer == "not distinguishable" else basis)


def change_of(ratio: Ratio | Verdict | LayoutCost) -> str:
    """Return the signed change between the ends of a ratio that is better or worse: `−72% to −44%`, or ""."""
    if ratio.answer not in ("better", "worse") or ratio.low is None or ratio.high is None:
        return ""
    return " to ".join(dict.fromkeys(change_text(1.0, end) or "0%" for end in (ratio.low, ratio.high)))


def _equal(value: float) -> bool:
    return abs(value - 1) < LEAST_CHANGE
