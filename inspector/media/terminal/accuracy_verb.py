"""`accuracy`: predictions against published measurements."""

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from inspector.answers import accuracy as section_of_accuracy
from inspector.compare.measured import accuracy as comparison
from inspector.compare.measured import local_runs, published_runs
from inspector.compare.measured.accuracy import Accuracy
from inspector.compare.measured.published_runs import PublishedRun
from inspector.files import output
from inspector.jobs.inspection import Inspection
from inspector.layout import Layout
from inspector.media.terminal import options as shared
from inspector.media.terminal.options import JSON, Output, argument, verb
from inspector.prediction import calibration
from inspector.records import snapshot, typed_json
from inspector.records.snapshot import Snapshot
from inspector.text.errors import InvalidInput, choices, shown
from inspector.text.formatting import counted


@verb(
    "accuracy",
    "print predicted against published step times, with the error of each and the order within each model",
    argument(
        "--runs",
        metavar="FILE",
        help="published runs in JSON; each layout is compiled and predicted, which takes minutes for a large "
        "one. Without it, the table of this version",
    ),
    argument("--only", metavar="TEXT", help="with --runs: only the runs whose id contains this text"),
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
        "--add",
        metavar="SNAPSHOT.json",
        help="add the measured steps of a run with the target local, of run --profile or of a profile to "
        "the own runs, which the intervals of later predictions use",
    ),
    JSON,
)
def accuracy(options: argparse.Namespace) -> Output:
    """Return the table of this version, compile the runs of a file, or add a run of this machine.

    Raise InvalidInput for options that do not go together.
    """
    if options.add is not None and options.runs is not None:
        raise InvalidInput("--add and --runs cannot be used together")
    if options.runs is None and (options.snapshots is not None or options.no_compile):
        raise InvalidInput("--snapshots and --no-compile need the runs of --runs")
    if options.runs is None and options.only is not None:
        raise InvalidInput("--only needs the runs of --runs")
    if options.add is not None:
        new = local_runs.add(shared.read_snapshot(options.add))
        print(f"{counted(len(new), 'run')} added to {calibration.path()}", file=sys.stderr)
    if options.runs is None:
        accuracy = comparison.shipped()
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
        if options.snapshots is not None:
            try:
                Path(options.snapshots).mkdir(parents=True, exist_ok=True)
            except (OSError, ValueError):
                raise InvalidInput(
                    f"--snapshots is {shown(options.snapshots)}, but no folder can be created there"
                ) from None
        accuracy = compare_runs(runs, options.snapshots, options.no_compile)
    return Output(
        lambda: comparison.json_of(accuracy) | {"own": typed_json.encode(list(calibration.read()))},
        lambda: [section_of_accuracy.section(accuracy, calibration.read())],
    )


def compare_runs(
    runs: Sequence[PublishedRun],
    folder: str | None,
    no_compile: bool,
    seen: Callable[[PublishedRun, Snapshot], object] = lambda run, compiled: None,
) -> Accuracy:
    """Partition, compile and predict published runs, with progress on standard error.

    Args:
      folder: keeps the compiled Snapshot of each run. None to keep none.
      no_compile: whether to compile nothing.
      seen: gets the partitioned and the compiled Snapshot of each run.
    """
    with shared.workers() as service:
        return comparison.compared(
            runs,
            lambda layout: service.with_programs(service.plan(layout), layout),
            lambda run, layout: _compiled(service, run.name, layout, folder, no_compile),
            seen,
        )


def _compiled(
    service: Inspection, name: str, layout: Layout, folder: str | None, no_compile: bool
) -> Snapshot | None:
    """Return the compiled Snapshot of a run: that in the folder or in the compile cache, or a new one.

    None if there is none and nothing is to be compiled.
    """
    kept = None if folder is None else _file(folder, name)
    if kept is not None and kept.exists():
        known = snapshot.read(kept)
        if known.layout == layout.to_json() and known.source.unsafe_compiler_options is None:
            return known
    request = service.run(layout)
    compiled = request.known()
    if compiled is None:
        if no_compile:
            return None
        print(f"compile {name} for {layout.target}", file=sys.stderr, flush=True)
        compiled = shared.follow(request, lambda status: status.phase or "")
    if kept is not None:
        output.write_text(snapshot.dumps(compiled), kept)
    return compiled


def _file(folder: str, name: str) -> Path:
    """Return the file of a run in the folder. Names of runs can come from anywhere."""
    return Path(folder) / f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)[:200]}.json"
