"""`library`: the saved Snapshots of the Library page."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence

from inspector.core import output, snapshot
from inspector.core.formatting import bytes_text
from inspector.media.printable import one_line
from inspector.media.terminal import options as shared
from inspector.media.terminal import render
from inspector.sections.section import Column, Table
from inspector.service.library import Entry, Library, export

NAME = "library"
HELP = "list, save, export and delete Snapshots of the library"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser(
        "list", help="list the Snapshots that contain all words, newest first"
    )
    listing.add_argument("words", nargs="*", metavar="WORD")
    shared.add_json(listing)
    saving = actions.add_parser("save", help="save a Snapshot file")
    saving.add_argument("snapshot", metavar="SNAPSHOT.json")
    saving.add_argument("--name", required=True)
    saving.add_argument("--note", default="")
    saving.add_argument("--replace", action="store_true", help="replace a Snapshot with this name")
    exporting = actions.add_parser(
        "export", help="write one Snapshot to a file, or all to a zip file"
    )
    one_or_all = exporting.add_mutually_exclusive_group(required=True)
    one_or_all.add_argument("name", nargs="?", metavar="NAME")
    one_or_all.add_argument("--all", action="store_true")
    exporting.add_argument("-o", "--output", required=True, metavar="SNAPSHOT.json|ALL.zip")
    deleting = actions.add_parser("delete", help="delete one Snapshot")
    deleting.add_argument("name", metavar="NAME")


def run(options: argparse.Namespace) -> None:
    """Run one action on the library."""
    library = Library()
    if options.action == "list":
        _list(library.entries(" ".join(options.words)), options.json)
    elif options.action == "save":
        found = snapshot.read(options.snapshot)
        entry = library.save(options.name, options.note, found, options.replace)
        print(one_line(f"saved {entry.name}, {bytes_text(entry.bytes)}"), file=sys.stderr)
    elif options.action == "delete":
        library.delete(options.name)
    elif options.all:
        output.refuse_unwritable(options.output)
        output.write_bytes(export.zipped(library, library.entries()), options.output)
    else:
        output.write_text(library.text(options.name), options.output)


def _list(entries: Sequence[Entry], as_json: bool) -> None:
    if as_json:
        shared.print_json([dataclasses.asdict(entry) for entry in entries])
        return
    headings = ("Name", "Saved", "Target", "Model", "Mesh")
    columns = (
        *map(Column, headings),
        Column("Arrays", "count"),
        Column("Size", "bytes"),
        Column("Note"),
    )
    rows = tuple(
        (
            entry.name,
            entry.saved[:16].replace("T", " "),
            entry.target or entry.source,
            entry.model or "–",
            entry.mesh or "–",
            entry.arrays,
            entry.bytes,
            entry.note,
        )
        for entry in entries
    )
    if rows:
        render.show([Table("library", columns, rows)])
    else:
        print("no Snapshot matches", file=sys.stderr)
