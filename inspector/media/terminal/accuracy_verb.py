"""`accuracy`: predictions against published measurements."""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path

from inspector.compare.measured import accuracy as comparison
from inspector.compare.measured import layout_trials, local_runs, published_runs, sweeps
from inspector.compare.measured.sweeps import Sweep
from inspector.core import output, snapshot, typed_json
from inspector.core.errors import InvalidInput, choices, shown
from inspector.core.formatting import counted
from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
from inspector.machines.prediction import own_runs
from inspector.machines.prediction.calibration import accuracy_table
from inspector.media.terminal import options as shared
from inspector.media.terminal import render
from inspector.media.terminal.options import JSON, argument, verb
from inspector.sections import accuracy as section_of_accuracy
from inspector.service.inspection import Inspection


@verb(
    "accuracy",
    "print predicted against published step times, with the error of each and the order within each model",
    argument(
        "--runs",
        metavar="FILE",
        help="published runs in JSON; each layout is compiled and predicted, which takes minutes for a large "
        "one. Without it, the table of this version",
    ),
    argument(
        "--only", metavar="TEXT", help="with --runs: only the runs whose id contains this text"
    ),
    argument(
        "--fit",
        metavar="TABLE.json",
        help="with --runs: also fit the constants of each chip, and write the table that this version has; "
        "with --no-compile and no --snapshots, the predictions from schedules are those of this version",
    ),
    argument(
        "--snapshots",
        metavar="FOLDER",
        help="with --runs: keep the compiled Snapshot of each run in this folder, and take those of the same "
        "layouts from it, so that an interrupted command continues",
    ),
    argument(
        "--no-compile",
        action="store_true",
        help="with --runs: compile nothing; a run without a Snapshot in the folder or in the cache is "
        "predicted before a compile only",
    ),
    argument(
        "--sweeps",
        metavar="FILE",
        help="with --runs: sweeps of layouts in JSON; print whether predictions order them as measured",
    ),
    argument(
        "--trials",
        metavar="FILE",
        help="published trials of layouts on A100 GPUs in JSON, some of which did not fit; each is "
        "partitioned, and the command prints whether it is predicted to fit and in the right order",
    ),
    argument(
        "--add",
        metavar="SNAPSHOT.json",
        help="add the measured steps of a run with the target local to the own runs, which the intervals "
        "of later predictions use",
    ),
    JSON,
)
def accuracy(options: argparse.Namespace) -> None:
    """Print the table of this version, compile the runs of a file, or add a run of this machine."""
    if options.add is not None:
        if options.runs is not None:
            raise InvalidInput("--add and --runs cannot be used together")
        new = local_runs.add(snapshot.read(options.add))
        print(f"{counted(len(new), 'run')} added to {own_runs.path()}", file=sys.stderr)
    if options.fit is not None:
        if options.runs is None:
            raise InvalidInput("--fit needs the runs of --runs")
        output.refuse_unwritable(options.fit)
    if options.runs is None and (options.snapshots is not None or options.no_compile):
        raise InvalidInput("--snapshots and --no-compile need the runs of --runs")
    if options.snapshots is not None:
        try:
            Path(options.snapshots).mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError):
            raise InvalidInput(
                f"--snapshots is {shown(options.snapshots)}, but must be a folder, or be possible to create"
            ) from None
    if options.runs is None and options.only is not None:
        raise InvalidInput("--only needs the runs of --runs")
    if options.runs is None and options.sweeps is not None:
        raise InvalidInput("--sweeps needs the runs of --runs, whose layouts its rows have")
    if options.trials is not None:
        if options.runs is not None:
            raise InvalidInput("--trials and --runs cannot be used together")
        _trials(options)
        return
    swept: tuple[Sweep, ...] = ()
    if options.runs is None:
        found = comparison.shipped()
    else:
        runs = published_runs.read(options.runs)
        if options.only:
            names = [run.name for run in runs]
            runs = tuple(run for run in runs if options.only in run.name)
            if not runs:
                raise InvalidInput(
                    f"--only is {shown(options.only)}, but must be a part of {choices(options.only, names)}"
                    if names
                    else f"{options.runs} has no runs"
                )
        with shared.workers() as service:
            compared = comparison.compared(
                runs,
                lambda layout: service.with_programs(service.plan(layout), layout),
                lambda run, layout: _compiled(service, run.name, layout, options),
            )
        found = compared.accuracy
        if options.sweeps is not None:
            swept = sweeps.read(options.sweeps, runs, found.rows)
        if options.fit is not None:
            kept = accuracy_table() if options.no_compile and options.snapshots is None else None
            table = comparison.fitted_table(
                runs, compared.compiled, compared.propagated, found, kept
            )
            output.write_text(json.dumps(table, indent=1) + "\n", options.fit)
    if options.json:
        orders = {"sweeps": [asdict(one) for one in swept]} if options.sweeps is not None else {}
        own = {"own": typed_json.encode(list(own_runs.read()))}
        shared.print_json(comparison.json_of(found) | orders | own)
    else:
        render.show([section_of_accuracy.section(found, swept, own_runs.read())])


def _trials(options: argparse.Namespace) -> None:
    """Print what a partitioned program predicts for the trials of a file."""
    trials = layout_trials.read(options.trials)
    total = len({one.layout.key() for one in trials if one.layout is not None})
    with shared.workers() as service:
        counter = itertools.count(1)

        def propagate(layout: Layout) -> Snapshot | None:
            print(f"propagate {next(counter)} of {total}", file=sys.stderr, flush=True)
            return service.with_programs(service.plan(layout), layout)

        found = layout_trials.judged(trials, propagate)
    if options.json:
        shared.print_json(asdict(found))
    else:
        render.show([section_of_accuracy.trials(found)])


def _compiled(
    service: Inspection, name: str, layout: Layout, options: argparse.Namespace
) -> Snapshot | None:
    """Return the compiled Snapshot of a run: that in the folder or in the compile cache, or a new one.

    None if there is none and nothing is to be compiled.
    """
    kept = None if options.snapshots is None else _file(options.snapshots, name)
    if kept is not None and kept.exists():
        found = snapshot.read(kept)
        unsafe = found.source.unsafe_compiler_options
        if found.layout == layout.to_json() and unsafe is None:
            return found
    made = service.cached_compile(layout)
    if made is None:
        if options.no_compile:
            return None
        print(f"compile {name} for {layout.target}", file=sys.stderr, flush=True)
        planned = service.plan(layout)
        made = shared.follow(service.start_run(layout, planned), lambda status: status.phase or "")
    if kept is not None:
        output.write_text(snapshot.dumps(made), kept)
    return made


def _file(folder: str, name: str) -> Path:
    """Return the file of a run in the folder. Names of runs can come from anywhere."""
    return Path(folder) / f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)[:200]}.json"
