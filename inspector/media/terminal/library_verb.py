"""`library`: Snapshots kept by name with a note, the same that the Library page shows."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence

from inspector.core import output, snapshot
from inspector.core.formatting import bytes_text, counted
from inspector.media.terminal.terminal import one_line
from inspector.service.library import Entry, Library, export

NAME = "library"
HELP = "keep Snapshots by name with a note: list, save, export, delete"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="those in which all words occur, the newest first")
    listing.add_argument("words", nargs="*", metavar="WORD")
    listing.add_argument("--json", action="store_true", help="a JSON list instead of a table")
    saving = actions.add_parser("save", help="keep a Snapshot file")
    saving.add_argument("snapshot", metavar="SNAPSHOT.json")
    saving.add_argument("--name", required=True)
    saving.add_argument("--note", default="")
    saving.add_argument("--replace", action="store_true", help="in the place of one of this name")
    exporting = actions.add_parser("export", help="one as a Snapshot file, or all as a zip of them")
    one_or_all = exporting.add_mutually_exclusive_group(required=True)
    one_or_all.add_argument("name", nargs="?", metavar="NAME")
    one_or_all.add_argument("--all", action="store_true")
    exporting.add_argument("-o", "--output", required=True, metavar="SNAPSHOT.json|ALL.zip")
    deleting = actions.add_parser("delete", help="let go of one for good")
    deleting.add_argument("name", metavar="NAME")


def run(options: argparse.Namespace) -> None:
    """Do what was asked with the user's library."""
    library = Library()
    if options.action == "list":
        _list(library.entries(" ".join(options.words)), options.json)
    elif options.action == "save":
        found = snapshot.read(options.snapshot)
        entry = library.save(options.name, options.note, found, options.replace)
        print(f"{entry.name} is kept, {bytes_text(entry.bytes)}", file=sys.stderr)
    elif options.action == "delete":
        library.delete(options.name)
    elif options.all:
        output.refuse_unwritable(options.output)
        output.write_bytes(export.zipped(library, library.entries()), options.output)
    else:
        output.write_text(library.text(options.name), options.output)


def _list(entries: Sequence[Entry], as_json: bool) -> None:
    if as_json:
        json.dump([dataclasses.asdict(entry) for entry in entries], sys.stdout)
        print()
        return
    for entry in entries:
        facts = [
            entry.saved[:16].replace("T", " "),
            entry.target or entry.source,
            *filter(None, (entry.model, entry.mesh)),
            counted(entry.arrays, "array"),
            bytes_text(entry.bytes),
        ]
        print(f"{one_line(entry.name)}  ({one_line(', '.join(facts))})")
        for line in entry.note.splitlines():
            print(f"    {one_line(line)}")
