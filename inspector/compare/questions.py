"""The rows of the Board: the same questions to every Snapshot, answered relative to a baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from inspector.compare import amounts, origin
from inspector.compare.amounts import TITLES, Amount, Kind
from inspector.compare.caveats import remark
from inspector.compare.compared import Compared, other_model, work_of
from inspector.compare.program_questions import program_rows
from inspector.compare.question import (
    UNKNOWN,
    Answer,
    Better,
    Question,
    QuestionRow,
    Statement,
    without_rejected,
)
from inspector.compare.ratio import LESS, change_of
from inspector.compare.splits import elements_per_device
from inspector.compare.verdict import of_step
from inspector.records.snapshot import Level, Snapshot
from inspector.sharding.meshes import meshes_text, number_of_devices
from inspector.sharding.rules.rule import rule_text
from inspector.sharding.rules.written import recorded
from inspector.sharding.totals import STATE_GROUPS, in_device_memory, totals
from inspector.text.formatting import bytes_text, times_text

ANSWERS = "Answers"


@dataclass(frozen=True)
class StepMeasure(Question):
    """A row about a step. Less is better.

    kind: the measured quantity.
    amounts: one of each layout. The answers say how they compare with the baseline.
    """

    kind: Kind = "memory"
    amounts: tuple[Amount, ...] = ()

    @property
    def part_names(self) -> tuple[str, ...]:
        """The names of all parts in the order of the stack, from the bottom up."""
        return tuple(dict.fromkeys(name for amount in self.amounts for name in amount.parts))

    def text(self, amount: float | None) -> str:
        """Return an amount with its unit; `unknown` for None."""
        return amounts.amount_text(self.kind, amount)


def measures(every: Sequence[Compared], baseline: int = 0) -> tuple[StepMeasure, ...]:
    """Return memory, time, traffic and FLOPs of the step of each layout, as their assessments have them.

    Args:
      baseline: the index of the layout that the others are compared with.
    """
    names = {compared.assessment.program for compared in every}
    measures = []
    for kind, title in TITLES.items():
        own = tuple(amounts.amount(kind, compared) for compared in every)
        if kind == "time":
            answers = tuple(map(partial(_of_time, every[baseline]), every, own))
        else:
            answers = amounts.answers(kind, every, baseline)
        # Why an amount is unknown is said next to it, also of the baseline.
        answers = tuple(
            replace(answer, remark=amount.unknown or answer.remark)
            for answer, amount in zip(answers, own, strict=True)
        )
        program = next(iter(names)) if len(names) == 1 else None
        measures.append(StepMeasure(ANSWERS, title, "less", answers, program, kind, own))
    return tuple(measures)


def _of_time(reference: Compared, compared: Compared, amount: Amount) -> Answer:
    """Return the verdict about two steps as an answer."""
    if compared is reference:
        return Answer(amount.value, amount.text, "baseline")
    judged = of_step(reference, compared)
    remark = "" if judged.reason == LESS else judged.reason or ""  # the verdict's sentence says it
    if amount.value is None or reference.assessment.step is None:
        return Answer(amount.value, amount.text, "unknown", remark=remark)
    if judged.ratio is None:
        return Answer(amount.value, amount.text, "not comparable", remark=remark)
    change, work = change_of(judged), work_of(reference, compared)
    remark = "; ".join(filter(None, (work.why, remark)))
    verdict = "equal" if judged.low == judged.high == 1 else judged.answer
    return Answer(amount.value, amount.text, verdict, change, remark, work.per if change else "")


STATE = "Train state"
_NO_ARRAYS = Statement("none", excluded="it has no such arrays")


def state_rows(snapshots: Sequence[Snapshot]) -> list[QuestionRow]:
    """Return the rows about the train state, with elements if the bytes of a Snapshot are unknown."""
    rows = _rows(_STATE, snapshots)
    rows.append(QuestionRow(STATE, "Largest array per device", "less", list(map(_largest, snapshots))))
    roles = {array.group for snapshot in snapshots for array in snapshot.arrays}
    if roles and not roles & {"params", "opt_state"}:  # as in a solver
        rows = [
            replace(row, section="Arrays", title=row.title.replace(STATE, "All arrays"))
            for row in rows
            if row.title not in _OF_ROLES
        ]
    if any(totals(snapshot, STATE_GROUPS).per_device is None for snapshot in snapshots):
        rows += _rows(_ELEMENTS, list(map(_in_elements, snapshots)))
    return without_rejected(rows, snapshots)


def _rows(table: Sequence[_StateRow], snapshots: Sequence[Snapshot]) -> list[QuestionRow]:
    rows = []
    for title, better, groups, fact, form in table:
        found = [totals(snapshot, groups) for snapshot in snapshots]
        statements = [form(getattr(one, fact)) if one.arrays else _NO_ARRAYS for one in found]
        rows.append(QuestionRow(STATE, title, better, statements))
    return rows


def _in_elements(snapshot: Snapshot) -> Snapshot:
    """Return the Snapshot with elements instead of bytes."""
    arrays = (
        replace(
            array,
            bytes=array.elements,
            bytes_per_device=elements_per_device(array, snapshot.mesh_of(array)),
        )
        for array in snapshot.arrays
    )
    return replace(snapshot, arrays=tuple(arrays))


def _times(factor: float | None) -> Statement:
    # A few replicated scalars change only digits that are not shown.
    return Statement(UNKNOWN if factor is None else f"{times_text(factor)}×", factor, as_read=True)


def _largest(snapshot: Snapshot) -> Statement:
    state = (array for array in snapshot.arrays if array.group in STATE_GROUPS)
    arrays = in_device_memory(snapshot, state)
    if not arrays:
        return _NO_ARRAYS
    if any(array.bytes_per_device is None for array in arrays):
        return Statement(UNKNOWN)
    largest = max(arrays, key=lambda array: array.bytes_per_device or 0)
    held = largest.bytes_per_device
    return Statement(f"{bytes_text(held)}, {largest.path}", held)


# Title, whether less is better, groups of arrays, the total of them, and its form as an answer.
_StateRow = tuple[str, Better | None, tuple[str, ...], str, Callable[[Any], Statement]]
_OF_ROLES = ("Parameters per device", "Optimizer state per device")
_number, _bytes = Statement.of_number, Statement.of_bytes
_STATE: tuple[_StateRow, ...] = (
    ("Arrays", None, STATE_GROUPS, "arrays", _number),
    ("Train state", None, STATE_GROUPS, "bytes", _bytes),
    ("Train state per device", "less", STATE_GROUPS, "per_device", _bytes),
    ("Parameters per device", "less", ("params",), "per_device", _bytes),
    ("Optimizer state per device", "less", ("opt_state",), "per_device", _bytes),
    ("Copies", "less", STATE_GROUPS, "copies", _times),
    ("Duplicated on all devices", "less", STATE_GROUPS, "duplicated", _bytes),
)
_ELEMENTS: tuple[_StateRow, ...] = (
    ("Elements once", None, STATE_GROUPS, "bytes", _number),
    ("Elements per device", "less", STATE_GROUPS, "per_device", _number),
    ("Parameter elements per device", "less", ("params",), "per_device", _number),
    ("Copies of elements", "less", STATE_GROUPS, "copies", _times),
)


LAYOUT, FINDINGS = "Layout", "Findings"
LEVELS: tuple[Level, ...] = ("error", "warning", "note")


def questions(every: Sequence[Compared], baseline: int = 0) -> tuple[Question, ...]:
    """Return all rows in display order, with one answer per Snapshot.

    Args:
      baseline: the index of the Snapshot that the others are compared with.
    """
    snapshots = [compared.snapshot for compared in every]
    reference = snapshots[baseline]
    remarks = [remark(reference, snapshot) for snapshot in snapshots]
    layout = [
        QuestionRow(LAYOUT, title, None, [ask(snapshot) for snapshot in snapshots]) for title, ask in _LAYOUT
    ]
    layout += _sizes(snapshots)
    findings = [_findings(level, every) for level in LEVELS]
    models = [other_model(every[baseline], compared) or "" for compared in every]
    return (
        *(row.compared(baseline) for row in layout),
        *measures(every, baseline),
        *(
            row.without(models).compared(baseline, about)
            for rows, about in (
                (state_rows(snapshots), remarks),
                (program_rows(every, baseline), amounts.remarks(every, baseline)),
                (findings, remarks),
            )
            for row in rows
        ),
    )


def _findings(level: Level, every: Sequence[Compared]) -> QuestionRow:
    audited = [compared.assessment.findings for compared in every]
    counts = [
        None if finding_counts is None else getattr(finding_counts, level) for finding_counts in audited
    ]
    better: Better | None = None if level == "note" else "less"
    statements = [replace(Statement.of_number(count, "none"), relative=False) for count in counts]
    return QuestionRow(FINDINGS, f"{level.capitalize()}s", better, statements)


def _sizes(snapshots: Sequence[Snapshot]) -> list[QuestionRow]:
    """Return a row for each size of the model that differs, such as the batch."""
    known = [origin.sizes(snapshot) or {} for snapshot in snapshots]
    names = dict.fromkeys(name for sizes in known for name in sizes)
    every = {name: [sizes.get(name, UNKNOWN) for sizes in known] for name in names}
    return [
        QuestionRow(LAYOUT, name.replace("_", " ").capitalize(), None, list(map(Statement, texts)))
        for name, texts in every.items()
        if len(set(texts) - {UNKNOWN}) > 1
    ]


def _rules(snapshot: Snapshot) -> Statement:
    rules = recorded(snapshot)
    if rules is not None:
        return Statement(", ".join(map(rule_text, rules)) or "none")
    has_specs = isinstance((snapshot.layout or {}).get("specs"), dict)
    return Statement("none: the model has device axes" if has_specs else UNKNOWN)


_LAYOUT: tuple[tuple[str, Callable[[Snapshot], Statement]], ...] = (
    ("Source", lambda snapshot: Statement(origin.text(snapshot))),
    ("Model", lambda snapshot: Statement(origin.model(snapshot) or UNKNOWN)),
    ("Mesh", lambda snapshot: Statement(meshes_text(snapshot, max_axes_of_size_1=0))),
    ("Devices", lambda snapshot: Statement.of_number(number_of_devices(snapshot))),
    ("Rules", _rules),
)
