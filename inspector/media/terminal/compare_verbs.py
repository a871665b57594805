"""Verbs that compare or judge Snapshots: `compare`, `report` and `check`."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inspector import audit
from inspector.answers import comparison, glance, subject
from inspector.answers.comparison import Named
from inspector.answers.section import Block, Section, text
from inspector.audit import checked, lock_file, policy
from inspector.audit.checked import Checked
from inspector.compare import difference
from inspector.compare.board import Board, aligned
from inspector.compare.caveats import caveats
from inspector.compare.compared import compared
from inspector.compare.difference.array_differences import ArrayDifference, arrays, spec_rows
from inspector.compare.difference.sentences import sentences
from inspector.compare.paired_times import DEFAULT_ROUNDS, LEAST_ROUNDS, MOST_ROUNDS, PairedTimes
from inspector.compare.questions import questions
from inspector.compare.verdict import headline, verdicts
from inspector.compiled.assumed import with_assumed
from inspector.files import output
from inspector.jobs.engine import Status
from inspector.jobs.library import Library
from inspector.machines.hardware import CHIPS, Chip
from inspector.media import report as reports
from inspector.media.terminal import options as shared
from inspector.media.terminal.options import CHIP, JSON, SNAPSHOT, Output, argument, one_of, verb
from inspector.records import typed_json
from inspector.records.snapshot import Snapshot
from inspector.search import result as results
from inspector.text.errors import InvalidInput
from inspector.text.formatting import counted, numbered
from inspector.text.printable import one_line

_ARRAY_FIELDS = (
    *("group", "shape", "dtype", "logical_axes", "spec", "shard_shape"),
    *("bytes", "bytes_per_device", "replicas"),
)


def to_json(
    named: Sequence[tuple[str, Snapshot]], baseline: int = 0, chip: Chip | None = None
) -> dict[str, Any]:
    """Return assessments and verdicts, the Board's rows, the specs, and the differences from the baseline."""
    snapshots = [snapshot for _, snapshot in named]
    every = compared(named, chip)
    rows = questions(every, baseline)
    reference = snapshots[baseline]
    return {
        "format": "sharding-comparison",
        "version": 1,
        "baseline": baseline,
        "chip": None if chip is None else chip.name,
        "snapshots": [
            {"name": name, "source": typed_json.encode(snapshot.source), "layout": snapshot.layout}
            for name, snapshot in named
        ],
        "columns": [{"name": one.name, "assessment": typed_json.encode(one.assessment)} for one in every],
        "verdicts": [typed_json.encode(verdict) for verdict in verdicts(every, baseline)],
        "sentence": headline(every, baseline),
        "questions": [typed_json.encode(row) for row in rows],
        "specs": [typed_json.encode(row) for row in spec_rows(snapshots)],
        "differences": [
            {
                "before": baseline,
                "after": place,
                "sentences": list(sentences(reference, snapshot, chip)),
                "reservations": [caveat.text for caveat in caveats(reference, snapshot)],
                "arrays": [_difference(array) for array in arrays(reference, snapshot) if array.changed],
            }
            for place, snapshot in enumerate(snapshots)
            if place != baseline
        ],
    }


def _difference(difference: ArrayDifference) -> dict[str, Any]:
    sides = (
        None if array is None else typed_json.encode(array) for array in (difference.before, difference.after)
    )
    before, after = (side and {name: side[name] for name in _ARRAY_FIELDS} for side in sides)
    facts = {
        "path": difference.path,
        "changed": list(difference.changed),
        "placement": difference.placement,
    }
    return facts | {"before": before, "after": after}


# Read Snapshots for `compare` and `report`, for which the result of a search means its best layouts.
#
# Other files and folders are those that `show` takes.


_MOST_FILES = 64  # each has figures in a column of every table


def read_all(
    paths: Sequence[str], given: Sequence[str] = ()
) -> tuple[list[tuple[str, Snapshot]], Chip | None]:
    """Return names and Snapshots of files. A search result gives the current layout and the best ones.

    Also return the chip for which all search results predicted their times; None if they differ.

    Args:
      given: the names of the first Snapshots.

    Raises:
      InvalidInput: a file is neither a Snapshot nor a search result.
    """
    if len(paths) > _MOST_FILES:
        raise InvalidInput(f"{len(paths):,} files are given, but at most {_MOST_FILES} can be compared")
    names: list[str] = []
    snapshots: list[Snapshot] = []
    chips: set[str | None] = set()
    for path in paths:
        plain = shared.json_with_format(path)
        if plain is None or plain["format"] != results.FORMAT:
            snapshots.append(shared.snapshot_of(path, plain))
            names.append(Path(path).name.removesuffix(".json") or path)
            continue
        # Imported late: a comparison of Snapshots needs no workers.
        from inspector.search.tasks import snapshots_of

        result = results.from_plain(plain, path)
        chips.add(result.chip)
        with shared.workers() as service:
            best, lost = snapshots_of(result, service)
        if lost:
            layouts = f"{lost} of {counted(len(best), 'layout')}"
            print(
                f"{path}: {layouts} are planned again, because this machine has not kept what the "
                "search compiled or ran with this version",
                file=sys.stderr,
            )
        names += [name for name, _ in best]
        snapshots += [of_layout for _, of_layout in best]
    # Names that the user gave stay as they are.
    unique = [*given, *list(numbered([*given, *names[len(given) :]]))[len(given) :]]
    chip = CHIPS.get(chips.pop() or "") if len(chips) == 1 else None
    return list(zip(unique, snapshots, strict=True)), chip


VIOLATED = 1
_TIMING = "--time-together"


@verb(
    "compare",
    "compare Snapshots: differences with their causes, figures side by side, PartitionSpecs",
    argument(
        "snapshots",
        nargs="*",
        metavar="SNAPSHOT.json",
        help="two or more; the result of a search has the best layouts",
    ),
    argument("--board", metavar="NAME", help="compare the layouts of a saved comparison too"),
    argument(
        "-o",
        "--output",
        metavar="X",
        help="X.html or X.md: a report; X.json: everything; text on standard output by default",
    ),
    CHIP,
    argument(
        "--baseline",
        metavar="N",
        help="the number of the Snapshot that the others are compared with, from 1; by default that of the "
        "saved comparison, or 1",
    ),
    shared.assumptions,
    argument(
        _TIMING,
        nargs="?",
        const=str(DEFAULT_ROUNDS),
        metavar="ROUNDS",
        help="run the layouts in turn on emulated devices and print their times as ratios; "
        f"{LEAST_ROUNDS} to {MOST_ROUNDS} rounds, {DEFAULT_ROUNDS} by default",
    ),
    shared.ALL,
    JSON,
)
def compare(options: argparse.Namespace) -> Output | None:
    """Return or write the differences of the Snapshots.

    Raise InvalidInput for one, or a file of another kind.
    """
    paths = options.snapshots
    chip = shared.chip_of(options)
    suffix = None
    if options.output is not None:
        suffix = reports.check_suffix(options.output, (*reports.SUFFIXES, ".json"))
        output.refuse_unwritable(options.output)
    rounds = None
    if options.time_together is not None:
        allowed = f"a number from {LEAST_ROUNDS} to {MOST_ROUNDS}"
        rounds = shared.number(options.time_together, _TIMING, allowed, LEAST_ROUNDS, MOST_ROUNDS)
        if suffix not in (None, ".json"):
            raise InvalidInput(f"{_TIMING} writes text or .json, but --output ends in {suffix}")
    kept = Board() if options.board is None else _board(options.board)
    of_files, searched = read_all(paths)
    chip = chip or searched
    read = [*kept.named, *of_files]
    if len(read) < 2:
        count = counted(len(read), "Snapshot")
        raise InvalidInput(f"compare needs at least two Snapshots, but was given {count}")
    allowed = f"a number from 1 to {len(read)}"
    given = str(kept.baseline + 1) if options.baseline is None else options.baseline
    baseline = shared.number(given, "--baseline", allowed, 1, len(read)) - 1
    stated = with_assumed([snapshot for _, snapshot in read], shared.assumed_of(options))
    snapshots = aligned([audit.audited(snapshot) for snapshot in stated])
    named = list(zip(numbered(name for name, _ in read), snapshots, strict=True))
    times = None if rounds is None else _time_together(snapshots, rounds, baseline)

    def plain() -> dict[str, Any]:
        of_times = {} if times is None else {"times": times.to_json()}
        return to_json(named, baseline, chip) | of_times

    if suffix == ".json":
        output.write_text(json.dumps(plain(), indent=1, allow_nan=False) + "\n", options.output)
        return None
    ordered = [named[baseline], *(pin for place, pin in enumerate(named) if place != baseline)]
    if suffix is not None:
        reports.write(ordered, options.output, chip)
        return None
    of_times = [] if times is None else [comparison.section(times, named, baseline)]
    return shared.on_screen(options, plain, lambda: [*of_times, *blocks(ordered, chip, options.all)])


def _board(name: str) -> Board:
    """Return a Board of the library."""
    library = Library()
    shared.check_saved(library, name, "--board")
    return library.board(name)


def blocks(named: Named, chip: Chip | None = None, whole: bool = True) -> list[Block]:
    """Return the comparison with the first Snapshot: verdict, bars, sentences, and the differences.

    whole: whether to add the rows that bars and sentences have, too.
    """
    specs = difference.spec_rows([snapshot for _, snapshot in named])
    differing = [comparison.specs(named, specs)] if any(row.differs for row in specs) else []
    return [
        text(subject.line(named, chip)),
        comparison.verdict(named, chip),
        Section("glance", "At a glance", glance.of_report(named, chip)),
        comparison.sentences(named, chip),
        *(differing if not whole else (comparison.board(named, chip), *differing)),
    ]


def _time_together(snapshots: Sequence[Snapshot], rounds: int, baseline: int) -> PairedTimes:
    """Time the layouts in turn in one worker, with progress on standard error."""
    with shared.workers() as service:
        return shared.follow(service.timing(snapshots, rounds, baseline), _progress)


def _progress(status: Status) -> str:
    if "of" not in status.progress:
        return status.phase or ""
    part = "round" if status.phase in ("warm up", "rounds") else "layout"
    return f"{status.phase}, {part} {status.progress['done'] + 1} of {status.progress['of']}"


@verb(
    "report",
    "write one self-contained HTML file, or Markdown for a pull request, about Snapshots",
    argument(
        "snapshots",
        nargs="+",
        metavar="SNAPSHOT.json",
        help="the others are compared with the first; the result of a search has the best layouts",
    ),
    argument("-o", "--output", required=True, metavar="X.html|X.md"),
    CHIP,
    argument(
        "--name",
        metavar="NAME",
        action="append",
        default=[],
        help="the name of a Snapshot, by default that of its file; repeat it in their order",
    ),
    argument(
        "--note",
        metavar="TEXT",
        action="append",
        default=[],
        help="a note about a Snapshot; repeat it in their order",
    ),
)
def report(options: argparse.Namespace) -> None:
    """Write the report; raise InvalidInput if an option is given more often than there are Snapshots."""
    # Checked before the Snapshots are read, because reading takes longer.
    reports.check_suffix(options.output)
    output.refuse_unwritable(options.output)
    chip = shared.chip_of(options)
    for option, given in (("--name", options.name), ("--note", options.note)):
        if len(given) > len(options.snapshots):
            count = counted(len(options.snapshots), "Snapshot")
            raise InvalidInput(f"{option} is given {len(given)} times, but there is {count}")
    named, searched = read_all(options.snapshots, options.name)
    names = [name for name, _ in named]
    notes = {name: note for name, note in zip(names, options.note, strict=False) if note}
    reports.write(named, options.output, chip or searched, notes)


@verb(
    "check",
    "check a Snapshot against a policy or a lock file; exit status 0: all rules hold, 1: a rule is violated "
    "or something changed (one line each on standard output), 2: it cannot be checked",
    SNAPSHOT,
    argument("--policy", metavar="POLICY.toml", help="check these rules"),
    one_of(
        argument(
            "--lock",
            metavar="NAME.sharding.json",
            help="list the changes since this lock file or Snapshot",
        ),
        argument("--write-lock", metavar="NAME.sharding.json", help="write a lock file to commit"),
    ),
)
def check(options: argparse.Namespace) -> int:
    """Print violations and changes, and return the exit status.

    Raise InvalidInput without anything to check.
    """
    if options.policy is None and options.lock is None and options.write_lock is None:
        raise InvalidInput("nothing to check: give --policy, --lock or --write-lock")
    demands = None if options.policy is None else policy.read(options.policy)
    before = None if options.lock is None else lock_file.read(options.lock)
    if options.write_lock is not None:
        output.refuse_unwritable(options.write_lock)
    snapshot = shared.read_snapshot(options.snapshot)
    found = Checked()
    if demands is not None:
        found += checked.with_policy(snapshot, demands)
    if before is not None:
        found += checked.with_lock(snapshot, before, options.lock)
    if options.write_lock is not None:
        lock_file.write(lock_file.locked(snapshot), options.write_lock)
        found += Checked(notes=(f"wrote {options.write_lock}",))
    return _finish(found)


def _finish(found: Checked) -> int:
    """Print violations to standard output and notes to standard error."""
    try:
        sys.stdout.write("".join(f"{one_line(line)}\n" for line in found.violations))
        sys.stdout.flush()
    except BrokenPipeError:
        # The exit status is right even if the reader stops after the first line.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if found.unknown:
        raise InvalidInput(f"cannot be checked: {'; '.join(dict.fromkeys(found.unknown))}")
    for line in found.notes:
        print(one_line(line), file=sys.stderr)
    return VIOLATED if found.violations else 0
