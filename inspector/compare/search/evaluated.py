"""The facts that a search has about one candidate."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from inspector.assessment import assess_candidate
from inspector.core.assessment import Assessment
from inspector.core.snapshot import Collective, Mesh, Program
from inspector.core.snapshot.effects import UNKNOWN_AXES
from inspector.core.traffic import Traffic, sent_by_busiest, traffic, wire_bytes_of_run
from inspector.core.typed_json import OMIT_DEFAULT, OMIT_NONE, FiniteFloat, NonNegativeInt, Record
from inspector.machines.hardware import Chip
from inspector.machines.prediction.calibration import emulated_seconds

Stage = Literal["planned", "propagated", "compiled", "rejected"]


@dataclass(frozen=True)
class ProgramCost(Record):
    """The cost of one run of a program. None means unknown.

    Attributes:
      name: Of the program.
      seconds, low, high: Predicted seconds of one run with their interval.
      at_least: Seconds that it is predicted to take at least, before it is partitioned.
      peak_bytes: Memory of one device while it runs, with the arrays of the state that it does not use.
      assessment: The figures as all other places show them.
    """

    name: str
    seconds: FiniteFloat | None = None
    low: FiniteFloat | None = None
    high: FiniteFloat | None = None
    at_least: FiniteFloat | None = None
    peak_bytes: NonNegativeInt | None = None
    assessment: Assessment | None = None

    @property
    def least(self) -> float | None:
        """Seconds of one run, or their lower bound."""
        return self.at_least if self.seconds is None else self.seconds

    @property
    def is_bound(self) -> bool:
        """Whether one run can take longer than is known."""
        step = None if self.assessment is None else self.assessment.step
        return self.seconds is None or (step is not None and step.kind == "at least")

    def keeps(self, limit: float) -> bool | None:
        """Return whether one run takes at most `limit` seconds; None if the known facts do not decide it."""
        if self.least is not None and self.least > limit:
            return False
        return None if self.is_bound else True


@dataclass(frozen=True)
class Evaluated(Record):
    """The cost of one candidate. None means unknown.

    Attributes:
      stage: How far the candidate came. A planned one was not partitioned, because it cannot be among the
        best, or because the search was stopped.
      reason: Why it was rejected, or why its step is unknown.
      fits: Whether it fits into the memory of a device, as in its assessment.
      seconds, low, high: Predicted seconds of one step with their interval. Of a search with weights, those
        of a round, in which each program runs as often as its weight says.
      state_bytes: Bytes of the train state and the batch on one device, a lower bound of the peak.
      peak_bytes: The compiler's peak on one device, or its estimate before a compile. The need of the program
        if the compiler rejected it.
      wire_bytes: Bytes that one device sends in one step, by mesh axes joined by commas.
      at_least: Seconds that the step is predicted to take at least, before the program is partitioned.
      measured: Median seconds of the measured steps on emulated devices.
      assessment: The figures as all other places show them. None for a rejected candidate.
      programs: The cost of each program of a search with weights.
      within: Whether the programs keep the limits of the search. None without limits, or if that is unknown.
    """

    stage: Stage
    reason: str | None = None
    fits: bool | None = None
    seconds: FiniteFloat | None = None
    low: FiniteFloat | None = None
    high: FiniteFloat | None = None
    state_bytes: NonNegativeInt | None = None
    peak_bytes: NonNegativeInt | None = None
    wire_bytes: dict[str, NonNegativeInt | None] | None = None
    at_least: FiniteFloat | None = None
    measured: FiniteFloat | None = None
    assessment: Assessment | None = None
    programs: tuple[ProgramCost, ...] = field(default=(), metadata=OMIT_DEFAULT)
    within: bool | None = field(default=None, metadata=OMIT_NONE)

    @property
    def allowed(self) -> bool:
        """Whether it can be the best layout, from the known facts: it fits, and keeps the limits."""
        return self.fits is not False and self.within is not False

    @property
    def step(self) -> float | None:
        """Seconds of one step: measured, or else predicted; None if unknown."""
        return self.seconds if self.measured is None else self.measured


@dataclass(frozen=True)
class Bounded(Evaluated):
    """The facts about a candidate before its program is partitioned: the bytes of its state, and bounds.

    Attributes:
      alike: Candidates with the same text have the same program, up to the names of mesh axes. None if that
        is unknown.
    """

    alike: str | None = None


def evaluated(
    program: Program,
    mesh: Mesh,
    chip: Chip | None,
    state_bytes: int | None,
    peak_bytes: int | None = None,
) -> Evaluated:
    """Return the cost of a candidate from its partitioned program on a mesh of such chips.

    chip: None for emulated devices, whose time before a run has no interval.
    """
    assessment = assess_candidate(program, mesh, chip, state_bytes, peak_bytes)
    cost = of_assessment(assessment, "propagated", state_bytes)
    return cost if chip is not None else replace(cost, seconds=emulated_seconds(program, mesh))


def of_assessment(assessment: Assessment, stage: Stage, state_bytes: int | None) -> Evaluated:
    """Return the cost of a candidate with the figures of its assessment.

    state_bytes: bytes of the train state and the batch on one device; None if unknown.
    """
    step, need = assessment.step, assessment.memory
    return Evaluated(
        stage=stage,
        reason=assessment.unknown_step if step is None and assessment.chip is not None else None,
        fits=None if need is None else need.fits,
        seconds=None if step is None else step.seconds,
        low=None if step is None else step.low,
        high=None if step is None else step.high,
        state_bytes=state_bytes,
        peak_bytes=None if need is None or need.at_least else need.peak_bytes,
        wire_bytes=sent_bytes(assessment),
        measured=step.seconds if step is not None and step.kind == "measured" else None,
        assessment=assessment,
    )


def sent_bytes(assessment: Assessment) -> dict[str, int | None] | None:
    """Return the bytes of an assessment's traffic, by mesh axes joined by commas."""
    sent = assessment.traffic
    return None if sent is None else {axes.replace("+", ","): size for axes, size in sent.by_axes.items()}


def together(costs: Mapping[str, Evaluated], step: str) -> Evaluated:
    """Return the cost of a candidate from those of its programs.

    step: the program of a step, whose figures are those of the candidate if it is among them. It fits only if
    all programs fit, and needs as much memory as the largest.
    """
    failed = next((cost for cost in costs.values() if cost.stage == "rejected"), None)
    if failed is not None:
        return failed
    main = costs.get(step) or next(iter(costs.values()))
    fits = [cost.fits for cost in costs.values()]
    largest = max(costs.values(), key=lambda cost: cost.peak_bytes or 0)
    assessment = main.assessment
    if assessment is not None and largest.assessment is not None:
        assessment = replace(assessment, memory=largest.assessment.memory)
    return replace(
        main,
        reason=next((cost.reason for cost in costs.values() if cost.reason), None),
        fits=False if False in fits else None if None in fits else True,
        peak_bytes=None if None in [cost.peak_bytes for cost in costs.values()] else largest.peak_bytes,
        assessment=assessment,
        programs=tuple(
            ProgramCost(
                name, cost.seconds, cost.low, cost.high, cost.at_least, cost.peak_bytes, cost.assessment
            )
            for name, cost in costs.items()
        ),
    )


def rejected(reason: str, **known: int | None) -> Evaluated:
    """Return a rejected candidate."""
    return Evaluated("rejected", reason, **known)  # type: ignore[arg-type]


def wire_bytes_of(program: Program) -> dict[str, int | None] | None:
    """Return the bytes that the device that sends most sends in one run, by mesh axes joined by commas.

    They add up to all that it sends. None if unknown.
    """
    if program.collectives is None:
        return None
    by_axes: dict[str, list[Collective]] = {}
    for row in traffic(program.collectives):
        by_axes.setdefault(_axes_key(row), [])
    for collective in program.collectives:
        by_axes[_axes_key(collective)].append(collective)
    sent = sent_by_busiest(by_axes)
    return {
        axes: None if wire_bytes_of_run(*group) is None else sent[axes] for axes, group in by_axes.items()
    }


def _axes_key(sender: Collective | Traffic) -> str:
    return UNKNOWN_AXES if sender.mesh_axes is None else ",".join(sender.mesh_axes)
