"""`library`: the saved Snapshots of the Library page."""

import argparse
import dataclasses
import sys
from collections.abc import Sequence

from inspector.answers.section import Table
from inspector.files import output
from inspector.jobs.library import Library, LibraryEntry, zipped
from inspector.media.terminal import options as shared
from inspector.media.terminal import render
from inspector.media.terminal.options import JSON, SNAPSHOT, argument, one_of, verb
from inspector.text.formatting import bytes_text
from inspector.text.printable import one_line


def _actions(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, help, arguments in (
        (
            "list",
            "list the Snapshots that contain all words, newest first",
            (argument("words", nargs="*", metavar="WORD"), JSON),
        ),
        (
            "save",
            "save a Snapshot file",
            (
                SNAPSHOT,
                argument("--name", required=True),
                argument("--note", default=""),
                argument("--replace", action="store_true", help="replace a Snapshot with this name"),
            ),
        ),
        (
            "export",
            "write one Snapshot to a file, or all to a zip file",
            (
                one_of(
                    argument("name", nargs="?", metavar="NAME"),
                    argument("--all", action="store_true"),
                    required=True,
                ),
                argument("-o", "--output", required=True, metavar="SNAPSHOT.json|ALL.zip"),
            ),
        ),
        (
            "rename",
            "give a Snapshot another name",
            (argument("name", metavar="NAME"), argument("new_name", metavar="NEW")),
        ),
        ("delete", "delete one Snapshot", (argument("name", metavar="NAME"),)),
    ):
        action = actions.add_parser(name, help=help)
        for add in arguments:
            add(action)


@verb("library", "list, save, export, rename and delete Snapshots of the library", _actions)
def library(options: argparse.Namespace) -> None:
    """Run one action on the library."""
    saved = Library()
    if options.action in ("delete", "rename") or (options.action == "export" and not options.all):
        shared.check_saved(saved, options.name, "NAME")
    if options.action == "list":
        _list(saved.entries(" ".join(options.words)), options.json)
    elif options.action == "save":
        content = shared.read_snapshot(options.snapshot)
        entry = saved.save(options.name, options.note, content, options.replace)
        print(one_line(f"saved {entry.name}, {bytes_text(entry.bytes)}"), file=sys.stderr)
    elif options.action == "delete":
        saved.delete(options.name)
    elif options.action == "rename":
        saved.rename(options.name, options.new_name)
    elif options.all:
        output.refuse_unwritable(options.output)
        output.write_bytes(zipped(saved, saved.entries()), options.output)
    else:
        output.write_text(saved.text(options.name), options.output)


def _list(entries: Sequence[LibraryEntry], as_json: bool) -> None:
    if as_json:
        plain = [dataclasses.asdict(entry) for entry in entries]
        for record in plain:
            del record["changeable"]  # the user of this machine can change all of them
        shared.print_json(plain)
        return
    table = Table.of(
        "library",
        entries,
        {
            "Name": lambda entry: entry.name,
            "Saved": lambda entry: entry.saved[:16].replace("T", " "),
            "Target": lambda entry: entry.source_text,
            "Model": lambda entry: entry.text_of(entry.model),
            "Mesh": lambda entry: entry.text_of(entry.mesh),
            "Arrays:count": lambda entry: entry.arrays,
            "Size:bytes": lambda entry: entry.bytes,
            "Owner": lambda entry: entry.owner or "–",
            "Note": lambda entry: entry.note,
        },
    )
    if table.rows:
        render.show([table])
    else:
        print("no Snapshot matches", file=sys.stderr)
