"""`history`: what was run, compiled, searched and compared with this library."""

from __future__ import annotations

import argparse
import sys

from inspector import layout as layouts
from inspector.compare.search import result as results
from inspector.core import snapshot, typed_json
from inspector.core.errors import InvalidInput, shown
from inspector.core.printable import one_line
from inspector.media.terminal import options as shared
from inspector.media.terminal import render
from inspector.media.terminal.options import JSON, argument, one_of, verb
from inspector.sections import history as section
from inspector.service import compile_cache
from inspector.service.compile_cache import CompileCache
from inspector.service.history import DAMAGED, History, HistoryEntry, beyond_size, older_than

_MOST_DAYS = 36_500
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@verb(
    "history",
    "list what was run, compiled, searched and compared, newest first; write the answer of an entry, or "
    "delete old entries",
    JSON,
    one_of(
        argument(
            "--export",
            metavar="ID",
            help="write the Snapshot of a run or compile, or the result of a search; --json lists the ids",
        ),
        argument("--delete-older-than", metavar="DAYSd", help="such as 30d"),
        argument(
            "--delete-larger-than",
            metavar="SIZE",
            help="delete the oldest entries until the rest has this size, such as 10MB",
        ),
    ),
    argument("--yes", action="store_true", help="delete; without it, only say what would be"),
    shared.output_to("ANSWER.json"),
)
def history(options: argparse.Namespace) -> None:
    """List the entries, write the answer of one, or delete some."""
    if options.output is not None and options.export is None:
        raise InvalidInput("-o needs --export ID")
    kept = History()
    entries = kept.entries()
    if options.export is not None:
        entry = next((entry for entry in entries if entry.id == options.export), None)
        if entry is None:
            raise InvalidInput(
                f"--export is {shown(options.export)}, but must be an id of the history, which `history "
                "--json` lists"
            )
        shared.write_text(_answer(kept, entry), options.output)
        return
    doomed = None
    if options.delete_older_than is not None:
        doomed = older_than(entries, _days(options.delete_older_than))
    elif options.delete_larger_than is not None:
        doomed = beyond_size(entries, _bytes(options.delete_larger_than))
    if doomed is not None:
        text = section.size_text(doomed)
        if options.yes:
            kept.delete(doomed)
            print(one_line(f"deleted {text}"), file=sys.stderr)
        else:
            print(one_line(f"would delete {text}; add --yes to delete"), file=sys.stderr)
    elif options.json:
        plain = [typed_json.encode(entry) for entry in entries]
        for record in plain:
            del record["changeable"]  # the user of this machine can change all of them
        shared.print_json(plain)
    elif entries:
        render.show([section.table(entries)])
    else:
        print("the history is empty", file=sys.stderr)


def _answer(kept: History, entry: HistoryEntry) -> str:
    """Return the answer of an entry as JSON text."""
    if entry.kind == "search" and (result := kept.search(entry.id)) is not None:
        return results.dumps(result)
    if entry.kind == "run" and (run := kept.run(entry.id)) is not None:
        return snapshot.dumps(run)
    if entry.kind == "compile":
        layout = layouts.from_json(entry.parameters["layout"])
        text = CompileCache().get(compile_cache.key_of_layout(layout))
        if text is not None:
            return text
    if entry.kind == DAMAGED:
        raise InvalidInput(f"the entry {shown(entry.id)} of the history is damaged")
    raise InvalidInput(f"the result of this {section.KINDS[entry.kind].lower()} is not saved any more")


def _days(text: str) -> int:
    number = text.removesuffix("d")
    if text == number or not (number.isascii() and number.isdigit()) or len(number) > 5:
        raise InvalidInput(
            f"--delete-older-than is {shown(text)}, but must be days, from 0d to {_MOST_DAYS}d"
        )
    return min(int(number), _MOST_DAYS)


def _bytes(text: str) -> int:
    for unit, size in _UNITS.items():
        number = text.removesuffix(unit)
        if number != text and number.isascii() and number.isdigit() and len(number) <= 9:
            return int(number) * size
    raise InvalidInput(
        f"--delete-larger-than is {shown(text)}, but must be a number with one of the units "
        f"{', '.join(_UNITS)}, such as 10MB"
    )
