"""`check`: whether a Snapshot is as a policy or a lock file demands."""

from __future__ import annotations

import argparse
import os
import sys

from inspector.checks import lock_changes, lock_file, policy
from inspector.core import output, snapshot
from inspector.core.errors import InvalidInput
from inspector.core.formatting import counted
from inspector.media.terminal.terminal import one_line

NAME = "check"
HELP = (
    "check a Snapshot against a policy or a lock file: exit status 0 where all holds, 1 where something "
    "is violated or has changed (a line each on standard output), 2 where it cannot be checked"
)
VIOLATED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("snapshot", metavar="SNAPSHOT.json")
    parser.add_argument("--policy", metavar="POLICY.toml", help="hold it against these rules")
    lock = parser.add_mutually_exclusive_group()
    lock.add_argument(
        "--lock",
        metavar="NAME.sharding.json",
        help="show what is otherwise than in this lock file (or Snapshot)",
    )
    lock.add_argument(
        "--write-lock", metavar="NAME.sharding.json", help="write a lock file to be committed"
    )


def run(options: argparse.Namespace) -> None:
    """Print what is violated and what has changed; the exit status says whether anything has."""
    if options.policy is None and options.lock is None and options.write_lock is None:
        raise InvalidInput("nothing to check: give --policy, --lock or --write-lock")
    demands = None if options.policy is None else policy.read(options.policy)
    before = None if options.lock is None else lock_file.read(options.lock)
    if options.write_lock is not None:
        output.refuse_unwritable(options.write_lock)
    found = snapshot.read(options.snapshot)
    lines: list[str] = []
    unknown: list[str] = []
    told: list[str] = []
    if demands is not None:
        outcomes = demands.check(found)
        for outcome in outcomes:
            lines += [f"{outcome.rule}: {one.sentence}" for one in outcome.violations]
            if outcome.unknown is not None:
                unknown.append(f"{outcome.rule}: {outcome.unknown}")
        holding = sum(outcome.holds for outcome in outcomes)
        told.append(f"rules that hold: {holding} of {len(outcomes)}")
    if before is not None:
        changes = lock_changes.changes(before, lock_file.locked(found))
        lines += changes.changed
        unknown += changes.unknown
        told += changes.noted
        told.append(f"{counted(len(changes.changed), 'change')} from {options.lock}")
    if options.write_lock is not None:
        lock_file.write(lock_file.locked(found), options.write_lock)
        told.append(f"{options.write_lock} is written")
    _finish(lines, unknown, told)


def _finish(lines: list[str], unknown: list[str], told: list[str]) -> None:
    """What is violated to standard output; the rest to standard error, in one line if it is an error."""
    try:
        sys.stdout.write("".join(f"{one_line(line)}\n" for line in lines))
        sys.stdout.flush()
    except BrokenPipeError:
        # Who reads only the first line still wants the right exit status.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if unknown:
        raise InvalidInput(f"cannot be checked: {'; '.join(dict.fromkeys(unknown))}")
    for line in told:
        print(one_line(line), file=sys.stderr)
    if lines:
        sys.exit(VIOLATED)
