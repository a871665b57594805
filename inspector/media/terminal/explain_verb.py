"""`explain`: the rule ledger of an array, as Flax Linen and as Flax nnx read the rules."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from inspector.core import snapshot
from inspector.core.errors import InvalidInput
from inspector.core.formatting import counted, logical_text, spec_text
from inspector.core.rules import Rule, written
from inspector.core.rules.entries import Ledger, ledger_of
from inspector.core.rules.recorded import recorded, semantics
from inspector.core.rules.sentences import rule_words
from inspector.core.snapshot import Array, Snapshot
from inspector.media.terminal.terminal import one_line

NAME = "explain"
HELP = "why an array lies where it does: every rule that was tried on it, in Linen and in nnx"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("snapshot", metavar="SNAPSHOT.json")
    parser.add_argument(
        "--array", metavar="PATH", help="one array; without it, which arrays follow from the rules"
    )
    parser.add_argument(
        "--rules",
        metavar="RULES",
        help="rules, or a file with them, for a Snapshot that has none: batch=data,embed=fsdp+tensor or a "
        "JSON list of [logical axis, mesh axes]",
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of text")


def run(options: argparse.Namespace) -> None:
    """Print the ledger of one array, or how many arrays follow from the rules."""
    found = snapshot.read(options.snapshot)
    rules = recorded(found) if options.rules is None else _given(options.rules)
    if rules is None:
        raise InvalidInput(
            f"by which rules the arrays of {options.snapshot} were laid out is unknown: "
            "give them with --rules"
        )
    if options.array is None:
        _show_all(found, rules, options.json)
        return
    array = found.array(options.array)
    ledger = ledger_of(array, found.mesh, rules, semantics(found))
    if ledger is None:
        raise InvalidInput(f"{array.path} has no logical axes, so no rule was tried on it")
    if options.json:
        json.dump({"array": array.path, **dataclasses.asdict(ledger)}, sys.stdout)
        print()
    else:
        print("\n".join(map(one_line, _lines(array, ledger, rules))))


def _given(text: str) -> tuple[Rule, ...]:
    """The rules that an option holds, or the file that it names."""
    path = Path(text)
    try:
        if len(text) < 4096 and path.is_file():
            text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        pass  # not a file's name, then
    return written.parse(text)


def _lines(array: Array, ledger: Ledger, rules: tuple[Rule, ...]) -> list[str]:
    linen = f"refused, {ledger.linen_refusal}" if ledger.linen is None else spec_text(ledger.linen)
    lines = [
        f"{array.path} {logical_text(array.logical_axes)}",
        f"found  {spec_text(array.spec)}",
        f"Linen  {linen}",
        f"nnx    {'; '.join([spec_text(ledger.nnx), *ledger.nnx_refusals])}",
    ]
    for entry in ledger.entries:
        rule = "no rule" if entry.rule is None else rule_words(entry.rule, rules)
        lines += [
            f"dimension {entry.dimension}, {rule}",
            f"    Linen  {entry.linen}",
            f"    nnx    {entry.nnx}",
        ]
    return lines


def _show_all(found: Snapshot, rules: tuple[Rule, ...], as_json: bool) -> None:
    known = [
        (array, ledger)
        for array in found.arrays
        if (ledger := ledger_of(array, found.mesh, rules, semantics(found))) is not None
    ]
    if as_json:
        rows = [
            {"array": array.path, "spec": array.spec, "linen": one.linen, "nnx": one.nnx}
            | {"follows": one.follows}
            for array, one in known
        ]
        json.dump(rows, sys.stdout)
        print()
        return
    follow = sum(bool(ledger.follows) for _, ledger in known)
    print(f"{follow} of {counted(len(known), 'array')} with logical axes lie as the rules say")
    for array, ledger in known:
        if ledger.follows is False:
            read = ledger.nnx if semantics(found) == "nnx" else ledger.linen
            made = "refused" if read is None else spec_text(read)
            print(one_line(f"{array.path} is {spec_text(array.spec)}, the rules say {made}"))
