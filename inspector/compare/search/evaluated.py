"""What a search knows about one candidate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from inspector.assessment import assess_candidate
from inspector.core.assessment import Assessment
from inspector.core.snapshot import Mesh, Program
from inspector.core.snapshot.effects import UNKNOWN_AXES
from inspector.core.traffic import traffic
from inspector.core.typed_json import FiniteFloat, NonNegativeInt, Record
from inspector.machines.hardware import Chip
from inspector.machines.prediction.emulated import emulated_seconds

Stage = Literal["planned", "propagated", "compiled", "rejected"]


@dataclass(frozen=True)
class Evaluated(Record):
    """The cost of one candidate. None means unknown.

    Attributes:
      stage: How far the candidate came. A planned one was not partitioned, because it cannot be among the
        best, or because the search was stopped.
      reason: Why it was rejected, or why its step is unknown.
      fits: Whether it fits into the memory of a device, as in its assessment.
      seconds, low, high: Predicted seconds of one step with their interval.
      state_bytes: Bytes of the train state and the batch on one device, a lower bound of the peak.
      peak_bytes: The compiler's peak on one device, or its estimate before a compile. What the program needs
        if the compiler rejected it.
      wire_bytes: Bytes that one device sends in one step, by mesh axes joined by commas.
      at_least: Seconds that the step is predicted to take at least, before the program is partitioned.
      measured: Median seconds of the measured steps on emulated devices.
      assessment: The figures as all other places show them. None for a rejected candidate.
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

    @property
    def step(self) -> float | None:
        """Seconds of one step: measured, or else predicted; None if unknown."""
        return self.seconds if self.measured is None else self.measured


@dataclass(frozen=True)
class Bounded(Evaluated):
    """What is known of a candidate before its program is partitioned: the bytes of its state, and bounds.

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
    step, need, sent = assessment.step, assessment.memory, assessment.traffic
    return Evaluated(
        stage=stage,
        reason=assessment.unknown_step if step is None and assessment.chip is not None else None,
        fits=None if need is None else need.fits,
        seconds=None if step is None else step.seconds,
        low=None if step is None else step.low,
        high=None if step is None else step.high,
        state_bytes=state_bytes,
        peak_bytes=None if need is None or need.at_least else need.peak_bytes,
        wire_bytes=None
        if sent is None
        else {axes.replace("+", ","): size for axes, size in sent.by_axes.items()},
        measured=step.seconds if step is not None and step.kind == "measured" else None,
        assessment=assessment,
    )


def rejected(reason: str, **known: int | None) -> Evaluated:
    """Return a rejected candidate."""
    return Evaluated("rejected", reason, **known)  # type: ignore[arg-type]


def wire_bytes_of(program: Program) -> dict[str, int | None] | None:
    """Return the bytes that a device sends in one run, by mesh axes joined by commas."""
    if program.collectives is None:
        return None
    found: dict[str, int | None] = {}
    for row in traffic(program.collectives):
        key = UNKNOWN_AXES if row.mesh_axes is None else ",".join(row.mesh_axes)
        before, more = found.get(key, 0), row.wire_bytes_per_device
        found[key] = None if before is None or more is None else before + more
    return found
