"""Memory, time and traffic of several layouts: one amount each, divided into parts, against a baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from inspector.assessment import prediction_of
from inspector.compare.caveats import remark
from inspector.compare.questions.question import REJECTED, Answer, Row, Statement
from inspector.compare.questions.time_answer import time_answer
from inspector.compare.verdict import Compared, other_model
from inspector.core.assessment import UNKNOWN_AXES
from inspector.core.formatting import bytes_text, mesh_axes_text, seconds_text
from inspector.core.step_program import step_program
from inspector.machines import hardware
from inspector.machines.hardware import Chip
from inspector.machines.prediction import memory
from inspector.machines.prediction.predicted import Predicted

Kind = Literal["memory", "time", "traffic"]

COMPUTE, COPIES, OVERHEAD, MEASURED = "compute", "copies", "overhead", "measured step"
BOUND = "lower bound"
# A rest of the prediction that is smaller than this share comes from rounding.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Part:
    """A part of an amount, in bytes or seconds.

    axes: whether `name` is that of mesh axes.
    """

    name: str
    amount: float
    axes: bool = False


@dataclass(frozen=True)
class Amount:
    """One measure of one layout, in bytes or seconds.

    parts: its known parts. They add up to `value` if that is known.
    value: None if unknown.
    stage: how far the layout got, and so what the amount is based on; empty if nothing is known.
    at_least: whether more than `value` may be needed.
    low, high: the interval of a prediction or of the measured steps; None if unknown.
    limit: bytes of a device of the chip; None if no chip is known.
    fits: whether the layout fits into `limit`; None if unknown.
    unknown: why the value is unknown, as a clause; empty if it is known.
    """

    parts: tuple[Part, ...] = ()
    value: float | None = None
    stage: str = ""
    at_least: bool = False
    low: float | None = None
    high: float | None = None
    limit: int | None = None
    fits: bool | None = None
    unknown: str = ""

    @property
    def known(self) -> float:
        """The sum of the known parts, at most `value`."""
        return sum(part.amount for part in self.parts)


@dataclass(frozen=True)
class Measure:
    """One measure of all layouts. Less is better.

    program: the program that it is about.
    chip: the chip of `limit` or of the prediction; None if unknown, or if the layouts have several.
    amounts, answers: one of each layout. An answer says how the amount compares with the baseline.
    """

    kind: Kind
    program: str | None
    chip: Chip | None
    amounts: tuple[Amount, ...]
    answers: tuple[Answer, ...]

    @property
    def part_names(self) -> tuple[str, ...]:
        """The names of all parts in the order of the stack, from the bottom up."""
        return tuple(dict.fromkeys(part.name for amount in self.amounts for part in amount.parts))

    def text(self, amount: float | None) -> str:
        """Return an amount with its unit; `unknown` for None."""
        return amount_text(self.kind, amount)


def amount_text(kind: Kind, amount: float | None) -> str:
    """Return an amount of a measure with its unit; `unknown` for None."""
    if kind == "time":
        return seconds_text(amount)
    return bytes_text(None if amount is None else round(amount))


def measures(every: Sequence[Compared], baseline: int = 0) -> tuple[Measure, ...]:
    """Return memory, time and traffic of the step of each layout, as their assessments have them.

    Args:
      baseline: the index of the layout that the others are compared with.
    """
    chips = {compared.assessment.chip for compared in every}
    chip = hardware.CHIPS.get(next(iter(chips)) or "") if len(chips) == 1 else None
    names = {compared.assessment.program for compared in every}
    program = next(iter(names)) if len(names) == 1 else None
    reference = every[baseline]
    measures: list[Measure] = []
    asks: tuple[tuple[Kind, Callable[[Compared], Amount]], ...] = (
        ("memory", _memory),
        ("time", _time),
        ("traffic", _traffic),
    )
    for kind, ask in asks:
        amounts = [
            Amount(unknown=REJECTED) if compared.assessment.rejected else ask(compared) for compared in every
        ]
        if kind == "time":
            answers = tuple(
                time_answer(reference, compared, amount.value, amount_text(kind, amount.value))
                for compared, amount in zip(every, amounts, strict=True)
            )
        else:
            remarks = [remark(reference.snapshot, compared.snapshot) for compared in every]
            statements = [
                _statement(kind, amount, amounts[baseline], other_model(reference, compared) or "")
                for compared, amount in zip(every, amounts, strict=True)
            ]
            answers = Row(kind, kind, "less", statements).compared(baseline, remarks).answers
        measures.append(Measure(kind, program, chip, tuple(amounts), answers))
    return tuple(measures)


def _statement(kind: Kind, amount: Amount, reference: Amount, excluded: str) -> Statement:
    """Return the amount for the comparison. Traffic does not depend on the compiler as much as memory.

    excluded: how the model differs from that of the baseline; empty if it does not.
    """
    known = None not in (amount.value, reference.value)
    if not excluded and kind != "traffic" and known and amount.stage != reference.stage:
        excluded = f"{amount.stage}; the baseline: {reference.stage}"
    return Statement(amount_text(kind, amount.value), amount.value, excluded)


def _memory(compared: Compared) -> Amount:
    need = compared.assessment.memory
    if need is None:
        return Amount(unknown="the bytes per device of its arrays are unknown")
    estimated = need.high is not None and need.low < need.high
    stage = compared.evidence.made_text
    if need.at_least:
        stage = "planned, state and batch only"
    elif estimated:
        stage = "estimated before a compile"
    return Amount(
        tuple(Part(name, size) for name, size in memory.needed_parts(compared.snapshot, need.peak_bytes)),
        need.peak_bytes,
        stage,
        at_least=need.at_least,
        low=need.low if estimated else None,
        high=need.high if estimated else None,
        limit=need.capacity_bytes,
        fits=need.fits,
    )


def _time(compared: Compared) -> Amount:
    step, program = compared.assessment.step, step_program(compared.snapshot)
    if step is None or program is None:
        return Amount(unknown=compared.assessment.unknown_step or "")
    if step.kind == "measured":
        stage = compared.evidence.text
        parts: tuple[Part, ...] = (Part(MEASURED, step.seconds),)
        return Amount(parts, step.seconds, stage, low=step.low, high=step.high)
    predicted = prediction_of(compared.snapshot, program, hardware.CHIPS[compared.assessment.chip or ""])
    stage = "predicted before a compile"
    if predicted.simulated is not None:
        stage = "predicted from the schedule"
    if predicted.compiled_for:
        stage += f" for {predicted.compiled_for}"
    return Amount(_seconds(predicted), step.seconds, stage, low=step.low, high=step.high)


def _traffic(compared: Compared) -> Amount:
    sent = compared.assessment.traffic
    known = sent or compared.assessment.known_traffic
    if known is None:
        return Amount(unknown=compared.assessment.unknown_traffic or "")
    parts = tuple(
        Part(mesh_axes_text(None if axes == UNKNOWN_AXES else axes.split("+")), size, axes=True)
        for axes, size in known.by_axes.items()
    )
    stage = compared.evidence.made_text
    unknown = compared.assessment.unknown_traffic or ""
    return Amount(parts, None if sent is None else sent.bytes, stage, unknown=unknown)


def _seconds(predicted: Predicted) -> tuple[Part, ...]:
    """Return compute, exposed communication by mesh axes, and the rest; they add up to the step."""
    totals, seconds = predicted.totals, predicted.seconds
    if predicted.at_least:
        return (Part(BOUND, seconds or 0.0),)
    assert totals is not None and seconds is not None
    parts = [Part(COMPUTE, totals.compute), Part(COPIES, totals.copies)]
    parts += [
        Part(mesh_axes_text(axes.split("+") if axes else None), exposed, axes=True)
        for axes, exposed in sorted(totals.exposed.items(), key=lambda item: -item[1])
    ]
    rest = seconds - totals.seconds
    if rest > _ROUNDING * seconds:
        parts.append(Part(OVERHEAD, rest))
    return tuple(part for part in parts if part.amount > 0)
