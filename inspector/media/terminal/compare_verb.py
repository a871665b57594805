"""`compare`: print the differences between Snapshots, or write a report or JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from inspector.checks import audit
from inspector.compare import difference
from inspector.compare.paired_times import DEFAULT_ROUNDS, LEAST_ROUNDS, MOST_ROUNDS, PairedTimes
from inspector.compare.paired_times import text as paired_times_text
from inspector.core import output, snapshot
from inspector.core.errors import InvalidInput, shown
from inspector.core.snapshot import Snapshot
from inspector.machines.hardware import Chip
from inspector.media.terminal import options as shared
from inspector.media.terminal import render
from inspector.sections import comparison
from inspector.sections.comparison import Named
from inspector.sections.section import Block, Folded, Preformatted, Section, text
from inspector.service.engine import Status
from inspector.service.inspection import Inspection

NAME = "compare"
HELP = "compare Snapshots: differences with their causes, figures side by side, PartitionSpecs"

SUFFIXES = (".html", ".md", ".json")
_TIMING = "--time-together"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("snapshots", nargs="+", metavar="SNAPSHOT.json", help="two or more")
    parser.add_argument(
        "-o",
        "--output",
        metavar="X",
        help="X.html or X.md: a report; X.json: everything; text on standard output by default",
    )
    shared.add_chip(parser)
    parser.add_argument(
        "--baseline",
        metavar="N",
        default="1",
        help="the number of the Snapshot that the others are compared with, from 1 (default)",
    )
    parser.add_argument(
        _TIMING,
        nargs="?",
        const=str(DEFAULT_ROUNDS),
        metavar="ROUNDS",
        help="run the layouts in turn on emulated devices and print their times as ratios; "
        f"{LEAST_ROUNDS} to {MOST_ROUNDS} rounds, {DEFAULT_ROUNDS} by default",
    )


def run(options: argparse.Namespace) -> None:
    """Compare the Snapshots, and print the result or write it to the file."""
    paths = options.snapshots
    if len(paths) < 2:
        raise InvalidInput("compare needs at least two Snapshots, but was given one")
    baseline = _baseline(options.baseline, len(paths))
    chip = shared.chip_of(options)
    suffix = None
    if options.output is not None:
        suffix = _suffix(options.output)
        output.refuse_unwritable(options.output)
    rounds = None if options.time_together is None else _rounds(options.time_together)
    if rounds is not None and suffix not in (None, ".json"):
        raise InvalidInput(f"{_TIMING} writes text or .json, but --output ends in {suffix}")
    named = [
        (name, audit.audited(snapshot.read(path)))
        for name, path in zip(shared.snapshot_names(paths), paths, strict=True)
    ]
    names, snapshots = [name for name, _ in named], [found for _, found in named]
    times = None if rounds is None else _time_together(snapshots, rounds, baseline)
    if suffix == ".json":
        plain = difference.to_json(named, baseline, chip)
        if times is not None:
            plain["times"] = times.to_json()
        output.write_text(json.dumps(plain, indent=1, allow_nan=False) + "\n", options.output)
        return
    ordered = [named[baseline], *(one for place, one in enumerate(named) if place != baseline)]
    if suffix is not None:
        from inspector.media import report  # imports Plotly

        report.write(ordered, options.output, chip)
        return
    shown_blocks = blocks(ordered, chip)
    if times is not None:
        words = paired_times_text.text(times, snapshots, names, baseline)
        shown_blocks.append(Preformatted(words))
    render.show(shown_blocks)


def blocks(named: Named, chip: Chip | None = None) -> list[Block]:
    """Return the comparison with the first Snapshot: sentences, and the answers and specs that differ."""
    names = [name for name, _ in named]
    snapshots = [snapshot for _, snapshot in named]
    rows = difference.questions(snapshots, 0, chip)
    main, rest = comparison.board_rows(rows)
    board: list[Block] = [comparison.board_table("board", names, main)]
    for label, titles in (
        ("Equal for all", [row.title for row in rest if not row.unknown]),
        ("Unknown for all", [row.title for row in rest if row.unknown]),
    ):
        if titles:
            board.append(text(f"{label}: {', '.join(titles)}."))
    board += [text(note) for note in comparison.notes(main)]
    made: list[Block] = [
        comparison.sentences(named, chip),
        Section("board", "Side by side", tuple(board)),
    ]
    specs = difference.spec_rows(snapshots)
    if any(row.differs for row in specs):
        section = comparison.specs(named, specs)
        shown = tuple(block for block in section.blocks if not isinstance(block, Folded))
        made.append(Section(section.key, section.heading, shown))
    return made


def _time_together(snapshots: Sequence[Snapshot], rounds: int, baseline: int) -> PairedTimes:
    """Time the layouts in turn in one worker, with progress on standard error."""
    service = Inspection(run_workers=1)
    try:
        return shared.follow(service.start_timing(snapshots, rounds, baseline), _progress)
    finally:
        service.close()


def _progress(status: Status) -> str:
    if "of" not in status.progress:
        return status.phase or ""
    part = "round" if status.phase in ("warm up", "rounds") else "layout"
    return f"{status.phase}, {part} {status.progress['done'] + 1} of {status.progress['of']}"


def _rounds(given: str) -> int:
    rounds = int(given) if given.isascii() and given.isdigit() and len(given) < 9 else -1
    if not LEAST_ROUNDS <= rounds <= MOST_ROUNDS:
        raise InvalidInput(
            f"{_TIMING} is {shown(given)}, but must be a number from {LEAST_ROUNDS} to {MOST_ROUNDS}"
        )
    return rounds


def _baseline(given: str, count: int) -> int:
    if not (given.isascii() and given.isdigit()) or not 1 <= int(given[:9]) <= count:
        raise InvalidInput(f"--baseline is {shown(given)}, but must be a number from 1 to {count}")
    return int(given[:9]) - 1


def _suffix(path: str) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise InvalidInput(f"--output is {shown(path)}, but must end in {', '.join(SUFFIXES)}")
    return suffix
