"""Questions about arrays: how large the train state is, and what each device holds of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from inspector.compare.difference.answers import (
    UNKNOWN,
    Better,
    Question,
    Statement,
    question,
)
from inspector.compare.difference.splitting import elements_per_device
from inspector.core.formatting import bytes_text, times_text
from inspector.core.snapshot import Array, Snapshot
from inspector.core.totals import STATE_GROUPS, totals
from inspector.machines.prediction import memory

STATE = "Train state"
_NO_ARRAYS = "it has no train state"


def state_questions(
    snapshots: Sequence[Snapshot], baseline: int, remarks: Sequence[str]
) -> list[Question]:
    """Counts and bytes; elements as well where the bytes of one of the Snapshots are not known."""
    rows: list[tuple[str, Better | None, Callable[[Snapshot], Statement]]] = [
        ("Arrays", None, _count),
        (
            "Bytes once",
            None,
            lambda found: _of_state(found, lambda: totals(found, STATE_GROUPS).bytes),
        ),
        ("Bytes per device", "less", lambda found: _per_device(found, STATE_GROUPS)),
        ("Parameters per device", "less", lambda found: _per_device(found, ("params",))),
        ("Optimizer state per device", "less", lambda found: _per_device(found, ("opt_state",))),
        ("Copies", "less", _copies),
        ("Duplicated on all devices", "less", _duplicated),
        ("Largest array per device", "less", _largest),
    ]
    if any(totals(found, STATE_GROUPS).per_device is None for found in snapshots):
        rows += [
            ("Elements once", None, lambda found: _elements(found, STATE_GROUPS, _once)),
            ("Elements per device", "less", lambda found: _elements(found, STATE_GROUPS, _held)),
            (
                "Parameter elements per device",
                "less",
                lambda found: _elements(found, ("params",), _held),
            ),
            ("Copies of elements", "less", _element_copies),
        ]
    return [
        question(
            STATE, title, [ask(found) for found in snapshots], baseline, better, remarks=remarks
        )
        for title, better, ask in rows
    ]


def state(found: Snapshot) -> list[Array]:
    """The arrays of the train state."""
    return [array for array in found.arrays if array.group in STATE_GROUPS]


def _count(found: Snapshot) -> Statement:
    """How many there are; a compiled program's text has none to tell of, which is not 0."""
    count = len(state(found))
    return Statement(f"{count:,}", count) if count else Statement("none", excluded=_NO_ARRAYS)


def _bytes(value: int | None) -> Statement:
    return Statement(bytes_text(value), value)


def _of_state(found: Snapshot, ask: Callable[[], int | None]) -> Statement:
    if not state(found):
        return Statement("none", excluded=_NO_ARRAYS)
    return _bytes(ask())


def _per_device(found: Snapshot, groups: tuple[str, ...]) -> Statement:
    sums = totals(found, groups)
    if not sums.arrays:
        return Statement("none", excluded="it has no such arrays")
    return _bytes(sums.per_device)


def _elements(
    found: Snapshot, groups: tuple[str, ...], ask: Callable[[Array, Snapshot], int | None]
) -> Statement:
    arrays = [array for array in found.arrays if array.group in groups]
    if not arrays:
        return Statement("none", excluded=_NO_ARRAYS)
    total = memory.summed(ask(array, found) for array in arrays)
    return Statement(UNKNOWN if total is None else f"{total:,}", total)


def _once(array: Array, found: Snapshot) -> int | None:
    return None if array.shape is None else math.prod(array.shape)


def _held(array: Array, found: Snapshot) -> int | None:
    return elements_per_device(array, found.mesh)


def _element_copies(found: Snapshot) -> Statement:
    once, held = (_elements(found, STATE_GROUPS, ask) for ask in (_once, _held))
    if once.excluded:
        return once
    if not once.value or held.value is None or found.mesh is None:
        return Statement(UNKNOWN)
    return _times(held.value * found.mesh.size / once.value)


def _copies(found: Snapshot) -> Statement:
    if not state(found):
        return Statement("none", excluded=_NO_ARRAYS)
    return _times(totals(found, STATE_GROUPS).copies)


def _times(copies: float | None) -> Statement:
    """Equal where they read the same: a step count of 4 bytes on every device makes no layout worse."""
    return Statement(UNKNOWN if copies is None else f"{times_text(copies)}×", copies, as_read=True)


def _duplicated(found: Snapshot) -> Statement:
    def duplicated() -> int | None:
        everywhere = memory.summed(
            None if one.shape is None else memory.bytes_everywhere(one, found.mesh)
            for one in state(found)
        )
        once = totals(found, STATE_GROUPS).bytes
        return None if everywhere is None or once is None else everywhere - once

    return _of_state(found, duplicated)


def _largest(found: Snapshot) -> Statement:
    arrays = state(found)
    if not arrays:
        return Statement("none", excluded=_NO_ARRAYS)
    if any(array.bytes_per_device is None for array in arrays):
        return Statement(UNKNOWN)
    largest = max(arrays, key=lambda array: array.bytes_per_device or 0)
    held = largest.bytes_per_device
    return Statement(f"{bytes_text(held)}, {largest.path}", held)
