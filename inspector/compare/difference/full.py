"""A comparison in full as JSON, with keys that stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inspector.compare.difference.array_differences import ArrayDifference, arrays
from inspector.compare.difference.questions import questions
from inspector.compare.difference.reservations import reservations
from inspector.compare.difference.sentences import sentences
from inspector.compare.difference.spec_rows import spec_rows
from inspector.core import record
from inspector.core.snapshot import Array, Snapshot
from inspector.machines.hardware import Chip

FORMAT = "sharding-comparison"
VERSION = 1
# What is told of each side of an array that differs.
_FACTS = (
    *("group", "shape", "dtype", "logical_axes", "spec", "shard_shape"),
    *("bytes", "bytes_per_device", "replicas"),
)


def to_json(
    snapshots: Sequence[tuple[str, Snapshot]], baseline: int = 0, chip: Chip | None = None
) -> dict[str, Any]:
    """All that differs: the board's rows, the specs, and each Snapshot against the baseline.

    Raises:
      InvalidInput: there is no Snapshot at `baseline`.
    """
    found = [one for _, one in snapshots]
    rows = questions(found, baseline, chip)
    return {
        "format": FORMAT,
        "version": VERSION,
        "baseline": baseline,
        "chip": None if chip is None else chip.name,
        "snapshots": [
            {"name": name, "source": record.encode(one.source), "layout": one.layout}
            for name, one in snapshots
        ],
        "questions": [record.encode(row) for row in rows],
        "specs": [record.encode(row) for row in spec_rows(found)],
        "differences": [
            {
                "before": baseline,
                "after": place,
                "sentences": list(sentences(found[baseline], one, chip)),
                "reservations": list(reservations(found[baseline], one)),
                "arrays": [_array(each) for each in arrays(found[baseline], one) if each.changed],
            }
            for place, one in enumerate(found)
            if place != baseline
        ],
    }


def _array(one: ArrayDifference) -> dict[str, Any]:
    return {
        "path": one.path,
        "changed": list(one.changed),
        "placement": one.placement,
        "before": _side(one.before),
        "after": _side(one.after),
    }


def _side(array: Array | None) -> dict[str, Any] | None:
    if array is None:
        return None
    plain = record.encode(array)
    return {name: plain[name] for name in _FACTS}
