"""The goal of a search, and the order of its candidates."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from inspector.compare.ratio import longer_from, ratio_of
from inspector.layout import Layout
from inspector.machines.hardware import Chip
from inspector.prediction.memory import peak_interval
from inspector.prediction.step_parts import added_parts
from inspector.records.assessment import Assessment, Step, StepTraffic
from inspector.search.result import Candidate, Objective, ProgramCost, Stage, sent_bytes
from inspector.text.errors import InvalidInput, shown

# The goal of a search: the time of several programs with weights, under limits for some of them.
#
# A model that serves requests has two programs, a prefill and a decode step, in one layout of the same
# arrays. Their weights are the runs of each for one example: `prefill=1,decode=256` is a request with 256
# tokens.


_MOST_WEIGHT = 1e9
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Goal:
    """The weights and limits of programs.

    Attributes:
      weights: runs of each program for one example; empty to rank layouts by the program of a step alone. A
        program with weight 0 is predicted, too, but does not count.
      limits: the most seconds that one run of a program may take.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs whose cost is needed; empty for that of a step alone."""
        return tuple(self.weights)

    def runs(self, layout: Layout) -> dict[str, float]:
        """Return the runs of each program in one round, which serves the examples of a step."""
        examples = examples_of(layout, layout.step_program)
        return {name: weight * examples / examples_of(layout, name) for name, weight in self.weights.items()}

    def tokens_per_second(self, cost: Candidate, layout: Layout) -> float | None:
        """Return the tokens that decode steps generate in a second of a round; None if unknown."""
        weight = self.weights.get("decode", 0.0)
        if not weight or layout.step_program != "decode" or not cost.step:
            return None
        return weight * examples_of(layout, "decode") / cost.step

    def applied(self, cost: Candidate, layout: Layout) -> Candidate:
        """Return the cost of a round of a layout, and whether its programs keep the limits.

        The bound of a round is the sum of those of its programs, and infinite if one is above its limit.
        """
        if not self.weights or not cost.programs:
            return cost
        by_name, runs = {program.name: program for program in cost.programs}, self.runs(layout)
        counted = [(by_name[name], number) for name, number in runs.items() if number and name in by_name]
        least = [program.at_least for program, _ in counted]
        seconds = [program.seconds for program, _ in counted]
        keeps = [
            by_name[name].keeps(limit) if name in by_name else None for name, limit in self.limits.items()
        ]
        cost = replace(
            cost,
            seconds=_sum(seconds, counted),
            low=_sum([program.low for program, _ in counted], counted),
            high=_sum([program.high for program, _ in counted], counted),
            at_least=_sum(least, counted),
            within=False if False in keeps else None if None in keeps or not keeps else True,
        )
        assessment = _of_round(cost, counted)
        if assessment is None:
            return cost
        return replace(cost, assessment=assessment, wire_bytes=sent_bytes(assessment))


def _sum(values: Sequence[float | None], counted: Sequence[tuple[ProgramCost, float]]) -> float | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return math.fsum(value * runs for value, (_, runs) in zip(known, counted, strict=True))


def _of_round(cost: Candidate, counted: Sequence[tuple[ProgramCost, float]]) -> Assessment | None:
    """Return the assessment of a cost with a round as its step: what all runs take and send together."""
    assessment = cost.assessment
    if assessment is None or [(program.name, runs) for program, runs in counted] == [
        (assessment.program, 1.0)
    ]:
        return assessment
    steps = [
        (program.assessment.step, runs)
        for program, runs in counted
        if program.assessment is not None and program.assessment.step is not None
    ]
    assessment = replace(assessment, traffic=_sent(counted))
    if cost.seconds is None or len(steps) < len(counted):
        return replace(assessment, step=None, unknown_step="the time of a program is unknown")
    bound = next((step.at_least for step, _ in steps if step.kind == "at least"), None)
    return replace(
        assessment,
        step=Step(
            cost.seconds,
            None if bound else cost.low,
            high=None if bound else cost.high,
            kind="at least" if bound else steps[0][0].kind,
            at_least=bound,
            outside=next((step.outside for step, _ in steps if step.outside), None),
            parts=added_parts([(step.parts, runs) for step, runs in steps], cost.seconds),
        ),
    )


def _sent(counted: Sequence[tuple[ProgramCost, float]]) -> StepTraffic | None:
    """Return the bytes that a round sends; None if that of a program is unknown."""
    by_axes, between = Counter[str](), Counter[str]()
    at_most = None
    for program, runs in counted:
        sent = None if program.assessment is None else program.assessment.traffic
        if sent is None:
            return None
        for total, of_run in ((by_axes, sent.by_axes), (between, sent.between_slices)):
            total.update({axes: round(size * runs) for axes, size in of_run.items()})
        at_most = at_most or sent.at_most
    return StepTraffic(by_axes.total(), dict(by_axes), at_most, dict(between))


def examples_of(layout: Layout, program: str | None = None) -> float:
    """Return the examples of one run: the size `PROGRAM_batch` of the model, else `batch`, else 1."""
    batch = layout.sizes.get(f"{program}_batch", layout.sizes.get("batch", 1))
    return float(batch) if isinstance(batch, (int, float)) else 1.0


def goal_of(layout: Layout, chip: Chip | None, weights: str | None = None, limits: str | None = None) -> Goal:
    """Return the goal of a search from text such as `prefill=1,decode=256` and `decode=25ms`.

    By default a decode step counts alone, and the other programs of its model are predicted, too.

    Args:
      chip: None to measure a step on emulated devices, which the goal needs to be empty for.

    Raises:
      InvalidInput: a program, number or unit is not allowed, or no weight is above 0.
    """
    known, step = layout.programs, layout.step_program
    if chip is None:
        if weights or limits:
            raise InvalidInput(
                f"{'weights' if weights else 'limits'} is {shown(weights or limits)}, but must be left out "
                "without a chip: only one program is measured on emulated devices"
            )
        return Goal()
    chosen = {
        name: _number("weights", text, "a number from 0 to 1,000,000,000", {"": 1.0}, _MOST_WEIGHT)
        for name, text in _pairs("weights", weights, known)
    }
    most = {
        name: _number("limits", text, "a time such as 25ms or 0.5s", _UNITS, _MOST_WEIGHT)
        for name, text in _pairs("limits", limits, known)
    }
    if any(not limit for limit in most.values()):
        raise InvalidInput(f"limits is {shown(limits)}, but each must be above 0 seconds")
    if chosen and not any(chosen.values()):
        raise InvalidInput(f"weights is {shown(weights)}, but one must be above 0")
    if not chosen and (most or step == "decode"):
        chosen = {step: 1.0}
    if step == "decode":
        chosen |= {name: 0.0 for name in known if name not in chosen}
    return Goal(chosen | {name: 0.0 for name in most if name not in chosen}, most)


def _pairs(field: str, text: str | None, known: Sequence[str]) -> list[tuple[str, str]]:
    pairs = [part.strip().partition("=") for part in (text or "").split(",") if part.strip()]
    for number, (name, sign, _) in enumerate(pairs):
        if not sign or name not in known or name in [other for other, _, _ in pairs[:number]]:
            raise InvalidInput(
                f"{field} is {shown(text)}, but must be PROGRAM=VALUE for different programs of "
                f"{', '.join(known) or 'the model, which has none'}"
            )
    return [(name, value) for name, _, value in pairs]


def _number(field: str, text: str, allowed: str, units: Mapping[str, float], most: float) -> float:
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        value = float(digits) * units[text[len(digits) :]]
    except (KeyError, ValueError):
        value = math.nan
    if not 0 <= value <= most:
        raise InvalidInput(f"{field} has {shown(text)}, but must have {allowed}")
    return value


@dataclass(frozen=True)
class Entry:
    """A candidate of a running search.

    Attributes:
      key: Identifies the candidate.
      layout: Its layout.
      examples: Examples of one step, by which its time is divided.
      memory_key: Candidates with the same key have the same activations on each device.
      partitioned: Its cost before a compile, or its bounds if it was not partitioned; None if it was compiled
        without.
      compiled: Its cost from the compiler, if known.
      bounds: Its bounds, if known.
    """

    key: str
    layout: Layout
    examples: float
    memory_key: str
    partitioned: Candidate | None = None
    compiled: Candidate | None = None
    bounds: Candidate | None = None

    @property
    def cost(self) -> Candidate | None:
        """The best known cost."""
        return self.compiled or self.partitioned


def least_value(cost: Candidate, examples: float, objective: Objective) -> float:
    """Return what `value` is not below once the candidate is partitioned."""
    if cost.within is False:
        return math.inf
    if objective == "memory":
        return (cost.state_bytes or 0) / examples
    return (cost.at_least or 0.0) / examples if objective == "time" else 0.0


def value(cost: Candidate, examples: float, objective: Objective) -> float:
    """Return the quantity to reduce: seconds for each example, bytes on a device, or bytes that it sends."""
    if objective == "memory":
        known = cost.state_bytes if cost.peak_bytes is None else cost.peak_bytes
        return math.inf if known is None else known / examples
    if objective == "traffic":
        if cost.wire_bytes is None or None in cost.wire_bytes.values():
            return math.inf
        return sum(each or 0 for each in cost.wire_bytes.values()) / examples
    return math.inf if cost.step is None else cost.step / examples


def ranked(entries: Iterable[Entry], objective: Objective) -> list[Entry]:
    """Return all candidates, the best first.

    The order is: compiled ones that fit, partitioned ones that may fit, those that do not fit or are above a
    limit, those that were not partitioned with the least bound first, and those that cannot run.
    """

    def rank(entry: Entry) -> tuple[int, float, float, float, str]:
        cost = entry.cost
        if cost is None or cost.stage == "rejected":
            return 5, math.inf, math.inf, math.inf, entry.key
        if cost.stage == "planned":
            least = least_value(cost, entry.examples, objective)
            return 4, least, 0.0, cost.state_bytes or math.inf, entry.key
        before = entry.compiled is None
        group = (1 if before else 0) if cost.allowed else (3 if before else 2)
        return (
            group,
            value(cost, entry.examples, objective),
            math.fsum(program.seconds or 0.0 for program in cost.programs),
            cost.state_bytes or math.inf,
            entry.key,
        )

    return sorted(entries, key=rank)


def best_of(entries: Iterable[Entry], objective: Objective) -> Entry | None:
    """Return the best compiled candidate that fits. If none was compiled, the best that will probably fit.

    On emulated devices, whether a candidate fits is not known before it runs.
    """

    def fitting(entry: Entry) -> bool:
        cost = entry.cost
        if cost is None or not math.isfinite(value(cost, entry.examples, objective)):
            return False
        return cost.allowed and (cost.stage == "compiled" or cost.fits is True)

    every = [entry for entry in entries if fitting(entry)]
    compiled = [entry for entry in every if entry.compiled is not None]
    return next(iter(ranked(compiled or every, objective)), None)


def next_to_compile(
    entries: Sequence[Entry],
    objective: Objective,
    capacity: int | None,
    most: int,
    everything: bool = False,
) -> list[Entry]:
    """Return the most promising partitioned candidates that are not compiled; none if none can be the best.

    Those that probably do not fit come last: a compiled one with the same activations on each device needed
    too much.

    Args:
      capacity: bytes of a device; None if unknown.
      everything: also those that cannot be the best.
    """
    waiting = []
    able = {entry.key for entry in can_be_best(entries, objective, "propagated")}
    for entry in entries:
        cost = entry.partitioned
        if entry.compiled is not None or cost is None or cost.stage != "propagated" or cost.within is False:
            continue
        amount = value(cost, entry.examples, objective)
        if math.isfinite(amount) and (everything or entry.key in able):
            fits = _may_fit(entry, entries, capacity)
            waiting.append((not fits, amount, cost.state_bytes or 0, entry.key, entry))
    return [entry for *_, entry in sorted(waiting)[:most]]


def can_be_best(entries: Sequence[Entry], objective: Objective, stage: Stage) -> list[Entry]:
    """Return the candidates at a stage, not compiled, that can be better than the best compiled one.

    Steps are compared by the rule for ratios, both before a compile; of a candidate that was not partitioned
    the bound of its step counts. One whose step is not predicted can be the best.
    """
    best = best_of((entry for entry in entries if entry.compiled), objective)
    limit = math.inf if best is None or best.cost is None else value(best.cost, best.examples, objective)
    was = None if best is None or best.partitioned is None else best.partitioned.assessment
    longest = math.inf if was is None or stage != "planned" else longer_from(was)

    def can_be(entry: Entry) -> bool:
        cost = entry.partitioned
        if entry.compiled is not None or cost is None or cost.stage != stage:
            return False
        if best is None:
            return True
        if objective != "time":
            return _low(cost, entry.examples, objective) < limit
        scale = best.examples / entry.examples
        if was is None:
            return True
        if cost.stage == "planned":
            return scale * (cost.at_least or 0.0) < longest
        ratio = None if cost.assessment is None else ratio_of(was, cost.assessment, scale)
        return ratio is None or ratio.answer != "worse"

    return [entry for entry in entries if can_be(entry)]


def pareto(entries: Iterable[Entry]) -> dict[str, bool | None]:
    """Return whether no other candidate beats one in both time and memory, by key.

    Compiled candidates that fit are compared with each other. Without any, the partitioned ones are. Of a
    candidate that was not partitioned, it is False if a partitioned one beats its bounds, and otherwise None.
    """
    every = list(entries)
    compiled = [entry for entry in every if entry.compiled and entry.compiled.allowed]
    chosen = [
        entry
        for entry in compiled or every
        if entry.cost and entry.cost.stage not in ("planned", "rejected") and entry.cost.within is not False
    ]
    points = sorted(
        (value(entry.cost, entry.examples, "time"), value(entry.cost, 1, "memory"), entry.key)
        for entry in chosen
        if entry.cost
    )
    found: dict[str, bool | None] = {entry.key: False for entry in every}
    front: list[tuple[float, float]] = []
    for seconds, count, key in points:
        if math.isfinite(seconds) and (not front or count < front[-1][1]):
            found[key] = True
            front.append((seconds, count))
    for entry in every:
        cost = entry.cost
        if cost is not None and cost.stage == "planned":
            least = least_value(cost, entry.examples, "time"), least_value(cost, 1, "memory")
            beaten = any(point[0] <= least[0] and point[1] <= least[1] for point in front)
            found[entry.key] = False if beaten else None
    return found


def _low(cost: Candidate, examples: float, objective: Objective) -> float:
    """Return the least bytes on a device or on the wire that a candidate can have after a compile."""
    if cost.stage == "planned":
        return least_value(cost, examples, objective)
    if objective == "memory":
        state = cost.state_bytes or 0  # a lower bound
        return (state if cost.peak_bytes is None else peak_interval(cost.peak_bytes, state)[0]) / examples
    return value(cost, examples, objective) * 0.5  # without published runs


def scaled_to_measured(entries: Sequence[Entry]) -> list[Entry]:
    """Return the candidates with the estimated seconds times the mean ratio of measured to estimated ones.

    For emulated devices, whose speed is that of this machine: the estimate before a run only orders layouts.
    They are as they were if none was measured.
    """
    ratios = [
        math.log(entry.compiled.measured / entry.partitioned.seconds)
        for entry in entries
        if entry.compiled and entry.compiled.measured and entry.partitioned and entry.partitioned.seconds
    ]
    factor = math.exp(statistics.fmean(ratios)) if ratios else 1.0
    return [
        entry
        if (cost := entry.partitioned) is None or cost.seconds is None
        else replace(entry, partitioned=replace(cost, seconds=cost.seconds * factor))
        for entry in entries
    ]


def _may_fit(entry: Entry, entries: Iterable[Entry], capacity: int | None) -> bool:
    """Return False if its estimated peak or a compiled candidate with the same activations is too large."""
    if capacity is None or entry.partitioned is None:
        return True
    own, peak = entry.partitioned.state_bytes, entry.partitioned.peak_bytes
    if peak is not None and peak_interval(peak, own or 0)[0] > capacity:
        return False
    for other in entries:
        cost = other.compiled
        if other.memory_key != entry.memory_key or cost is None or cost.peak_bytes is None:
            continue
        before = other.partitioned.state_bytes if other.partitioned else cost.state_bytes
        if before is not None and own is not None and cost.peak_bytes - before + own > capacity:
            return False
    return True
