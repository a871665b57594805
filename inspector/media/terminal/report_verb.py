"""`report`: one self-contained file about one or several Snapshots, for a review."""

from __future__ import annotations

import argparse
from pathlib import Path

from inspector.core import output, snapshot
from inspector.core.errors import InvalidInput
from inspector.core.formatting import counted
from inspector.machines import hardware
from inspector.media import report

NAME = "report"
HELP = "write one self-contained HTML file, or Markdown for a pull request, about one or several Snapshots"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "snapshots",
        nargs="+",
        metavar="SNAPSHOT.json",
        help="the first is the baseline of the others",
    )
    parser.add_argument("-o", "--output", required=True, metavar="X.html|X.md")
    parser.add_argument(
        "--chip",
        metavar="NAME",
        help=f"model time and memory on this chip: {', '.join(hardware.CHIPS)}",
    )
    parser.add_argument(
        "--name",
        metavar="NAME",
        action="append",
        default=[],
        help="what a Snapshot is called, its file's name if absent; repeat it in their order",
    )
    parser.add_argument(
        "--note",
        metavar="TEXT",
        action="append",
        default=[],
        help="a note on a Snapshot, shown as text; repeat it in their order",
    )


def run(options: argparse.Namespace) -> None:
    """Write the report."""
    # Before the Snapshots are read, so that a slip is told at once.
    report.check_suffix(options.output)
    output.refuse_unwritable(options.output)
    chip = None if options.chip is None else hardware.chip(options.chip)
    for option, given in (("--name", options.name), ("--note", options.note)):
        if len(given) > len(options.snapshots):
            files = counted(len(options.snapshots), "Snapshot")
            raise InvalidInput(
                f"{option} is given {len(given)} times, but the report is of {files}"
            )
    names = names_of(options.snapshots, options.name)
    found = [snapshot.read(path) for path in options.snapshots]
    notes = {name: note for name, note in zip(names, options.note, strict=False) if note}
    report.write(list(zip(names, found, strict=True)), options.output, chip, notes)


def names_of(paths: list[str], given: list[str]) -> list[str]:
    """What each Snapshot is called: as given, else after its file; equal file names get a number."""
    names = list(given)
    for path in paths[len(given) :]:
        stem = Path(path).name.removesuffix(".json") or path
        name, number = stem, 1
        while name in names:
            number += 1
            name = f"{stem} ({number})"
        names.append(name)
    return names
