"""The order of candidates, which one to compile next, and when to stop."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from inspector.compare.ratio import longer_from, ratio_of
from inspector.compare.search.evaluated import Evaluated, Stage
from inspector.compare.search.result import Objective
from inspector.machines.prediction.memory import peak_interval


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
    """Return the most promising partitioned candidates that are not compiled; none if none can be the best.

    Those that probably do not fit come last: a compiled one with the same activations on each device needed
    too much.

    Args:
      capacity: bytes of a device; None if unknown.
      everything: also those that cannot be the best.
    """
    waiting = []
    able = {figure.key for figure in can_be_best(figures, objective, "propagated")}
    for figure in figures:
        cost = figure.propagated
        if figure.compiled is not None or cost is None or cost.stage != "propagated" or cost.within is False:
            continue
        amount = value(cost, figure.examples, objective)
        if math.isfinite(amount) and (everything or figure.key in able):
            fits = _may_fit(figure, figures, capacity)
            waiting.append((not fits, amount, cost.state_bytes or 0, figure.key, figure))
    return [figure for *_, figure in sorted(waiting)[:most]]


def can_be_best(figures: Sequence[Figure], objective: Objective, stage: Stage) -> list[Figure]:
    """Return the candidates at a stage, not compiled, that can be better than the best compiled one.

    Steps are compared by the rule for ratios, both before a compile; of a candidate that was not partitioned
    the bound of its step counts. One whose step is not predicted can be the best.
    """
    best = best_of((figure for figure in figures if figure.compiled), objective)
    limit = math.inf if best is None or best.cost is None else value(best.cost, best.examples, objective)
    was = None if best is None or best.propagated is None else best.propagated.assessment
    longest = math.inf if was is None or stage != "planned" else longer_from(was)

    def can_be(figure: Figure) -> bool:
        cost = figure.propagated
        if figure.compiled is not None or cost is None or cost.stage != stage:
            return False
        if best is None:
            return True
        if objective != "time":
            return _low(cost, figure.examples, objective) < limit
        scale = best.examples / figure.examples
        if was is None:
            return True
        if cost.stage == "planned":
            return scale * (cost.at_least or 0.0) < longest
        ratio = None if cost.assessment is None else ratio_of(was, cost.assessment, scale)
        return ratio is None or ratio.answer != "worse"

    return [figure for figure in figures if can_be(figure)]


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


def _low(cost: Evaluated, examples: float, objective: Objective) -> float:
    """Return the least bytes on a device or on the wire that a candidate can have after a compile."""
    if cost.stage == "planned":
        return least_value(cost, examples, objective)
    if objective == "memory":
        state = cost.state_bytes or 0  # a lower bound
        return (state if cost.peak_bytes is None else peak_interval(cost.peak_bytes, state)[0]) / examples
    return value(cost, examples, objective) * 0.5  # without published runs


def scaled_to_measured(figures: Sequence[Figure]) -> list[Figure]:
    """Return the figures with the estimated seconds times the mean ratio of measured to estimated ones.

    For emulated devices, whose speed is that of this machine: the estimate before a run only orders layouts.
    Figures are as they were if none was measured.
    """
    ratios = [
        math.log(figure.compiled.measured / figure.propagated.seconds)
        for figure in figures
        if figure.compiled and figure.compiled.measured and figure.propagated and figure.propagated.seconds
    ]
    factor = math.exp(statistics.fmean(ratios)) if ratios else 1.0
    return [
        figure
        if (cost := figure.propagated) is None or cost.seconds is None
        else replace(figure, propagated=replace(cost, seconds=cost.seconds * factor))
        for figure in figures
    ]


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
