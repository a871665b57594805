"""`accuracy`: predictions against published measurements."""

from __future__ import annotations

import argparse
import json
import sys

from inspector.compare import accuracy as comparison
from inspector.compare import published_runs
from inspector.core import output
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
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
        help="with --runs: also fit the constants of each chip, and write the table that this version has",
    ),
    JSON,
)
def accuracy(options: argparse.Namespace) -> None:
    """Print the table of this version, or compile the runs of a file."""
    if options.fit is not None:
        if options.runs is None:
            raise InvalidInput("--fit needs the runs of --runs")
        output.refuse_unwritable(options.fit)
    if options.runs is None:
        found = comparison.shipped()
    else:
        runs = published_runs.read(options.runs)
        if options.only:
            runs = tuple(run for run in runs if options.only in run.name)
        with shared.workers() as service:
            compared = comparison.compared(
                runs,
                lambda layout: service.with_programs(service.plan(layout), layout),
                lambda layout: _compiled(service, layout),
            )
        found = compared.accuracy
        if options.fit is not None:
            table = comparison.fitted_table(
                runs, compared.compiled, compared.propagated, found.versions
            )
            output.write_text(json.dumps(table, indent=1) + "\n", options.fit)
    if options.json:
        shared.print_json(comparison.json_of(found))
    else:
        render.show([section_of_accuracy.section(found)])


def _compiled(service: Inspection, layout: Layout) -> Snapshot:
    """Return the compiled Snapshot of a layout, from the compile cache if it is there."""
    kept = service.cached_compile(layout)
    if kept is not None:
        return kept
    print(f"compile for {layout.target}", file=sys.stderr, flush=True)
    planned = service.plan(layout)
    return shared.follow(service.start_run(layout, planned), lambda status: status.phase or "")
