"""`compare`: what differs between Snapshots."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from inspector.checks import audit
from inspector.compare import difference
from inspector.compare.difference import Answer, Question, SpecRow
from inspector.compare.paired_times import DEFAULT_ROUNDS
from inspector.compare.paired_times import text as paired_times_text
from inspector.core import output, snapshot
from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import counted
from inspector.core.snapshot import Snapshot
from inspector.machines import hardware
from inspector.machines.hardware import Chip
from inspector.media.terminal import timing

NAME = "compare"
HELP = "what differs between Snapshots: a table of questions, the specs, and sentences that name causes"

SUFFIXES = (".html", ".md", ".json")
_MOST_CHARACTERS = 46  # of a cell; three columns of them fit a wide terminal
# A row is only worth its place if an answer differs; these say what a column is.
_ALWAYS = ("Source", "Mesh")

Named = Sequence[tuple[str, Snapshot]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("snapshots", nargs="+", metavar="SNAPSHOT.json", help="two or more")
    parser.add_argument(
        "-o",
        "--output",
        metavar="X",
        help="X.html or X.md: a report; X.json: everything; text on standard output if absent",
    )
    parser.add_argument(
        "--chip",
        metavar="NAME",
        help=f"model time and memory on this chip: {', '.join(hardware.CHIPS)}",
    )
    parser.add_argument(
        "--baseline",
        metavar="N",
        default="1",
        help="which Snapshot the others are held against, counted from 1 (default)",
    )
    parser.add_argument(
        timing.OPTION, nargs="?", const=str(DEFAULT_ROUNDS), metavar="ROUNDS", help=timing.HELP
    )


def run(options: argparse.Namespace) -> None:
    """Compare, and print it or write it to the named file."""
    paths = options.snapshots
    if len(paths) < 2:
        raise InvalidInput("compare needs at least two Snapshots, but was given one")
    baseline = _baseline(options.baseline, len(paths))
    chip = None if options.chip is None else hardware.chip(options.chip)
    suffix = None
    if options.output is not None:
        suffix = _suffix(options.output)
        output.refuse_unwritable(options.output)
    rounds = None if options.time_together is None else timing.parse_rounds(options.time_together)
    if rounds is not None and suffix not in (None, ".json"):
        raise InvalidInput(f"{timing.OPTION} goes with text and .json, not with {suffix}")
    read = (audit.audited(snapshot.read(path)) for path in paths)
    named = list(zip(_names(paths), read, strict=True))
    found, names = [one for _, one in named], [name for name, _ in named]
    times = None if rounds is None else timing.time_together(found, rounds, baseline)
    if suffix is None:
        sys.stdout.write(text(named, baseline, chip))
        if times is not None:
            said = paired_times_text.text(times, found, names, baseline)
            sys.stdout.write("\n" + _printable(said))
    elif suffix == ".json":
        plain = difference.to_json(named, baseline, chip)
        if times is not None:
            plain["times"] = times.to_json()
        output.write_text(json.dumps(plain, indent=1, allow_nan=False) + "\n", options.output)
    else:
        from inspector.media import report  # what draws figures is only loaded where some are drawn

        # The first of a report is the one that the others are held against.
        first = [named[baseline], *(one for place, one in enumerate(named) if place != baseline)]
        report.write(first, options.output, chip)


def text(named: Named, baseline: int = 0, chip: Chip | None = None) -> str:
    """The comparison for a terminal: sentences first, then the rows and the specs that differ."""
    found = [one for _, one in named]
    parts = []
    for place, (name, after) in enumerate(named):
        if place != baseline:
            said = difference.sentences(found[baseline], after, chip)
            kept = [caveat.text for caveat in difference.caveats(found[baseline], after)]
            lines = [f"{name} against {named[baseline][0]}"]
            lines += [f"  {number}. {sentence}" for number, sentence in enumerate(said, start=1)]
            lines += [f"  But: {sentence}" for sentence in kept]
            parts.append("\n".join(lines) + "\n")
    rows = difference.questions(found, baseline, chip)
    parts.append(_table([name for name, _ in named], rows))
    parts.append(_specs([name for name, _ in named], difference.spec_rows(found)))
    return _printable("\n".join(part for part in parts if part))


def _table(names: list[str], rows: Sequence[Question]) -> str:
    shown_rows = [row for row in rows if row.differs or row.title in _ALWAYS]
    rest = [row for row in rows if row not in shown_rows]
    cells: list[tuple[str, ...]] = [("", *names)]
    section = None
    for row in shown_rows:
        if row.section != section:
            section = row.section
            cells.append((section,))
        cells.append((f"  {row.title}", *(_answer(one) for one in row.answers)))
    table = _columns(cells)
    for what, titles in (
        ("The same in all", [row.title for row in rest if not row.unknown]),
        ("Unknown in all", [row.title for row in rest if row.unknown]),
    ):
        if titles:
            table += f"{what}: {', '.join(titles)}.\n"
    notes = dict.fromkeys(row.note for row in shown_rows if row.note)
    return table + "".join(f"{note}\n" for note in notes)


def _answer(one: Answer) -> str:
    """The answer, its change and the verdict in a word: `48.0 MiB (+100%, worse)`."""
    if one.verdict in ("baseline", "equal"):
        said = "=" if one.verdict == "equal" else ""
    else:
        word = "" if one.verdict in ("different", "unknown") else one.verdict
        said = ", ".join(filter(None, (one.change, word)))
    room = _MOST_CHARACTERS - (len(said) + 3 if said else 0)
    words = one.text if len(one.text) <= room else one.text[: room - 1] + "…"
    return f"{words} ({said})" if said else words


def _specs(names: list[str], rows: Sequence[SpecRow]) -> str:
    differing = [row for row in rows if row.differs]
    if not differing:
        return ""
    cells: list[tuple[str, ...]] = [("specs", *names)]
    for row in differing:
        specs = ("–" if spec is None else spec for spec in row.specs)
        cells.append((f"  {_cut(row.title)}", *(_cut(spec) for spec in specs)))
    same = sum(len(row.paths) for row in rows if not row.differs)
    return _columns(cells) + (f"The same in all: {counted(same, 'array')}.\n" if same else "")


def _cut(words: str) -> str:
    """At most so many characters, of which the last tell more than the first."""
    return words if len(words) <= _MOST_CHARACTERS else "…" + words[1 - _MOST_CHARACTERS :]


def _columns(cells: Sequence[tuple[str, ...]]) -> str:
    full = [row for row in cells if len(row) > 1]
    widths = [max(map(len, column)) for column in zip(*full, strict=True)]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
        + "\n"
        for row in cells
    )


def _names(paths: Sequence[str]) -> list[str]:
    """The files' names without folder and ending where these tell them apart, else as they were given.

    A file that is there twice has a number the second time.
    """
    stems = [Path(path).stem for path in paths]
    names = stems if len(set(stems)) == len(stems) else paths
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found


def _baseline(given: str, count: int) -> int:
    if not (given.isascii() and given.isdigit()) or not 1 <= int(given[:9]) <= count:
        raise InvalidInput(f"--baseline is {shown(given)}, but must be a number from 1 to {count}")
    return int(given[:9]) - 1


def _suffix(path: str) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise InvalidInput(f"--output is {shown(path)}, but must end in {', '.join(SUFFIXES)}")
    return suffix


def _printable(words: str) -> str:
    """Names come from files, and no terminal is to obey what is in them."""
    return "".join(one if one.isprintable() or one == "\n" else "\ufffd" for one in words)
