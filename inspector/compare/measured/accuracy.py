"""Predicted against published step times: the error of each run, and the order within each model."""

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from inspector.compare.measured.published_runs import PublishedRun
from inspector.compare.ratio import of_needs
from inspector.layout import Layout
from inspector.machines import targets
from inspector.prediction.calibration import accuracy_table
from inspector.prediction.predicted import predicted
from inspector.prediction.ratios import pairs, published
from inspector.records.snapshot import Snapshot
from inspector.text.errors import InvalidInput

# Runs of one model whose measured times differ by less are not compared with each other.
DIFFERENT = 1.1
_PERCENTILE = 0.9
NOT_COMPILED = "it was not compiled for this version"
NO_KERNEL = "its flash attention cannot be compiled without a GPU, so it is predicted before a compile only"


@dataclass(frozen=True)
class AccuracyRow:
    """One published run.

    Attributes:
      measured, predicted: Seconds of one step; None if unknown. The prediction is from the compiled and the
        partitioned program.
      left_out: Seconds, predicted with constants that were fitted without the runs of this model. None for
        runs that are not in the table of this version.
      compiled: Seconds, predicted from the schedule alone, in the table of this version also without the
        runs of this model. None if unknown.
      before_compile: The same without a compile.
      without_chip: In the table of this version, the same without the runs of this chip.
      low, high: Ends of the interval in seconds.
      reason: Why it is not reproduced; None if it is.
      correction: How the layout differs from the published row, because its source does; None if it does not.
      schedule: In the table of this version, seconds from the schedule alone with the constants of all runs,
        so that another fit needs no compile.
      flops: In the table of this version, FLOPs of matrix products of one device.
      moved: Bytes of HBM of one device, if all is fused that compilers can fuse.
      mixture: Whether it is a mixture of experts.
      needs: Seconds by kind before a compile, the whole and the exposed ones, as `ratios.Needs` has them.
    """

    id: str
    chip: str
    model: str
    chips: int | None
    measured: float | None
    predicted: float | None = None
    left_out: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str | None = None
    before_compile: float | None = None
    without_chip: float | None = None
    correction: str | None = None
    compiled: float | None = None
    schedule: float | None = None
    flops: float | None = None
    moved: float | None = None
    mixture: bool = False
    needs: dict[str, tuple[float, float]] | None = None

    @property
    def known(self) -> bool:
        """Whether there is a prediction, from a compiled or a partitioned program."""
        return bool(self.judged or self.before_compile)

    @property
    def judged(self) -> float | None:
        """The prediction that counts: without the runs of the same model if that is known."""
        return self.left_out or self.predicted

    @property
    def error(self) -> float | None:
        """Predicted over measured seconds, minus 1."""
        return None if not self.judged or not self.measured else self.judged / self.measured - 1


@dataclass(frozen=True)
class Accuracy:
    """All rows of a file of runs, the versions of the compilers, and the counts of trials."""

    rows: tuple[AccuracyRow, ...]
    versions: dict[str, str]
    trials: tuple[dict[str, Any], ...] = ()

    @property
    def errors(self) -> list[float]:
        """Absolute errors of the reproduced runs, in ascending order."""
        return sorted(abs(row.error) for row in self.rows if row.error is not None)

    @property
    def median(self) -> float | None:
        return statistics.median(self.errors) if self.errors else None

    @property
    def percentile_90(self) -> float | None:
        return percentile_90(self.errors)

    @property
    def errors_before_compile(self) -> list[float]:
        """Absolute errors of the predictions without a compile, in ascending order."""
        return self.errors_of("before_compile")

    def errors_of(self, estimate: str, chip: str | None = None) -> list[float]:
        """Return the absolute errors of a prediction, in ascending order.

        Args:
          estimate: `judged`, or the name of the attribute with another prediction.
          chip: of the runs that count; None for all.
        """
        rows = (row for row in self.rows if chip in (None, row.chip) and row.measured)
        known = ((getattr(row, estimate), row.measured or 1.0) for row in rows)
        return sorted(abs(value / measured - 1) for value, measured in known if value)

    @property
    def inside(self) -> tuple[int, int]:
        """Runs whose measured time is in the interval, and runs with an interval."""
        known = [row for row in self.rows if row.low and row.high and row.measured]
        return sum(row.low <= row.measured <= row.high for row in known), len(known)  # type: ignore[operator]

    @property
    def predicted(self) -> tuple[int, int]:
        """Runs with a published step time that are predicted, and all runs with a published step time."""
        measured = [row for row in self.rows if row.measured]
        return sum(row.known for row in measured), len(measured)

    @property
    def missing(self) -> dict[str, int]:
        """Why the other runs with a published step time are not predicted, most runs first."""
        rows = (row for row in self.rows if row.measured and not row.known)
        return dict(Counter(row.reason or "unknown" for row in rows).most_common())

    @property
    def ordered(self) -> tuple[int, int]:
        """Pairs of runs of one model on one chip in the right order, and all pairs that differ enough."""
        return ordered(self.rows)


@dataclass(frozen=True)
class PairVerdicts:
    """Pairs of runs of one model on one chip, and those that are called better or worse before a compile.

    Attributes:
      by_pairs: Those that are called by the published pairs alone.
      called: Those that a verdict calls. right: Those of them that are measured so.
    """

    chip: str
    pairs: int
    by_pairs: int
    called: int
    right: int


def called(accuracy: Accuracy) -> list[PairVerdicts]:
    """Return the numbers of pairs of runs called by chip, the published trials of layouts last."""
    checked = published(compiled=False)
    by_chip: dict[str, list[tuple[bool, bool, bool]]] = {}
    for pair in pairs([asdict(row) for row in accuracy.rows], "before_compile"):
        if pair.needs is None or checked is None:
            continue
        ratio = of_needs(math.exp(pair.predicted), *pair.needs, pair.chip, checked)
        decided = ratio.answer in ("better", "worse")
        right = decided and (ratio.answer == "worse") == (pair.measured > 0)
        alone = abs(pair.predicted) > math.log(checked.factor)
        by_chip.setdefault(pair.chip, []).append((alone, decided, right))
    rows = [PairVerdicts(chip, len(own), *map(sum, zip(*own, strict=True))) for chip, own in by_chip.items()]
    return rows + [PairVerdicts(**trials) for trials in accuracy.trials]


def percentile_90(errors: Sequence[float]) -> float | None:
    """Return the error that nine of ten are not above; None without errors. They ascend."""
    return errors[min(len(errors) - 1, int(_PERCENTILE * len(errors)))] if errors else None


def ordered(rows: Sequence[AccuracyRow]) -> tuple[int, int]:
    """Return the pairs of runs of one model on one chip in the right order, and all that differ enough."""
    right = total = 0
    for row, other in itertools.combinations(rows, 2):
        if (row.model, row.chip) != (other.model, other.chip):
            continue
        fast, slow = sorted((row, other), key=lambda row: row.measured or 0)
        if not fast.measured or (slow.measured or 0) < DIFFERENT * fast.measured:
            continue
        # Both from schedules, or both without a compile.
        predictions = (fast.judged, slow.judged)
        if None in predictions:
            predictions = (fast.before_compile, slow.before_compile)
        if predictions[0] and predictions[1]:
            total += 1
            right += predictions[0] < predictions[1]
    return right, total


def shipped() -> Accuracy:
    """Return the table of this version."""
    table = accuracy_table()
    return Accuracy(
        tuple(AccuracyRow(**row) for row in table["rows"]), table["versions"], tuple(table["trials"])
    )


def row_of(run: PublishedRun) -> AccuracyRow:
    """Return the row of a run without a prediction."""
    return AccuracyRow(
        run.name,
        run.chip,
        run.model,
        run.chips,
        run.seconds,
        reason=run.reason,
        correction=run.correction,
        mixture=run.mixture,
    )


def compared(
    runs: Sequence[PublishedRun],
    planned: Callable[[Layout], Snapshot],
    compiled: Callable[[PublishedRun, Layout], Snapshot | None],
    seen: Callable[[PublishedRun, Snapshot], object] = lambda run, snapshot: None,
) -> Accuracy:
    """Plan and compile the layout of each run that can be reproduced, and predict its step.

    Args:
      planned: returns the Snapshot of a layout with partitioned programs.
      compiled: returns that of a run with compiled programs; None if it is not to be compiled.
      seen: gets each of these Snapshots.
    """
    versions: dict[str, str] = {}
    rows: list[AccuracyRow] = []
    for run in runs:
        row = row_of(run)
        if run.layout is not None:
            machine = run.layout.machine
            needs_gpu = machine is not None and machine.kind == "gpu"
            needs_gpu &= run.layout.sizes.get("attention") == "flash"
            row = _with_reason(row, NO_KERNEL if needs_gpu else NOT_COMPILED)
            try:
                before = planned(run.layout)
                seen(run, before)
                row = replace(row, before_compile=_seconds(before))
                after = None if needs_gpu else compiled(run, run.layout)
                if after is not None:
                    seen(run, after)
                    versions |= after.source.versions
                    row = predicted_row(replace(row, reason=None), after, before)
            except InvalidInput as error:
                row = _with_reason(row, str(error))
        rows.append(row)
    return Accuracy(tuple(rows), versions)


def _seconds(snapshot: Snapshot) -> float | None:
    """Return the predicted seconds of the train step of a Snapshot; None if unknown."""
    program, chip = snapshot.program("train_step"), targets.chip_of(snapshot)
    if program is None or chip is None or snapshot.mesh is None:
        return None
    return predicted(program, snapshot.mesh, chip).seconds


def predicted_row(row: AccuracyRow, snapshot: Snapshot, planned: Snapshot | None = None) -> AccuracyRow:
    """Return the row with the prediction for the train step of its compiled Snapshot.

    planned: the Snapshot with the partitioned programs.
    """
    program, chip = snapshot.program("train_step"), targets.chip_of(snapshot)
    if program is None or chip is None or snapshot.mesh is None:
        return _with_reason(row, "its train step was not compiled")
    before = None if planned is None else planned.program("train_step")
    found = predicted(program, snapshot.mesh, chip, partitioned=before)
    if found.seconds is None or found.at_least:
        return _with_reason(row, (*found.unknown, *found.at_least)[0])
    return replace(
        row,
        predicted=found.seconds,
        low=found.low,
        high=found.high,
        compiled=found.schedule_seconds,
    )


def _with_reason(row: AccuracyRow, reason: str) -> AccuracyRow:
    return replace(row, reason=reason)


# The predictions of a run, by their attribute of `AccuracyRow`.
ESTIMATES = {
    "judged": "Predicted",
    "compiled": "Schedule alone",
    "before_compile": "Before a compile",
    "without_chip": "Before a compile, without runs of its chip",
}


def by_chip(accuracy: Accuracy) -> dict[str, dict[str, dict[str, float | int | None]]]:
    """Return number of runs, median and 90th percentile of the errors, by chip and prediction.

    Of a chip with compiled runs only these count, so that the predictions are of the same runs.
    """
    chips = dict.fromkeys(row.chip for row in accuracy.rows if row.measured and row.known)
    judged = {row.chip for row in accuracy.rows if row.judged and row.measured}
    counting = tuple(row for row in accuracy.rows if row.judged or row.chip not in judged)
    compiled = replace(accuracy, rows=counting)
    return {
        chip: {
            estimate: {
                "runs": len(errors),
                "median": _median(errors),
                "percentile_90": percentile_90(errors),
            }
            for estimate in ESTIMATES
            for errors in (compiled.errors_of(estimate, chip),)
        }
        for chip in chips
    }


def _median(errors: Sequence[float]) -> float | None:
    return statistics.median(errors) if errors else None


def json_of(accuracy: Accuracy) -> dict[str, Any]:
    """Return the table and its summary as plain JSON."""
    inside, known = accuracy.inside
    right, ordered = accuracy.ordered
    before = accuracy.errors_before_compile
    predicted, measured = accuracy.predicted
    return {
        "versions": accuracy.versions,
        "with_step_time": measured,
        "predicted": predicted,
        "not_predicted": accuracy.missing,
        "reproduced": len(accuracy.errors),
        "reproduced_before_compile": len(before),
        "median_error_before_compile": _median(before),
        "median_error": accuracy.median,
        "percentile_90_error": accuracy.percentile_90,
        "median_error_of_schedules": _median(accuracy.errors_of("compiled")),
        "by_chip": by_chip(accuracy),
        "inside_interval": inside,
        "with_interval": known,
        "ordered_pairs": right,
        "pairs": ordered,
        "called": [asdict(row) for row in called(accuracy)],
        "rows": [asdict(row) | {"error": row.error} for row in accuracy.rows],
    }
