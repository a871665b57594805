"""The order of candidates, which one to compile next, and when to stop."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from inspector.compare.ratio import Ratio, ratio_of
from inspector.compare.search.evaluated import Evaluated
from inspector.compare.search.result import Objective
from inspector.machines.prediction.memory import peak_interval

# Compiled candidates from which the ratio of compiled to propagated time is taken. Below it, the published
# runs give the interval.
ENOUGH_COMPILED = 3
# The probability with which the ratio of one more candidate is above the lowest one that is considered.
LOWEST = 0.975
# The quantile at each end of the interval of a step that is scaled by ratios: eight of ten steps are inside.
_END = 0.9


@dataclass(frozen=True)
class Figure:
    """A candidate as the order sees it.

    Attributes:
      key: Identifies the candidate.
      propagated: Its cost before a compile, or its bounds if it was not partitioned; None if it was compiled
        without.
      compiled: Its cost from the compiler, if known.
      examples: Examples of one step, by which its time is divided.
      memory_key: Candidates with the same key have the same activations on each device.
    """

    key: str
    propagated: Evaluated | None
    compiled: Evaluated | None
    examples: float
    memory_key: str

    @property
    def cost(self) -> Evaluated | None:
        """The best known cost."""
        return self.compiled or self.propagated


def least_value(cost: Evaluated, examples: float, objective: Objective) -> float:
    """Return what `value` is not below once the candidate is partitioned."""
    if cost.within is False:
        return math.inf
    if objective == "memory":
        return (cost.state_bytes or 0) / examples
    return (cost.at_least or 0.0) / examples if objective == "time" else 0.0


def value(cost: Evaluated, examples: float, objective: Objective) -> float:
    """Return the quantity to reduce: seconds for each example, bytes on a device, or bytes that it sends."""
    if objective == "memory":
        known = cost.state_bytes if cost.peak_bytes is None else cost.peak_bytes
        return math.inf if known is None else known / examples
    if objective == "traffic":
        if cost.wire_bytes is None or None in cost.wire_bytes.values():
            return math.inf
        return sum(each or 0 for each in cost.wire_bytes.values()) / examples
    return math.inf if cost.step is None else cost.step / examples


def ranked(figures: Iterable[Figure], objective: Objective) -> list[Figure]:
    """Return all candidates, the best first.

    The order is: compiled ones that fit, partitioned ones that may fit, those that do not fit or are above a
    limit, those that were not partitioned with the least bound first, and those that cannot run.
    """

    def rank(figure: Figure) -> tuple[int, float, float, float, str]:
        cost = figure.cost
        if cost is None or cost.stage == "rejected":
            return 5, math.inf, math.inf, math.inf, figure.key
        if cost.stage == "planned":
            least = least_value(cost, figure.examples, objective)
            return 4, least, 0.0, cost.state_bytes or math.inf, figure.key
        before = figure.compiled is None
        group = (1 if before else 0) if cost.allowed else (3 if before else 2)
        return (
            group,
            value(cost, figure.examples, objective),
            math.fsum(program.seconds or 0.0 for program in cost.programs),
            cost.state_bytes or math.inf,
            figure.key,
        )

    return sorted(figures, key=rank)


def best_of(figures: Iterable[Figure], objective: Objective) -> Figure | None:
    """Return the best compiled candidate that fits. If none was compiled, the best that will probably fit.

    On emulated devices, whether a candidate fits is not known before it runs.
    """

    def fitting(figure: Figure) -> bool:
        cost = figure.cost
        if cost is None or not math.isfinite(value(cost, figure.examples, objective)):
            return False
        return cost.allowed and (cost.stage == "compiled" or cost.fits is True)

    every = [figure for figure in figures if fitting(figure)]
    compiled = [figure for figure in every if figure.compiled is not None]
    return next(iter(ranked(compiled or every, objective)), None)


def next_to_compile(
    figures: Sequence[Figure],
    objective: Objective,
    capacity: int | None,
    most: int,
    everything: bool = False,
) -> list[Figure]:
    """Return the most promising candidates that are not compiled. It is empty if none can be the best.

    A candidate can be the best unless it is worse than the best compiled one, by the figures of both before
    a compile. Without these, the lower end of its interval is below the best compiled figure. Those that
    probably do not fit come last: a compiled one with the same activations on each device needed too much.

    Args:
      capacity: bytes of a device; None if unknown.
      everything: also those that cannot be the best.
    """
    limit = math.inf if everything else best_compiled_value(figures, objective)
    low = _lowest_ratio(figures, objective)
    best = best_of((one for one in figures if one.compiled), objective)
    waiting = []
    for one in figures:
        cost = one.propagated
        if one.compiled is not None or cost is None or cost.stage != "propagated":
            continue
        figure = value(cost, one.examples, objective)
        ratio = None if best is None or objective != "time" else before_compile(best, one)
        if everything or ratio is None:
            lowest = _low(cost, one.examples, objective) if low is None else figure * low
            can_be_best = lowest < limit
        else:
            can_be_best = ratio.answer != "worse"
        if math.isfinite(figure) and can_be_best and cost.within is not False:
            waiting.append((_may_fit(one, figures, capacity), figure, cost.state_bytes or 0, one))
    waiting.sort(key=lambda each: (not each[0], each[1], each[2], each[3].key))
    return [figure for *_, figure in waiting[:most]]


def before_compile(best: Figure, other: Figure) -> Ratio | None:
    """Return the ratio of the steps of two candidates before a compile; None if one is unknown."""
    was, now = (None if one.propagated is None else one.propagated.assessment for one in (best, other))
    return None if was is None or now is None else ratio_of(was, now, best.examples / other.examples)


def least_to_compile(figures: Sequence[Figure], objective: Objective) -> float:
    """Return the figure before a compile above which a candidate cannot be the best; infinite if unknown."""
    limit = best_compiled_value(figures, objective)
    low = _lowest_ratio(figures, objective)
    if low is None:
        known = [
            _low(figure.propagated, figure.examples, objective) / figure_value
            for figure in figures
            if figure.propagated is not None
            and figure.propagated.stage == "propagated"
            and 0 < (figure_value := value(figure.propagated, figure.examples, objective)) < math.inf
        ]
        low = min(known, default=0.0)
    return limit / low if low else math.inf


def pareto(figures: Iterable[Figure]) -> dict[str, bool | None]:
    """Return whether no other candidate beats one in both time and memory, by key.

    Compiled candidates that fit are compared with each other. Without any, the partitioned ones are. Of a
    candidate that was not partitioned, it is False if a partitioned one beats its bounds, and otherwise None.
    """
    every = list(figures)
    compiled = [figure for figure in every if figure.compiled and figure.compiled.allowed]
    chosen = [
        figure
        for figure in compiled or every
        if figure.cost
        and figure.cost.stage not in ("planned", "rejected")
        and figure.cost.within is not False
    ]
    points = sorted(
        (value(figure.cost, figure.examples, "time"), value(figure.cost, 1, "memory"), figure.key)
        for figure in chosen
        if figure.cost
    )
    found: dict[str, bool | None] = {figure.key: False for figure in every}
    front: list[tuple[float, float]] = []
    for seconds, count, key in points:
        if math.isfinite(seconds) and (not front or count < front[-1][1]):
            found[key] = True
            front.append((seconds, count))
    for figure in every:
        cost = figure.cost
        if cost is not None and cost.stage == "planned":
            least = least_value(cost, figure.examples, "time"), least_value(cost, 1, "memory")
            beaten = any(point[0] <= least[0] and point[1] <= least[1] for point in front)
            found[figure.key] = False if beaten else None
    return found


def best_compiled_value(figures: Iterable[Figure], objective: Objective) -> float:
    """Return the least figure of a compiled candidate that fits; infinite if none was compiled."""
    values = (
        value(figure.compiled, figure.examples, objective)
        for figure in figures
        if figure.compiled is not None and figure.compiled.stage == "compiled" and figure.compiled.allowed
    )
    return min(values, default=math.inf)


def _low(cost: Evaluated, examples: float, objective: Objective) -> float:
    if objective == "time" and cost.low is not None:
        return cost.low / examples
    if objective == "memory":
        state = cost.state_bytes or 0  # a lower bound
        low = state if cost.peak_bytes is None else peak_interval(cost.peak_bytes, state)[0]
        return low / examples
    return value(cost, examples, objective) * 0.5  # without published runs


def scaled_to_measured(figures: Sequence[Figure]) -> list[Figure]:
    """Return the figures with the propagated seconds times the mean ratio of measured to propagated ones.

    For emulated devices, whose speed is that of this machine: the estimate before a run only orders layouts.
    From `ENOUGH_COMPILED` measured candidates on, the seconds have an interval from the same ratios. Figures
    are as they were if none was measured.
    """
    ratios = _ratios(figures, "time")
    if not ratios:
        return list(figures)
    mean = statistics.fmean(ratios)
    spread = _spread(ratios, _END)

    def scaled(cost: Evaluated) -> Evaluated:
        if cost.seconds is None:
            return cost
        seconds = cost.seconds * math.exp(mean)
        if spread is None:
            return replace(cost, seconds=seconds)
        ends = seconds * math.exp(-spread), seconds * math.exp(spread)
        return replace(cost, seconds=seconds, low=ends[0], high=ends[1])

    return [
        replace(figure, propagated=None if figure.propagated is None else scaled(figure.propagated))
        for figure in figures
    ]


def _ratios(figures: Iterable[Figure], objective: Objective) -> list[float]:
    """Return the logarithm of compiled over propagated figure of each compiled candidate."""
    ratios = []
    for figure in figures:
        if figure.compiled is None or figure.propagated is None or figure.compiled.stage != "compiled":
            continue
        before = value(figure.propagated, figure.examples, objective)
        after = value(figure.compiled, figure.examples, objective)
        if 0 < before < math.inf and 0 < after < math.inf:
            ratios.append(math.log(after / before))
    return ratios


def _spread(ratios: Sequence[float], quantile: float) -> float | None:
    """Return how far the next ratio may be from their mean, as a logarithm; None below `ENOUGH_COMPILED`.

    This is half of the prediction interval for one more value of a normal distribution.
    """
    count = len(ratios)
    if count < ENOUGH_COMPILED:
        return None
    return _student(quantile, count - 1) * statistics.stdev(ratios) * math.sqrt(1 + 1 / count)


def _lowest_ratio(figures: Iterable[Figure], objective: Objective) -> float | None:
    """Return the lowest ratio of compiled to propagated figure that the next candidate may have.

    Ratios of one model on one machine differ less than those of published runs. The ratio is the lower end of
    their prediction interval, but at most the lowest ratio so far. None below `ENOUGH_COMPILED`.
    """
    ratios = _ratios(figures, objective)
    spread = _spread(ratios, LOWEST)
    return None if spread is None else math.exp(min(statistics.fmean(ratios) - spread, *ratios))


def _student(share: float, freedom: float) -> float:
    """Return the quantile of Student's distribution (Abramowitz and Stegun 1964, 26.7.5).

    It is within 4% from two degrees of freedom on. SciPy is exact, but takes 0.8 s to import.
    """
    z = statistics.NormalDist().inv_cdf(share)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


def _may_fit(figure: Figure, figures: Iterable[Figure], capacity: int | None) -> bool:
    """Return False if its estimated peak or a compiled candidate with the same activations is too large."""
    if capacity is None or figure.propagated is None:
        return True
    own, peak = figure.propagated.state_bytes, figure.propagated.peak_bytes
    if peak is not None and peak_interval(peak, own or 0)[0] > capacity:
        return False
    for other in figures:
        cost = other.compiled
        if other.memory_key != figure.memory_key or cost is None or cost.peak_bytes is None:
            continue
        before = other.propagated.state_bytes if other.propagated else cost.state_bytes
        if before is not None and own is not None and cost.peak_bytes - before + own > capacity:
            return False
    return True
