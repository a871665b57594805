"""Memory, time and traffic of several layouts: one amount each, divided into parts, against a baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from inspector.compare import origin
from inspector.compare.caveats import remark
from inspector.compare.questions.programs import program_names
from inspector.compare.questions.question import REJECTED, Answer, Row, Statement
from inspector.core.array_groups import USE_GROUPS
from inspector.core.collectives import traffic
from inspector.core.formatting import bytes_text, mesh_axes_text, seconds_text
from inspector.core.snapshot import Program, Snapshot
from inspector.core.statistics import statistics, sum_known
from inspector.machines import targets
from inspector.machines.hardware import Chip
from inspector.machines.prediction import memory
from inspector.machines.prediction.predicted import Predicted, predicted

Kind = Literal["memory", "time", "traffic"]

COMPUTE, COPIES, OVERHEAD, MEASURED = "compute", "copies", "overhead", "measured step"
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
    low, high: the interval of a prediction; None if unknown.
    measured: the median of the measured steps; None if none was measured on this chip.
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
    measured: float | None = None
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
        return tuple(dict.fromkeys(part.name for one in self.amounts for part in one.parts))

    def text(self, amount: float | None) -> str:
        """Return an amount with its unit; `unknown` for None."""
        return amount_text(self.kind, amount)


def amount_text(kind: Kind, amount: float | None) -> str:
    """Return an amount of a measure with its unit; `unknown` for None."""
    if kind == "time":
        return seconds_text(amount)
    return bytes_text(None if amount is None else round(amount))


def measures(
    snapshots: Sequence[Snapshot], baseline: int = 0, chip: Chip | None = None
) -> tuple[Measure, ...]:
    """Return memory, time and traffic of the step of each layout.

    Args:
      baseline: the index of the Snapshot that the others are compared with.
      chip: the chip for memory and time. Without it, each Snapshot uses the chip that it was made for.
    """
    name = _step(snapshots)
    chips = [origin.chip(each, chip) for each in snapshots]
    one_chip = chips[0] if all(each == chips[0] for each in chips) else None
    remarks = [remark(snapshots[baseline], each) for each in snapshots]
    asks: tuple[tuple[Kind, Callable[[Snapshot, Program | None, Chip | None], Amount]], ...] = (
        ("memory", _memory),
        ("time", _time),
        ("traffic", _traffic),
    )
    made = []
    for kind, ask in asks:
        amounts = [
            Amount(unknown=REJECTED)
            if origin.rejection(each)
            else ask(each, None if name is None else each.program(name), on)
            for each, on in zip(snapshots, chips, strict=True)
        ]
        statements = [
            _statement(kind, one, amounts[baseline], on == chips[baseline])
            for one, on in zip(amounts, chips, strict=True)
        ]
        row = Row(kind, kind, "less", statements).compared(baseline, remarks)
        made.append(Measure(kind, name, one_chip, tuple(amounts), row.answers))
    return tuple(made)


def _step(snapshots: Sequence[Snapshot]) -> str | None:
    """Return the program of most Snapshots; on a tie the train step, else the first one."""
    names = program_names(snapshots)
    return max(
        names,
        key=lambda name: sum(each.program(name) is not None for each in snapshots),
        default=None,
    )


def _statement(kind: Kind, one: Amount, reference: Amount, same_chip: bool) -> Statement:
    """Return the amount for the comparison. Traffic does not depend on the compiler as much as the rest."""
    excluded = ""
    if kind != "traffic" and None not in (one.value, reference.value):
        if one.stage != reference.stage:
            excluded = f"{one.stage}; the baseline: {reference.stage}"
        elif kind == "time" and not same_chip:
            excluded = "on another chip"
    return Statement(amount_text(kind, one.value), one.value, excluded)


def _memory(snapshot: Snapshot, program: Program | None, chip: Chip | None) -> Amount:
    fit = None if chip is None else memory.fit(snapshot, chip)
    limit, fits = (None, None) if fit is None else (fit.capacity, fit.fits)
    use = None if program is None else program.memory_use
    if program is not None and use is not None and use.points:
        held = [(USE_GROUPS[one.group].heading, one.bytes[use.peak]) for one in use.groups]
        parts = _parts([(name, size) for name, size in held if size])
        if program.stage != "propagated":
            return Amount(parts, use.peak_bytes, _compiled(snapshot), limit=limit, fits=fits)
        low, high = memory.peak_interval(use.peak_bytes, 0)
        return Amount(
            parts,
            use.peak_bytes,
            "estimated before a compile",
            low=low,
            high=high,
            limit=limit,
            fits=fits,
        )
    found = None if program is None else memory.breakdown(snapshot, program)
    if found is not None and found.total is not None:
        parts = _parts(memory.segments(found))
        stage = _compiled(snapshot)
        return Amount(parts, found.total, stage, limit=limit, fits=fits)
    if fit is not None and fit.basis == "compiler" and fit.needed is not None:
        parts = _parts([(memory.NEEDED, fit.needed)])
        return Amount(parts, fit.needed, _compiled(snapshot), limit=limit, fits=fits)
    state = memory.state_segments(snapshot)
    if state is None:
        why = "the bytes per device of its arrays are unknown"
        return Amount(limit=limit, fits=fits, unknown=why)
    value = sum(number for _, number in state)
    stage = "planned, state and batch only"
    return Amount(_parts(state), value, stage, at_least=True, limit=limit, fits=fits)


def _time(snapshot: Snapshot, program: Program | None, chip: Chip | None) -> Amount:
    if program is None:
        return Amount(unknown=_no_program(snapshot))
    measured = _measured(snapshot, program, chip)
    found = None
    if chip is None:
        why = "no chip was chosen"
    elif snapshot.mesh is None:
        why = "its mesh is unknown"
    else:
        found = predicted(program, snapshot.mesh, chip)
        why = "; ".join(found.unknown) or "nothing is known about the step"
    if found is None or found.seconds is None:
        if measured is None:
            return Amount(unknown=why)
        return Amount((Part(MEASURED, measured),), measured, "measured", measured=measured)
    before = found.simulated is None
    stage = "predicted before a compile" if before else "predicted from the schedule"
    if found.compiled_for:
        stage += f" for {found.compiled_for}"
    return Amount(
        _seconds(found), found.seconds, stage, low=found.low, high=found.high, measured=measured
    )


def _traffic(snapshot: Snapshot, program: Program | None, chip: Chip | None) -> Amount:
    if program is None:
        return Amount(unknown=_no_program(snapshot))
    if program.collectives is None:
        return Amount(unknown="its collectives were not counted")
    rows = traffic(program.collectives)
    sent: dict[tuple[str, ...] | None, int] = {}
    for row in rows:
        if row.wire_bytes_per_device:
            sent[row.mesh_axes] = sent.get(row.mesh_axes, 0) + row.wire_bytes_per_device
    parts = tuple(Part(mesh_axes_text(axes), number, axes=True) for axes, number in sent.items())
    total = sum_known(row.wire_bytes_per_device for row in rows)
    stage = "propagated" if program.stage == "propagated" else _compiled(snapshot)
    why = "" if total is not None else "the bytes of a collective are unknown"
    return Amount(parts, total, stage, unknown=why)


def _seconds(found: Predicted) -> tuple[Part, ...]:
    """Return compute, exposed communication by mesh axes, and the rest; they add up to the step."""
    totals, seconds = found.totals, found.seconds
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


def _measured(snapshot: Snapshot, program: Program, chip: Chip | None) -> float | None:
    """Return the median of the steps that ran on accelerators of this machine, or None."""
    steps = statistics(program.seconds.steps) if program.seconds else None
    if steps is None or snapshot.source.kind != "local":
        return None
    return steps.median if chip in (None, targets.chip_of(snapshot)) else None


def _compiled(snapshot: Snapshot) -> str:
    return "compiled for CPUs" if snapshot.source.kind == "cpu" else "compiled"


def _no_program(snapshot: Snapshot) -> str:
    if snapshot.programs:
        return "it has no such program"
    return "nothing was compiled" if snapshot.source.kind == "plan" else "it has no programs"


def _parts(named: Sequence[tuple[str, int]]) -> tuple[Part, ...]:
    return tuple(Part(name, number) for name, number in named)
