"""`python -m benchmarks.accuracy fit|sweeps|trials`: fit the predictions, and judge the order of layouts."""

from __future__ import annotations

import argparse
import sys

from benchmarks.accuracy import layout_trials, review, sections, sweeps
from benchmarks.accuracy.fitting import MeasuredProgram
from benchmarks.accuracy.table import fitted_table, measured_program, table_text
from inspector.answers.section import Section
from inspector.compare.measured import published_runs
from inspector.compare.measured.published_runs import PublishedRun
from inspector.files import output
from inspector.layout import Layout
from inspector.media.terminal import options as shared
from inspector.media.terminal import render
from inspector.media.terminal.accuracy_verb import compare_runs
from inspector.prediction.calibration import accuracy_table
from inspector.records.snapshot import Snapshot
from inspector.text.errors import InvalidInput


def main(arguments: list[str] | None = None) -> int:
    """Return 0, or 2 for bad arguments."""
    parser = argparse.ArgumentParser(prog="benchmarks.accuracy", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="fit|sweeps|trials")
    for verb, file, help in (
        (
            _fit,
            "TABLE.json",
            "fit the constants to published runs, and write the table of a version",
        ),
        (
            _sweeps,
            "SWEEPS.json",
            "print whether predictions order the layouts of sweeps as measured",
        ),
    ):
        described = verbs.add_parser(verb.__name__.removeprefix("_"), help=help, description=help)
        described.add_argument("runs", metavar="RUNS.json", help="published runs")
        described.add_argument("file", metavar=file)
        described.add_argument("--snapshots", metavar="FOLDER", help="keeps compiled Snapshots of the runs")
        described.add_argument("--no-compile", action="store_true", help="compile nothing")
        described.set_defaults(verb=verb)
        if verb is _fit:
            even = "write the table even if the errors of a group of runs grow"
            described.add_argument("--even-if-worse", action="store_true", help=even)
    help = "print whether trials of layouts are predicted to fit, and in the right order"
    described = verbs.add_parser("trials", help=help, description=help)
    described.add_argument("file", metavar="TRIALS.json")
    described.set_defaults(verb=_trials)
    options = parser.parse_args(arguments)
    try:
        options.verb(options)
    except InvalidInput as error:
        parser.error(str(error))
    return 0


def _fit(options: argparse.Namespace) -> None:
    """Write the new table, unless a group of runs is predicted worse than by the one of this version.

    Without a compile and kept Snapshots, the predictions from schedules are those of this version.
    """
    output.refuse_unwritable(options.file)
    programs: dict[bool, list[MeasuredProgram]] = {True: [], False: []}

    def seen(run: PublishedRun, found: Snapshot) -> None:
        program = measured_program(run, found)
        if program is not None:
            programs[found.source.kind == "plan"].append(program)

    runs = published_runs.read(options.runs)
    found = compare_runs(runs, options.snapshots, options.no_compile, seen)
    kept = accuracy_table() if options.no_compile and options.snapshots is None else None
    table = fitted_table(runs, programs[False], programs[True], found, kept)
    found_groups = list(review.groups(runs, accuracy_table()["rows"], table["rows"]))
    render.show([sections.review(found_groups)])
    worse = [f"{one.name}, {one.stage}" for one in found_groups if one.refused]
    if worse and not options.even_if_worse:
        raise InvalidInput(
            f"the table is not written without --even-if-worse: the median error grows by more than "
            f"{review.WORSE:.1%} of the step, or runs are lost, for {'; '.join(worse)}"
        )
    output.write_text(table_text(table), options.file)


def _sweeps(options: argparse.Namespace) -> None:
    runs = published_runs.read(options.runs)
    found = compare_runs(runs, options.snapshots, options.no_compile)
    swept = sweeps.read(options.file, runs, found.rows)
    render.show([Section("sweeps", "Order of layouts in sweeps", sections.orders(swept))])


def _trials(options: argparse.Namespace) -> None:
    trials = layout_trials.read(options.file)
    total = len({one.layout.key() for one in trials if one.layout is not None})
    partitioned = 0
    with shared.workers() as service:

        def planned(layout: Layout) -> Snapshot | None:
            nonlocal partitioned
            partitioned += 1
            print(f"partition {partitioned} of {total}", file=sys.stderr, flush=True)
            return service.with_programs(service.plan(layout), layout)

        found = layout_trials.judged(trials, planned)
    render.show([sections.trials(found)])


if __name__ == "__main__":
    sys.exit(main())
