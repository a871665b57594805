"""How close predicted step times are to published measurements."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

from inspector.answers.section import Block, Cell, Column, Facts, Folded, Picture, Section, Table, text
from inspector.compare.measured.accuracy import ESTIMATES, Accuracy, AccuracyRow, by_chip, called
from inspector.figures.accuracy_scatter import accuracy_scatter
from inspector.machines.hardware import Chip
from inspector.prediction.calibration import OwnRun, counts, path
from inspector.prediction.predicted import CLAIMED, ENOUGH_RUNS, interval_of
from inspector.records.statistics import by_key
from inspector.text.formatting import and_text, counted, seconds_text
from inspector.text.program_names import title

# Columns that identify a published run.
_RUN: dict[str | Column, Callable[[AccuracyRow], Cell]] = {
    "Run": lambda row: row.id,
    "Chip": lambda row: row.chip,
}


def section(accuracy: Accuracy, own: Sequence[OwnRun] = (), chip: Chip | None = None) -> Section:
    """Return an introduction, the scatter plot, the errors, all runs, and own runs.

    chip: of the runs to show, instead of those on all chips.
    """
    where = ""
    if chip is not None:
        where = f" on {chip.title}"
        accuracy = replace(accuracy, rows=tuple(row for row in accuracy.rows if row.chip == chip.name))
        own = [run for run in own if run.chip == chip.name]
    reproduced = [row for row in accuracy.rows if row.known]
    others = [row for row in accuracy.rows if row not in reproduced]
    blocks: list[Block] = []
    if reproduced:
        blocks += [
            text(introduction(reproduced), quiet=True),
            Picture(
                "accuracy",
                "Predicted against measured step times",
                lambda width_px: accuracy_scatter(accuracy, width_px=width_px),
            ),
            summary(accuracy),
            *estimates(accuracy),
            *calls(accuracy),
            runs(reproduced),
            *corrections(reproduced),
        ]
    else:
        blocks.append(text(f"No published run{where} is reproduced, so the accuracy is unknown.", quiet=True))
    if chip is not None and (known := interval_of(chip.name)) is not None and known.chip is None:
        blocks.insert(
            1,
            text(
                f"Predictions of compiled programs{where} have no interval, because fewer than {ENOUGH_RUNS} "
                f"compiled runs are{where}. Those of the table are judged by {counted(known.runs, 'run')} on "
                "all chips."
            ),
        )
    if others:
        blocks.append(
            Folded(
                f"{counted(len(others), 'run')} not reproduced, with the reason",
                (counted_reasons(accuracy), reasons(others)),
            )
        )
    if own:
        blocks += own_runs(own)
    if accuracy.versions:
        versions = ", ".join(f"{name} {version}" for name, version in sorted(accuracy.versions.items()))
        blocks.append(text(f"Compiled with {versions}.", quiet=True))
    return Section("accuracy", "Accuracy", tuple(blocks))


def introduction(rows: Sequence[AccuracyRow]) -> str:
    """Return how the times of these runs were predicted, and which of them are unknown."""
    compiled = [row for row in rows if row.judged]
    others = len(rows) - len(compiled)
    said = f"{counted(len(compiled), 'published run')} compiled and predicted with this version."
    if others:
        said += (
            f" Of {counted(others, 'more run')}, which {'was' if others == 1 else 'were'} not compiled, only "
            "the prediction before a compile is known: predicted time, error and interval are unknown."
        )
    if compiled and all(row.left_out for row in compiled):
        said += " Each prediction uses constants that were fitted without the runs of its model."
    return said


def summary(accuracy: Accuracy) -> Facts:
    """Return the errors, the share inside the interval, and the share of pairs in the right order."""
    inside, known = accuracy.inside
    predicted, measured = accuracy.predicted
    before = accuracy.errors_before_compile
    right, pairs = accuracy.ordered
    return Facts.of(
        (
            "Median error",
            _percent(accuracy.median),
            f"{counted(len(accuracy.errors), 'published run')}, predicted from compiled programs.",
        ),
        ("90th percentile", _percent(accuracy.percentile_90)),
        (
            "Predicted",
            f"{predicted} of {measured}",
            "Of the published runs with a step time. The reasons of the others are below.",
        ),
        (
            "Before a compile",
            _percent(statistics.median(before)) if before else "unknown",
            f"{counted(len(before), 'published run')}, predicted from partitioned programs.",
        ),
        (f"Inside the {CLAIMED:.0%} interval", f"{inside} of {known}" if known else "unknown"),
        (
            "Pairs in order",
            f"{right} of {pairs}" if pairs else "unknown",
            "Pairs of runs of one model on one chip whose measured times differ by more than 10%, and "
            "whose predicted times are in the same order.",
        ),
    )


def estimates(accuracy: Accuracy) -> tuple[Block, ...]:
    """Return the errors of both estimates and of their combination, by chip."""
    rows = [
        (chip, estimate, errors)
        for chip, by_estimate in by_chip(accuracy).items()
        for estimate, errors in by_estimate.items()
        if errors["runs"]
    ]
    if not rows:
        return ()
    table = Table.of(
        "accuracy_estimates",
        rows,
        {
            "Chip": lambda row: row[0],
            "Estimate": lambda row: ESTIMATES[row[1]],
            "Runs": lambda row: row[2]["runs"],
            "Median error": lambda row: _percent(row[2]["median"]),
            "90th percentile": lambda row: _percent(row[2]["percentile_90"]),
        },
    )
    said = "A prediction combines the estimates from the schedule and from the partitioned program."
    return (Folded("Errors by chip and estimate", (text(said), table)),)


def calls(accuracy: Accuracy) -> tuple[Block, ...]:
    """Return how many pairs of layouts are called better or worse before a compile, and how many rightly."""
    rows = called(accuracy)
    if not rows:
        return ()
    total = f"{sum(row.called for row in rows)} of {sum(row.pairs for row in rows)}"
    table = Table.of(
        "accuracy_calls",
        rows,
        {
            "Pairs on": lambda row: row.chip,
            "Pairs": lambda row: row.pairs,
            "By published pairs alone": lambda row: row.by_pairs,
            "Called": lambda row: row.called,
            "Right": lambda row: row.right,
        },
    )
    said = "A pair is called better or worse by what both layouts need, or by the published pairs."
    return (Folded(f"{total} pairs of layouts are called better or worse", (text(said), table)),)


def runs(rows: list[AccuracyRow]) -> Table:
    """Return measured and predicted seconds of each reproduced run, those of compiled programs first."""
    return Table.of(
        "accuracy_runs",
        sorted(rows, key=lambda row: row.judged is None),
        {
            **_RUN,
            "Chips": lambda row: row.chips,
            "Model": lambda row: row.model,
            "Measured:seconds": lambda row: row.measured,
            "Predicted:seconds": lambda row: row.judged,
            "Error": lambda row: "–" if row.error is None else f"{row.error:+.1%}",
            "Schedule alone:seconds": lambda row: row.compiled,
            "Before a compile:seconds": lambda row: row.before_compile,
            f"{CLAIMED:.0%} interval": lambda row: (
                f"{seconds_text(row.low)} to {seconds_text(row.high)}" if row.low else "–"
            ),
        },
    )


def corrections(rows: list[AccuracyRow]) -> list[Block]:
    """Return how the layouts of runs differ from the published rows, with one sentence for each reason."""
    by_reason = by_key((row.correction, row.id) for row in rows if row.correction is not None)
    return [
        text(
            f"Corrected, because their source contradicts the published rows: {and_text(ids)}. They were "
            f"compiled with {reason}."
        )
        for reason, ids in by_reason.items()
    ]


def own_runs(own: Sequence[OwnRun]) -> tuple[Block, ...]:
    """Return measured and predicted seconds of the user's own runs, the newest first."""
    used = sum(map(counts, own))
    said = (
        f"{counted(len(own), 'own run')} in {path()}, of which predictions use {used}. From "
        f"{ENOUGH_RUNS} runs on a chip on, its interval comes from own runs alone."
    )
    table = Table.of(
        "own_runs",
        list(reversed(own)),
        {
            "Made": lambda run: run.created,
            "Chip": lambda run: run.chip,
            "Devices": lambda run: run.devices,
            "Model": lambda run: run.model or "unknown",
            "Program": lambda run: title(run.program),
            "Measured:seconds": lambda run: run.measured,
            "Predicted:seconds": lambda run: run.predicted,
            "Error": lambda run: f"{1 / run.ratio - 1:+.1%}",
            "Used": lambda run: "yes" if counts(run) else "no, predicted by another version",
        },
    )
    return (text(said), table)


def counted_reasons(accuracy: Accuracy) -> Table:
    """Return the reasons why runs with a published step time are not predicted, with their numbers."""
    return Table.of(
        "accuracy_missing",
        list(accuracy.missing.items()),
        {"Runs with a step time": lambda row: row[1], "Reason": lambda row: row[0]},
        wrap=True,
    )


def reasons(rows: list[AccuracyRow]) -> Table:
    """Return why each other run is not reproduced."""
    return Table.of(
        "accuracy_reasons",
        rows,
        {**_RUN, "Measured:seconds": lambda row: row.measured, "Reason": lambda row: row.reason or "unknown"},
        wrap=True,
    )


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.1%}"
