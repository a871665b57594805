"""The rows about the train state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from inspector.compare.question import UNKNOWN, Better, Row, Statement, without_rejected
from inspector.compare.splits import elements_per_device
from inspector.core.formatting import bytes_text, times_text
from inspector.core.snapshot import Snapshot
from inspector.core.totals import STATE_GROUPS, in_device_memory, state_title, totals

STATE = "Train state"
_NO_ARRAYS = Statement("none", excluded="it has no such arrays")


def state_rows(snapshots: Sequence[Snapshot]) -> list[Row]:
    """Return the rows about the train state, with elements if the bytes of a Snapshot are unknown."""
    rows = _rows(_STATE, snapshots)
    rows.append(Row(STATE, "Largest array per device", "less", list(map(_largest, snapshots))))
    if {state_title(snapshot) for snapshot in snapshots} == {"Arrays"}:  # of unknown role, as in a solver
        rows = [
            replace(row, section="Arrays", title=row.title.replace(STATE, "All arrays"))
            for row in rows
            if row.title not in _OF_ROLES
        ]
    if any(totals(snapshot, STATE_GROUPS).per_device is None for snapshot in snapshots):
        rows += _rows(_ELEMENTS, list(map(_in_elements, snapshots)))
    return without_rejected(rows, snapshots)


def _rows(table: Sequence[_StateRow], snapshots: Sequence[Snapshot]) -> list[Row]:
    rows = []
    for title, better, groups, fact, form in table:
        found = [totals(snapshot, groups) for snapshot in snapshots]
        statements = [form(getattr(one, fact)) if one.arrays else _NO_ARRAYS for one in found]
        rows.append(Row(STATE, title, better, statements))
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
