"""`explain`: print why an array has its sharding, or why a program runs a collective."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
from pathlib import Path

from inspector.core import snapshot as snapshots
from inspector.core import typed_json
from inspector.core.errors import InvalidInput, shown
from inspector.core.rules import Rule, written
from inspector.core.rules.entries import ledger_of
from inspector.core.rules.written import recorded
from inspector.core.snapshot import Collective, Program, Snapshot
from inspector.media.terminal import options as shared
from inspector.media.terminal import render
from inspector.models.catalogue import semantics
from inspector.sections import collectives
from inspector.sections import rules as section
from inspector.sections.programs import main_first
from inspector.sections.section import text

NAME = "explain"
HELP = (
    "print why an array has its sharding (every rule that was tried), or why a collective is there"
)
_MAX_CHARACTERS = 4096  # of a file name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_snapshot(parser)
    subject = parser.add_mutually_exclusive_group()
    subject.add_argument(
        "--array", metavar="PATH", help="one array; without it, which arrays follow the rules"
    )
    subject.add_argument(
        "--collective",
        metavar="NAME",
        help="one collective, such as all-reduce.7 or train_step/all-reduce.7",
    )
    parser.add_argument(
        "--rules",
        metavar="RULES",
        help="rules, or a file of rules, for a Snapshot without rules: batch=data,embed=fsdp+tensor or a "
        "JSON list of [logical axis, mesh axes]",
    )
    shared.add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Print the ledger of one array, or the arrays that follow the rules."""
    snapshot = snapshots.read(options.snapshot)
    if options.collective is not None:
        _explain_collective(snapshot, options)
        return
    rules = recorded(snapshot) if options.rules is None else _read_rules(options.rules)
    if rules is None:
        raise InvalidInput(f"{options.snapshot} contains no rules: give them with --rules")
    reading = semantics(snapshot)
    if options.array is None:
        known = section.ledgers(snapshot, rules)
        if options.json:
            shared.print_json(
                [
                    {"array": array.path, "spec": array.spec, "linen": one.linen, "nnx": one.nnx}
                    | {"follows": one.follows}
                    for array, one in known
                ]
            )
        else:
            render.show(section.overall(known, reading).blocks)
        return
    array = snapshot.array(options.array)
    ledger = ledger_of(array, snapshot.mesh, rules, reading)
    if ledger is None:
        raise InvalidInput(f"{array.path} has no logical axes, so no rule applies to it")
    if options.json:
        shared.print_json({"array": array.path, **dataclasses.asdict(ledger)})
    else:
        render.show([text(array.path), *section.of_array(array, ledger, rules, reading)])


def _explain_collective(snapshot: Snapshot, options: argparse.Namespace) -> None:
    program, one = collective_named(snapshot, options.collective)
    if options.json:
        shared.print_json({"program": program.name, **typed_json.encode(one)})
    else:
        render.show([collectives.cause(program, one)])


def collective_named(snapshot: Snapshot, name: str) -> tuple[Program, Collective]:
    """Return the collective with this name, which may begin with `PROGRAM/`.

    If several programs have it, the one of the train step is returned.

    Raises:
      InvalidInput: no program has such a collective.
    """
    named = {
        f"{program.name}/{one.name}": (program, one)
        for program in main_first(snapshot)
        for one in program.collectives or ()
    }
    for full, found in named.items():
        if name in (full, found[1].name):
            return found
    near = difflib.get_close_matches(name, named, n=3, cutoff=0.3)
    hint = f"; similar names are {', '.join(near)}" if near else ""
    raise InvalidInput(f"--collective is {shown(name)}, but no program has such a collective{hint}")


def _read_rules(text: str) -> tuple[Rule, ...]:
    """Return the rules in the option, or in the file that it names."""
    try:
        if len(text) < _MAX_CHARACTERS and Path(text).is_file():
            text = Path(text).read_text(encoding="utf-8")
    except (OSError, ValueError):
        pass  # the text is not a file name
    return written.parse(text)
