"""A comparison as JSON."""

from collections.abc import Sequence
from typing import Any

from inspector.compare.caveats import caveats
from inspector.compare.compared import compared
from inspector.compare.difference.array_differences import ArrayDifference, arrays
from inspector.compare.difference.sentences import sentences
from inspector.compare.difference.spec_rows import spec_rows
from inspector.compare.questions import questions
from inspector.compare.verdict import headline, verdicts
from inspector.core import typed_json
from inspector.core.snapshot import Snapshot
from inspector.machines.hardware import Chip

_ARRAY_FIELDS = (
    *("group", "shape", "dtype", "logical_axes", "spec", "shard_shape"),
    *("bytes", "bytes_per_device", "replicas"),
)


def to_json(
    named: Sequence[tuple[str, Snapshot]], baseline: int = 0, chip: Chip | None = None
) -> dict[str, Any]:
    """Return assessments and verdicts, the Board's rows, the specs, and the differences from the baseline.

    Raises:
      InvalidInput: if there is no Snapshot at index `baseline`.
    """
    snapshots = [snapshot for _, snapshot in named]
    every = compared(named, chip)
    rows = questions(every, baseline)
    reference = snapshots[baseline]
    return {
        "format": "sharding-comparison",
        "version": 1,
        "baseline": baseline,
        "chip": None if chip is None else chip.name,
        "snapshots": [
            {"name": name, "source": typed_json.encode(snapshot.source), "layout": snapshot.layout}
            for name, snapshot in named
        ],
        "columns": [{"name": one.name, "assessment": typed_json.encode(one.assessment)} for one in every],
        "verdicts": [typed_json.encode(verdict) for verdict in verdicts(every, baseline)],
        "sentence": headline(every, baseline),
        "questions": [typed_json.encode(row) for row in rows],
        "specs": [typed_json.encode(row) for row in spec_rows(snapshots)],
        "differences": [
            {
                "before": baseline,
                "after": place,
                "sentences": list(sentences(reference, snapshot, chip)),
                "reservations": [caveat.text for caveat in caveats(reference, snapshot)],
                "arrays": [_difference(array) for array in arrays(reference, snapshot) if array.changed],
            }
            for place, snapshot in enumerate(snapshots)
            if place != baseline
        ],
    }


def _difference(difference: ArrayDifference) -> dict[str, Any]:
    sides = (
        None if array is None else typed_json.encode(array) for array in (difference.before, difference.after)
    )
    before, after = (side and {name: side[name] for name in _ARRAY_FIELDS} for side in sides)
    facts = {
        "path": difference.path,
        "changed": list(difference.changed),
        "placement": difference.placement,
    }
    return facts | {"before": before, "after": after}
