"""`check`: compare a Snapshot with a policy or a lock file."""

from __future__ import annotations

import argparse
import os
import sys

from inspector.checks import lock_changes, lock_file, policy
from inspector.core import output, snapshot
from inspector.core.errors import InvalidInput
from inspector.core.formatting import counted
from inspector.media.printable import one_line
from inspector.media.terminal import options as shared

NAME = "check"
HELP = (
    "check a Snapshot against a policy or a lock file; exit status 0: all rules hold, 1: a rule is violated "
    "or something changed (one line each on standard output), 2: it cannot be checked"
)
VIOLATED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_snapshot(parser)
    parser.add_argument("--policy", metavar="POLICY.toml", help="check these rules")
    lock = parser.add_mutually_exclusive_group()
    lock.add_argument(
        "--lock",
        metavar="NAME.sharding.json",
        help="list the changes since this lock file or Snapshot",
    )
    lock.add_argument(
        "--write-lock", metavar="NAME.sharding.json", help="write a lock file to commit"
    )


def run(options: argparse.Namespace) -> int:
    """Print violations and changes, and return the exit status."""
    if options.policy is None and options.lock is None and options.write_lock is None:
        raise InvalidInput("nothing to check: give --policy, --lock or --write-lock")
    demands = None if options.policy is None else policy.read(options.policy)
    before = None if options.lock is None else lock_file.read(options.lock)
    if options.write_lock is not None:
        output.refuse_unwritable(options.write_lock)
    found = snapshot.read(options.snapshot)
    lines: list[str] = []
    unknown: list[str] = []
    notes: list[str] = []
    if demands is not None:
        outcomes = demands.check(found)
        for outcome in outcomes:
            lines += [f"{outcome.rule}: {one.sentence}" for one in outcome.violations]
            if outcome.unknown is not None:
                unknown.append(f"{outcome.rule}: {outcome.unknown}")
        holding = sum(outcome.holds for outcome in outcomes)
        notes.append(f"rules that hold: {holding} of {len(outcomes)}")
    if before is not None:
        changes = lock_changes.changes(before, lock_file.locked(found))
        lines += changes.changed
        unknown += changes.unknown
        notes += changes.noted
        notes.append(f"{counted(len(changes.changed), 'change')} from {options.lock}")
    if options.write_lock is not None:
        lock_file.write(lock_file.locked(found), options.write_lock)
        notes.append(f"wrote {options.write_lock}")
    return _finish(lines, unknown, notes)


def _finish(lines: list[str], unknown: list[str], notes: list[str]) -> int:
    """Print violations to standard output and notes to standard error."""
    try:
        sys.stdout.write("".join(f"{one_line(line)}\n" for line in lines))
        sys.stdout.flush()
    except BrokenPipeError:
        # The exit status is right even if the reader stops after the first line.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if unknown:
        raise InvalidInput(f"cannot be checked: {'; '.join(dict.fromkeys(unknown))}")
    for line in notes:
        print(one_line(line), file=sys.stderr)
    return VIOLATED if lines else 0
