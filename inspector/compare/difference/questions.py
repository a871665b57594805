"""The rows of the Board: the same questions to every Snapshot, answered relative to a baseline."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from inspector.compare.difference import origin
from inspector.compare.difference.caveats import remark
from inspector.compare.difference.program_rows import OTHER_COMPILER, program_rows
from inspector.compare.difference.question import UNKNOWN, Better, Question, Row, Statement
from inspector.compare.difference.splits import elements_per_device
from inspector.core.errors import InvalidInput
from inspector.core.formatting import bytes_text, counted, mesh_text, times_text
from inspector.core.rules.rule import rule_text
from inspector.core.rules.written import recorded
from inspector.core.snapshot import Array, Level, Snapshot
from inspector.core.statistics import sum_known
from inspector.core.totals import STATE_GROUPS, totals
from inspector.machines.hardware import Chip
from inspector.machines.prediction import memory

LAYOUT, STATE, FINDINGS = "Layout", "Train state", "Findings"
LEVELS: tuple[Level, ...] = ("error", "warning", "note")

_Measure = Callable[[Snapshot, list[Array]], Statement]


def questions(
    snapshots: Sequence[Snapshot], baseline: int = 0, chip: Chip | None = None
) -> tuple[Question, ...]:
    """Return all rows in display order, with one answer per Snapshot.

    Args:
      baseline: the index of the Snapshot that the others are compared with.
      chip: the chip for modelled memory and time. Without it, each compiled Snapshot uses its own chip.

    Raises:
      InvalidInput: if there is no Snapshot at index `baseline`.
    """
    if not 0 <= baseline < len(snapshots):
        raise InvalidInput(
            f"baseline is {baseline}, but must be the index of one of {counted(len(snapshots), 'Snapshot')}"
        )
    reference = snapshots[baseline]
    remarks = [remark(reference, snapshot) for snapshot in snapshots]
    of_programs = [
        text or (OTHER_COMPILER if snapshot.source.kind != reference.source.kind else "")
        for text, snapshot in zip(remarks, snapshots, strict=True)
    ]
    layout = [Row(LAYOUT, title, None, [ask(each) for each in snapshots]) for title, ask in _LAYOUT]
    findings = [Row(FINDINGS, *_findings(level, snapshots)) for level in LEVELS]
    return tuple(
        row.compared(baseline, about)
        for rows, about in (
            (layout, None),
            (state_rows(snapshots), remarks),
            (program_rows(snapshots, chip, origin.chip(reference, chip)), of_programs),
            (findings, remarks),
        )
        for row in rows
    )


def state_rows(snapshots: Sequence[Snapshot]) -> list[Row]:
    """Return the rows about the train state, with elements if the bytes of a Snapshot are unknown."""
    unknown = any(totals(each, STATE_GROUPS).per_device is None for each in snapshots)
    return [
        Row(STATE, title, better, [_of(groups, measure, each) for each in snapshots])
        for title, better, groups, measure in (_STATE + _ELEMENTS if unknown else _STATE)
    ]


def _findings(level: Level, snapshots: Sequence[Snapshot]) -> tuple[str, Better | None, list]:
    counts = [sum(finding.level == level for finding in each.findings) for each in snapshots]
    better = None if level == "note" else "less"
    return f"{level.capitalize()}s", better, [_number(count, "none") for count in counts]


def _number(value: int | None, zero: str = "0") -> Statement:
    return Statement(UNKNOWN if value is None else f"{value:,}" if value else zero, value)


def _bytes(value: int | None) -> Statement:
    return Statement(bytes_text(value), value)


def _times(factor: float | None) -> Statement:
    # A few replicated scalars change only digits that are not shown.
    return Statement(UNKNOWN if factor is None else f"{times_text(factor)}×", factor, as_read=True)


def _rules(snapshot: Snapshot) -> Statement:
    rules = recorded(snapshot)
    if rules is not None:
        return Statement(", ".join(map(rule_text, rules)) or "none")
    has_specs = isinstance((snapshot.layout or {}).get("specs"), dict)
    return Statement("none: the model has device axes" if has_specs else UNKNOWN)


def _of(groups: Sequence[str], measure: _Measure, snapshot: Snapshot) -> Statement:
    arrays = [array for array in snapshot.arrays if array.group in groups]
    return (
        measure(snapshot, arrays) if arrays else Statement("none", excluded="it has no such arrays")
    )


def _duplicated(snapshot: Snapshot, arrays: list[Array]) -> Statement:
    everywhere = sum_known(
        None if array.shape is None else memory.bytes_everywhere(array, snapshot.mesh)
        for array in arrays
    )
    once = totals(snapshot, STATE_GROUPS).bytes
    return _bytes(None if everywhere is None or once is None else everywhere - once)


def _largest(snapshot: Snapshot, arrays: list[Array]) -> Statement:
    if any(array.bytes_per_device is None for array in arrays):
        return Statement(UNKNOWN)
    largest = max(arrays, key=lambda array: array.bytes_per_device or 0)
    held = largest.bytes_per_device
    return Statement(f"{bytes_text(held)}, {largest.path}", held)


def _elements_once(arrays: list[Array]) -> int | None:
    return sum_known(None if a.shape is None else math.prod(a.shape) for a in arrays)


def _elements_held(snapshot: Snapshot, arrays: list[Array]) -> int | None:
    return sum_known(elements_per_device(array, snapshot.mesh) for array in arrays)


def _element_copies(snapshot: Snapshot, arrays: list[Array]) -> Statement:
    once, held = _elements_once(arrays), _elements_held(snapshot, arrays)
    known = once and held is not None and snapshot.mesh is not None
    return _times(held * snapshot.mesh.size / once if known else None)


_LAYOUT: tuple[tuple[str, Callable[[Snapshot], Statement]], ...] = (
    ("Source", lambda each: Statement(origin.text(each))),
    ("Model", lambda each: Statement(origin.model(each) or UNKNOWN)),
    ("Mesh", lambda each: Statement(mesh_text(each.mesh, max_axes_of_size_1=0))),
    ("Devices", lambda each: _number(each.mesh.size if each.mesh else None)),
    ("Rules", _rules),
)
# Title, whether less is better, and the answer about the arrays of some groups.

_STATE: tuple[tuple[str, Better | None, tuple[str, ...], _Measure], ...] = (
    ("Arrays", None, STATE_GROUPS, lambda _, arrays: _number(len(arrays))),
    ("Bytes once", None, STATE_GROUPS, lambda s, _: _bytes(totals(s, STATE_GROUPS).bytes)),
    *(
        (title, "less", groups, lambda s, _, groups=groups: _bytes(totals(s, groups).per_device))
        for title, groups in (
            ("Bytes per device", STATE_GROUPS),
            ("Parameters per device", ("params",)),
            ("Optimizer state per device", ("opt_state",)),
        )
    ),
    ("Copies", "less", STATE_GROUPS, lambda s, _: _times(totals(s, STATE_GROUPS).copies)),
    ("Duplicated on all devices", "less", STATE_GROUPS, _duplicated),
    ("Largest array per device", "less", STATE_GROUPS, _largest),
)
_ELEMENTS = (
    ("Elements once", None, STATE_GROUPS, lambda _, arrays: _number(_elements_once(arrays))),
    ("Elements per device", "less", STATE_GROUPS, lambda s, a: _number(_elements_held(s, a))),
    (
        "Parameter elements per device",
        "less",
        ("params",),
        lambda s, a: _number(_elements_held(s, a)),
    ),
    ("Copies of elements", "less", STATE_GROUPS, _element_copies),
)
