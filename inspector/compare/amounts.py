"""Memory, time, traffic and FLOPs of a step of one layout: an amount each, divided into parts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from inspector.assessment import part_text
from inspector.compare.caveats import remark
from inspector.compare.compared import Compared, other_model, work_of
from inspector.compare.question import REJECTED, SAME_WORK, UNKNOWN, Answer, QuestionRow, Statement
from inspector.machines import hardware
from inspector.machines.hardware import si_text
from inspector.prediction import memory
from inspector.prediction.predicted import predicted_in
from inspector.prediction.step_program import step_program
from inspector.records.assessment import FLOPS, INTERVAL, MEMORY, STEP, TRAFFIC
from inspector.sharding.traffic import Traffic, traffic
from inspector.text.formatting import bytes_text, mesh_axes_text, seconds_text

Kind = Literal["memory", "time", "traffic", "flops"]
TITLES: Mapping[Kind, str] = {"memory": MEMORY, "time": STEP, "traffic": TRAFFIC, "flops": FLOPS}

MEASURED = "measured step"


@dataclass(frozen=True)
class Amount:
    """One measure of one layout, in bytes, seconds or FLOPs.

    text: the amount in the words of the table.
    value: None if unknown.
    parts: its known parts by name, which add up to `value` if that is known.
    stage: how far the layout got, which is the basis of the amount; empty if nothing is known.
    low, high: the interval of a prediction or of the measured steps; None if unknown. ends: the kind of both.
    limit: bytes of a device of the chip; None if no chip is known.
    unknown: why the value is unknown, as a clause; empty if it is known.
    """

    text: str = UNKNOWN
    value: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    stage: str = ""
    low: float | None = None
    high: float | None = None
    ends: str = INTERVAL
    limit: int | None = None
    unknown: str = ""

    @property
    def known(self) -> float:
        """The sum of the known parts, at most `value`."""
        return sum(self.parts.values())


def amount_text(kind: Kind, amount: float | None) -> str:
    """Return an amount of a measure with its unit; `unknown` for None."""
    if kind == "time":
        return seconds_text(amount)
    if kind == "flops":
        return UNKNOWN if amount is None else si_text(amount, "FLOP")
    return bytes_text(None if amount is None else round(amount))


def amount(kind: Kind, compared: Compared) -> Amount:
    """Return an amount of the step of one layout, from its assessment."""
    return Amount(unknown=REJECTED) if compared.assessment.rejected else _AMOUNTS[kind](compared)


def row(kind: Kind, section: str, every: Sequence[Compared], baseline: int) -> QuestionRow:
    """Return the amounts of all layouts as a row of the comparison."""
    reference = every[baseline]
    amounts = [amount(kind, compared) for compared in every]
    statements = [
        _statement(kind, own, amounts[baseline], reference, compared)
        for own, compared in zip(amounts, every, strict=True)
    ]
    return QuestionRow(section, TITLES[kind], "less", statements)


def answers(kind: Kind, every: Sequence[Compared], baseline: int) -> tuple[Answer, ...]:
    """Return how an amount of each layout compares with that of the baseline. Times need a verdict."""
    assert kind != "time"
    return row(kind, "", every, baseline).compared(baseline, remarks(every, baseline)).answers


def remarks(every: Sequence[Compared], baseline: int) -> list[str]:
    """Return what qualifies figures of programs of each layout, in a few words; "" for nothing."""
    reference = every[baseline].snapshot
    return [
        remark(reference, compared.snapshot)
        or ("another compiler" if compared.snapshot.source.kind != reference.source.kind else "")
        for compared in every
    ]


def _statement(
    kind: Kind, own: Amount, of_baseline: Amount, reference: Compared, compared: Compared
) -> Statement:
    """Return the amount for the comparison. Traffic does not depend on the compiler as much as memory."""
    excluded = other_model(reference, compared) or ""
    known = None not in (own.value, of_baseline.value)
    if not excluded and kind == "memory" and known:
        if own.stage != of_baseline.stage:
            excluded = f"{own.stage}; the baseline: {of_baseline.stage}"
        elif compared.assessment.chip != reference.assessment.chip:
            excluded = "on another chip"
    program = step_program(compared.snapshot)
    need, parts = compared.assessment.memory, dict(own.parts)
    if kind == "traffic" and program is not None and own.value is not None:
        parts = sent_parts(traffic(program.collectives or ())) or {}
    elif own.value is None or (kind == "memory" and need is not None and need.at_least):
        parts = {}
    work = SAME_WORK if kind == "memory" else work_of(reference, compared)
    return Statement(own.text, own.value, excluded, parts=parts, work=work)


def sent_parts(rows: Sequence[Traffic]) -> dict[str, float] | None:
    """Return the bytes that each operation sends over its mesh axes; None if some are unknown."""
    parts = {
        f"{row.op} over {mesh_axes_text(row.mesh_axes)}": float(row.of_busiest)
        for row in rows
        if row.of_busiest is not None
    }
    return parts if len(parts) == len(rows) else None


def _memory(compared: Compared) -> Amount:
    need = compared.assessment.memory
    if need is None:
        return Amount(unknown="the bytes per device of its arrays are unknown")
    estimated = need.is_estimated
    stage = compared.evidence.made_text
    if need.at_least:
        stage = "planned, state and batch only"
    elif estimated:
        stage = "estimated before a compile"
    return Amount(
        f"{need.text}, {need.fits_text}" if need.fits_text else need.text,
        need.peak_bytes,
        parts=dict(memory.needed_parts(compared.snapshot, need.peak_bytes)),
        stage=stage,
        low=need.low if estimated else None,
        high=need.high if estimated else None,
        limit=need.capacity_bytes,
    )


def _time(compared: Compared) -> Amount:
    step, program = compared.assessment.step, step_program(compared.snapshot)
    if step is None or program is None:
        return Amount(unknown=compared.assessment.unknown_step or "")
    text = step.text if step.kind == "at least" else f"{step.text}, {step.kind}"
    measured = step.kind == "measured"
    across = any(part.kind == "between" for part in step.parts)
    parts = {part_text(part, across, measured): part.seconds for part in step.parts if part.seconds}
    if measured:
        parts, stage = parts or {MEASURED: step.seconds}, compared.evidence.text
    else:
        predicted = predicted_in(compared.snapshot, program, hardware.CHIPS[compared.assessment.chip or ""])
        stage = "predicted before a compile"
        if predicted.simulated is not None:
            stage = "predicted from the schedule"
    return Amount(text, step.seconds, parts=parts, stage=stage, low=step.low, high=step.high, ends=step.ends)


def _traffic(compared: Compared) -> Amount:
    sent = compared.assessment.traffic
    known = sent or compared.assessment.known_traffic
    unknown = compared.assessment.unknown_traffic or ""
    if known is None:
        return Amount(unknown=unknown)
    across = bool(known.between_slices)
    parts: Mapping[str, float] = {
        part_text(part, across): size
        for axes, whole in known.by_axes.items()
        for part, size in known.by_network(axes)
        if size or not whole
    }
    stage = compared.evidence.made_text
    if sent is None:
        return Amount(f"at least {known.text}", parts=parts, stage=stage, unknown=unknown)
    return Amount(sent.text, sent.bytes, parts=parts, stage=stage)


def _flops(compared: Compared) -> Amount:
    program = step_program(compared.snapshot)
    flops = None if program is None else program.flops_per_device
    if flops is None:
        return Amount(unknown="there is no program" if program is None else "its FLOPs were not counted")
    return Amount(amount_text("flops", flops), flops, stage=compared.evidence.made_text)


_AMOUNTS: Mapping[Kind, Callable[[Compared], Amount]] = {
    "memory": _memory,
    "time": _time,
    "traffic": _traffic,
    "flops": _flops,
}
