"""Sums over the arrays of a Snapshot."""

from __future__ import annotations

from dataclasses import dataclass

from inspector.snapshot import Snapshot

STATE_GROUPS = ("params", "opt_state", "other")


@dataclass(frozen=True)
class Totals:
    """Bytes of some arrays: each once, and on one device. None where an array's are not known.

    `copies` is the bytes on all devices over `bytes`.
    """

    arrays: int
    bytes: int | None
    per_device: int | None
    copies: float | None


def state_totals(found: Snapshot) -> Totals:
    """The totals of the train state: parameters, optimizer state and step."""
    return totals(found, STATE_GROUPS)


def totals(found: Snapshot, groups: tuple[str, ...]) -> Totals:
    """The totals of the arrays in these groups."""
    if not found.arrays:  # a program's text alone: what it was given is not known
        return Totals(0, None, None, None)
    arrays = [array for array in found.arrays if array.group in groups]
    once = _sum(array.bytes for array in arrays)
    held = _sum(array.bytes_per_device for array in arrays)
    copies = None
    if once and held is not None and found.mesh is not None:
        copies = held * found.mesh.size / once
    return Totals(len(arrays), once, held, copies)


def _sum(values) -> int | None:
    known = list(values)
    return None if any(value is None for value in known) else sum(known)
