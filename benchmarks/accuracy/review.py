"""The errors of a new table beside those of the one in the repository, by group of runs and stage."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inspector.compare.measured.published_runs import PublishedRun
from inspector.records.statistics import by_key

# Predictions of a row of the table, each made without the runs of its model or of its chip.
STAGES = {
    "left_out": "after a compile",
    "compiled": "schedule alone",
    "before_compile": "before a compile",
    "without_chip": "before a compile, without its chip",
}
# A median that grows by more than this share of the measured step, over at least so many runs, is refused.
WORSE = 0.005
LEAST_RUNS = 5

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Group:
    """The errors of the runs of one chip or kind of model in one stage.

    Attributes:
      runs: Number of runs that the new table predicts.
      was, now: Median error in the old and in the new table. None without runs.
      lost: Number of runs that only the old table predicts.
      refused: Whether the group is large enough, and its median worse or a run of it lost.
    """

    name: str
    stage: str
    runs: int
    was: float | None
    now: float | None
    lost: int

    @property
    def refused(self) -> bool:
        if self.was is None or self.now is None:
            return self.lost >= LEAST_RUNS
        return self.runs + self.lost >= LEAST_RUNS and (self.now > self.was + WORSE or self.lost > 0)


def groups(runs: Sequence[PublishedRun], old: Sequence[Row], new: Sequence[Row]) -> Iterator[Group]:
    """Yield all runs, those of each chip, and those of each kind of model, in each stage.

    Both medians are of the runs that both tables predict, if there are any.
    """
    was, now = ({row["id"]: row for row in rows} for rows in (old, new))
    named = [(name, run) for run in runs for name in ("all", run.chip, *kinds_of(run))]
    for name, members in by_key(named).items():
        for stage, title in STAGES.items():
            before, after = (_errors(members, rows, stage) for rows in (was, now))
            if before or after:
                common = before.keys() & after.keys()
                yield Group(
                    name,
                    title,
                    len(after),
                    _median([before[run] for run in common or before]),
                    _median([after[run] for run in common or after]),
                    len(before.keys() - after.keys()),
                )


def kinds_of(run: PublishedRun) -> tuple[str, ...]:
    """Return the kinds of the model of a run: `mixture of experts`, and `fp8` if it is quantized."""
    if run.layout is None:
        return ()
    quantization = run.layout.sizes.get("quantization", "none")
    kind = "mixture of experts" if run.mixture else "dense"
    return (kind,) if quantization == "none" else (kind, str(quantization))


def _errors(runs: Sequence[PublishedRun], rows: Mapping[str, Row], stage: str) -> dict[str, float]:
    known = (row for run in runs if (row := rows.get(run.name)) and row.get(stage) and row["measured"])
    return {row["id"]: abs(row[stage] / row["measured"] - 1) for row in known}


def _median(errors: Sequence[float]) -> float | None:
    return statistics.median(errors) if errors else None
