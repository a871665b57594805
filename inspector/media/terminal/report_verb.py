"""`report`: write one self-contained file about one or more Snapshots."""

from __future__ import annotations

import argparse

from inspector.core import output, snapshot
from inspector.core.errors import InvalidInput
from inspector.core.formatting import counted
from inspector.media import report
from inspector.media.terminal import options as shared

NAME = "report"
HELP = "write one self-contained HTML file, or Markdown for a pull request, about Snapshots"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "snapshots",
        nargs="+",
        metavar="SNAPSHOT.json",
        help="the others are compared with the first",
    )
    parser.add_argument("-o", "--output", required=True, metavar="X.html|X.md")
    shared.add_chip(parser)
    parser.add_argument(
        "--name",
        metavar="NAME",
        action="append",
        default=[],
        help="the name of a Snapshot, by default that of its file; repeat it in their order",
    )
    parser.add_argument(
        "--note",
        metavar="TEXT",
        action="append",
        default=[],
        help="a note about a Snapshot; repeat it in their order",
    )


def run(options: argparse.Namespace) -> None:
    """Write the report."""
    # Checked before the Snapshots are read, because reading takes longer.
    report.check_suffix(options.output)
    output.refuse_unwritable(options.output)
    chip = shared.chip_of(options)
    for option, given in (("--name", options.name), ("--note", options.note)):
        if len(given) > len(options.snapshots):
            count = counted(len(options.snapshots), "Snapshot")
            raise InvalidInput(f"{option} is given {len(given)} times, but there is {count}")
    names = shared.snapshot_names(options.snapshots, options.name)
    found = [snapshot.read(path) for path in options.snapshots]
    notes = {name: note for name, note in zip(names, options.note, strict=False) if note}
    report.write(list(zip(names, found, strict=True)), options.output, chip, notes)
