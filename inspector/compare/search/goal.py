"""The goal of a search: the time of several programs with weights, under limits for some of them.

A model that serves requests has two programs, a prefill and a decode step, in one layout of the same arrays.
Their weights are the runs of each for one example: `prefill=1,decode=256` is a request with 256 tokens.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from inspector.compare.search.evaluated import Evaluated, ProgramCost, sent_bytes
from inspector.core.assessment import Assessment, Step, Traffic
from inspector.core.errors import InvalidInput, shown
from inspector.layout import Layout
from inspector.machines.hardware import Chip
from inspector.machines.prediction.step_parts import added_parts

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

    def tokens_per_second(self, cost: Evaluated, layout: Layout) -> float | None:
        """Return the tokens that decode steps generate in a second of a round; None if unknown."""
        weight = self.weights.get("decode", 0.0)
        if not weight or layout.step_program != "decode" or not cost.step:
            return None
        return weight * examples_of(layout, "decode") / cost.step

    def applied(self, cost: Evaluated, layout: Layout) -> Evaluated:
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


def _of_round(cost: Evaluated, counted: Sequence[tuple[ProgramCost, float]]) -> Assessment | None:
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
            None if bound else cost.high,
            "at least" if bound else steps[0][0].kind,
            bound,
            next((step.outside for step, _ in steps if step.outside), None),
            added_parts([(step.parts, runs) for step, runs in steps], cost.seconds),
        ),
    )


def _sent(counted: Sequence[tuple[ProgramCost, float]]) -> Traffic | None:
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
    return Traffic(by_axes.total(), dict(by_axes), at_most, dict(between))


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
