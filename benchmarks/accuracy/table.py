"""The table that a version ships: constants that are fitted to published runs, and a row for each run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from benchmarks.accuracy import fitting
from benchmarks.accuracy.fitting import MeasuredProgram
from inspector.compare.measured.accuracy import NOT_COMPILED, Accuracy, row_of
from inspector.compare.measured.published_runs import PublishedRun
from inspector.machines import targets
from inspector.prediction.calibration import accuracy_table, default_constants
from inspector.prediction.predicted import RangedAmounts, combined, interval, predicted
from inspector.prediction.ratios import KINDS, Needs
from inspector.prediction.step_parts import step_parts
from inspector.records.snapshot import Snapshot


def fitted_table(
    runs: Sequence[PublishedRun],
    programs: Sequence[MeasuredProgram],
    partitioned: Sequence[MeasuredProgram],
    found: Accuracy,
    known: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the table that a version ships: constants fitted to the programs, and a row for each run.

    The interval of a row comes from the runs of other models, as its prediction does.

    Args:
      programs, propagated: the compiled and the propagated train steps of the runs.
      found: the versions of the compilers, and why a run has no prediction.
      known: a table whose predictions from schedules are kept, with their constants. The fit is then only
        that of all other constants. None to use the compiled programs.
    """
    before = [run for run in map(fitting.partitioned_run, partitioned) if run is not None]
    without_compile = fitting.left_out_before_compile(before)
    without_chip = fitting.left_out_chip(before)
    fitted_before = fitting.fitted_before_compile(before) if before else None
    with_all = {} if fitted_before is None else fitting.before_compile_seconds(before, fitted_before)
    if known is None:
        constants, schedules = _from_schedules(programs)
        versions = found.versions
    else:
        constants, versions = known["constants"], known["versions"]
        schedules = {
            row["id"]: (row["schedule"], row["compiled"])
            for row in known["rows"]
            if row["schedule"] and row["compiled"]
        }
    judged = {
        name: combined(alone, without_compile[name])
        for name, (_, alone) in schedules.items()
        if name in without_compile
    }
    reasons = {row.id: row.reason for row in found.rows if row.reason}
    # A kept schedule is that of the layout of its time.
    corrections = {row["id"]: row["correction"] for row in (known or {"rows": ()})["rows"]}
    amounts = {one.name: RangedAmounts.of(one.program, one.mesh, one.chip) for one in partitioned}
    needs_of = {one.name: _needs(one) for one in partitioned}
    rows = []
    for run in runs:
        row = row_of(run)
        row = replace(row, correction=corrections.get(run.name, row.correction))
        if run.name in amounts:
            needs = needs_of[run.name]
            row = replace(row, flops=amounts[run.name].flops, moved=amounts[run.name].moved, needs=needs)
        if run.name in judged:
            others = [
                (one.chip, one.seconds / judged[one.name])
                for one in runs
                if one.name in judged and one.seconds and one.model != run.model
            ]
            between = interval(others, run.chip)
            schedule, alone = schedules[run.name]
            row = replace(
                row,
                predicted=combined(schedule, with_all[run.name]),
                left_out=judged[run.name],
                schedule=schedule,
                compiled=alone,
                low=judged[run.name] * between.low if between else None,
                high=judged[run.name] * between.high if between else None,
            )
        elif run.reason is None:
            row = replace(row, reason=reasons.get(run.name, NOT_COMPILED))
        rows.append(
            replace(
                row,
                before_compile=without_compile.get(run.name),
                without_chip=without_chip.get(run.name),
            )
        )
    return {
        "versions": versions,
        "constants": constants,
        "before_compile": asdict(fitted_before) if fitted_before else {},
        "trials": accuracy_table()["trials"],
        "rows": [_rounded(asdict(row)) for row in rows],
    }


def _needs(one: MeasuredProgram) -> dict[str, tuple[float, float]]:
    """Return the whole and the exposed seconds of a partitioned train step by kind."""
    needs = Needs.of(step_parts(predicted(one.program, one.mesh, one.chip), None))
    return {kind: (needs.whole[kind], needs.exposed[kind]) for kind in KINDS if needs.whole[kind]}


def _from_schedules(
    programs: Sequence[MeasuredProgram],
) -> tuple[dict[str, dict[str, float]], dict[str, tuple[float, float]]]:
    """Return the fitted constants of each chip, and the seconds of each run from its schedule alone.

    The seconds are those with the constants of all runs, and with those fitted without the runs of its model.
    """
    chips = {one.chip.name: one.chip for one in programs}
    known = fitting.Predictions()
    constants = {name: fitting.fitted(programs, chip, known) for name, chip in chips.items()}
    without = fitting.left_out(programs, known)
    seconds = {}
    for one in programs:
        own = known.seconds(one, constants[one.chip.name])
        if own is not None and one.name in without:
            seconds[one.name] = own, without[one.name]
    changed = {
        name: {
            field: round(value, 4)
            for field, value in asdict(each).items()
            if value != getattr(default_constants(chips[name]), field)
        }
        for name, each in sorted(constants.items())
    }
    return {name: values for name, values in changed.items() if values}, seconds


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with five digits of each number."""

    def short(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: short(inner) for name, inner in value.items()}
        if isinstance(value, tuple):
            return [short(inner) for inner in value]
        return float(f"{value:.5g}") if isinstance(value, float) else value

    return {name: short(value) for name, value in row.items()}


def measured_program(run: PublishedRun, snapshot: Snapshot) -> MeasuredProgram | None:
    """Return the train step of a run's Snapshot with its measured seconds; None if one is missing."""
    program, chip = snapshot.program("train_step"), targets.chip_of(snapshot)
    if program is None or chip is None or snapshot.mesh is None or run.seconds is None:
        return None
    if predicted(program, snapshot.mesh, chip).seconds is None:
        return None
    return MeasuredProgram(run.name, run.model, chip, program, snapshot.mesh, run.seconds, run.mixture)


def table_text(table: Mapping[str, Any]) -> str:
    """Return the table as JSON with a line for each row."""
    head = json.dumps({name: value for name, value in table.items() if name != "rows"}, indent=1)
    rows = ",\n  ".join(json.dumps(row) for row in table["rows"])
    return f'{head.removesuffix("}").rstrip()},\n "rows": [\n  {rows}\n ]\n}}\n'
