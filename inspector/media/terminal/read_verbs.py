"""Verbs that print facts of one Snapshot: `show`, `shards`, `device`, `explain` and `audit`."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
from pathlib import Path
from typing import Any

from inspector import layout as layouts
from inspector.checks import audit as audits
from inspector.checks.audit import Change
from inspector.core import device_holdings, typed_json
from inspector.core import snapshot as snapshots
from inspector.core.errors import InvalidInput, shown
from inspector.core.rules import Rule, written
from inspector.core.rules.entries import ledger_of
from inspector.core.rules.written import recorded
from inspector.core.snapshot import Collective, Finding, Program, Snapshot
from inspector.core.totals import STATE_GROUPS
from inspector.layout import Layout
from inspector.machines.hardware import Chip
from inspector.media.terminal import options as shared
from inspector.media.terminal import render
from inspector.media.terminal.options import CHIP, JSON, SNAPSHOT, argument, one_of, verb
from inspector.model.built_in.catalogue import semantics
from inspector.sections import (
    array,
    arrays,
    collectives,
    devices,
    findings,
    memory,
    rules,
    summary,
    time,
)
from inspector.sections.programs import main_first
from inspector.sections.section import Block, text

_MAX_CHARACTERS = 4096  # of a file name


@verb(
    "show",
    "print a summary of a Snapshot: source, mesh, bytes, arrays, programs, findings",
    SNAPSHOT,
    CHIP,
)
def show(options: argparse.Namespace) -> None:
    """Print the summary."""
    chip = shared.chip_of(options)
    render.show(summary_of(snapshots.read(options.snapshot), chip))


def summary_of(snapshot: Snapshot, chip: Chip | None = None) -> list[Block]:
    """Return the summary, with memory and time modelled on `chip` if there is one."""
    made: list[Block] = [summary.facts(snapshot)]
    if snapshot.arrays:
        made.append(arrays.tree_text(snapshot.arrays))
        made += arrays.host_memory(snapshot.arrays)
    if snapshot.programs:
        made.append(collectives.section(snapshot))
    if snapshot.programs or chip is not None:
        made.append(memory.section(snapshot, chip, replicated=False))
    if chip is not None:
        made.append(time.section(snapshot, chip))
    else:
        made += time.measured(snapshot)
    if snapshot.findings:
        made.append(findings.section(snapshot))
    return made


@verb(
    "shards",
    "print the index range, replica, process and bytes of each shard of an array",
    SNAPSHOT,
    argument(
        "--array",
        metavar="PATH",
        help="such as params/DotReluDot_0/W2; without it, all arrays are listed",
    ),
    JSON,
)
def shards(options: argparse.Namespace) -> None:
    """Print the shards of the array, or all arrays."""
    snapshot = snapshots.read(options.snapshot)
    if options.array is None:
        if options.json:
            fields = ("shape", "spec", "shard_shape", "bytes_per_device")
            shared.print_json(
                [
                    {"array": one.path, **{field: getattr(one, field) for field in fields}}
                    | {"memory_kind": arrays.memory_kind(one)}
                    for one in snapshot.arrays
                ]
            )
        else:
            render.show([arrays.table(snapshot.arrays)])
        return
    chosen = snapshot.array(options.array)
    rows = array.shard_rows(chosen, snapshot)
    if rows is None:
        raise InvalidInput(f"the shards of {chosen.path} are unknown in {options.snapshot}")
    if options.json:
        shared.print_json(rows)
    else:
        render.show([array.shards(chosen, snapshot)])


@verb(
    "device",
    "list the contents of devices and the data that is lost if they fail",
    SNAPSHOT,
    one_of(
        argument("--device", metavar="ID[,ID…]", help="such as 3, or 0,4"),
        argument("--process", metavar="N", help="all devices of this process"),
        required=True,
    ),
    argument("--all", action="store_true", help="count all arrays, not only the train state"),
    JSON,
)
def device(options: argparse.Namespace) -> None:
    """Print the contents of the devices."""
    snapshot = snapshots.read(options.snapshot)
    if options.process is not None:
        process = shared.number(options.process.strip(), "--process", "one number")
        chosen = device_holdings.devices_of_process(snapshot, process)
    else:
        allowed = "numbers joined by commas, such as 0,4"
        ids = options.device.split(",")
        chosen = tuple(shared.number(one.strip(), "--device", allowed) for one in ids)
    held = device_holdings.holdings(snapshot, chosen, None if options.all else STATE_GROUPS)
    if options.json:
        sums = {"bytes": held.bytes, "alone": held.alone}
        shared.print_json(dataclasses.asdict(held) | sums)
    else:
        render.show(devices.section(snapshot, held).blocks)


@verb(
    "explain",
    "print why an array has its sharding (every rule that was tried), or why a collective is there",
    SNAPSHOT,
    one_of(
        argument(
            "--array", metavar="PATH", help="one array; without it, which arrays follow the rules"
        ),
        argument(
            "--collective",
            metavar="NAME",
            help="one collective, such as all-reduce.7 or train_step/all-reduce.7",
        ),
    ),
    argument(
        "--rules",
        metavar="RULES",
        help="rules, or a file of rules, for a Snapshot without rules: batch=data,embed=fsdp+tensor or a "
        "JSON list of [logical axis, mesh axes]",
    ),
    JSON,
)
def explain(options: argparse.Namespace) -> None:
    """Print the ledger of one array, the arrays that follow the rules, or the source of a collective."""
    snapshot = snapshots.read(options.snapshot)
    if options.collective is not None:
        program, one = collective_named(snapshot, options.collective)
        if options.json:
            shared.print_json({"program": program.name, **typed_json.encode(one)})
        else:
            render.show([collectives.cause(program, one)])
        return
    given = recorded(snapshot) if options.rules is None else _read_rules(options.rules)
    if given is None:
        raise InvalidInput(f"{options.snapshot} contains no rules: give them with --rules")
    reading = semantics(snapshot)
    if options.array is None:
        known = rules.ledgers(snapshot, given)
        if options.json:
            shared.print_json(
                [
                    {"array": one.path, "spec": one.spec, "linen": ledger.linen, "nnx": ledger.nnx}
                    | {"follows": ledger.follows}
                    for one, ledger in known
                ]
            )
        else:
            render.show(rules.overall(known, reading).blocks)
        return
    chosen = snapshot.array(options.array)
    found = ledger_of(chosen, snapshot.mesh, given, reading)
    if found is None:
        raise InvalidInput(f"{chosen.path} has no logical axes, so no rule applies to it")
    if options.json:
        shared.print_json({"array": chosen.path, **dataclasses.asdict(found)})
    else:
        render.show([text(chosen.path), *rules.of_array(chosen, found, given, reading)])


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


@verb(
    "audit",
    "find wasted memory and unused rules, ranked by bytes, with a fix for each",
    SNAPSHOT,
    shared.own_model("to find fixes for its Snapshots"),
    JSON,
)
def audit(options: argparse.Namespace) -> None:
    """Print the findings."""
    shared.register_own_model(options.model)
    snapshot = snapshots.read(options.snapshot)
    layout = _layout(snapshot)
    found = audits.audited(snapshot).findings
    if not options.json:
        found = audits.merged_by_logical_axis(found)
    rows = [
        (one, None if layout is None else audits.smallest_change(snapshot, one, layout))
        for one in found
    ]
    if options.json:
        shared.print_json([_plain(*row) for row in rows])
    else:
        render.show(findings.audited(rows))


def _layout(snapshot: Snapshot) -> Layout | None:
    """Return the layout of the Snapshot, or None if there is no layout that can be changed here."""
    try:
        return None if snapshot.layout is None else layouts.from_json(snapshot.layout)
    except InvalidInput:
        return None


def _plain(finding: Finding, change: Change | None) -> dict[str, Any]:
    plain: dict[str, Any] = typed_json.encode(finding)
    plain["change"] = change and {
        "words": change.words,
        "saves_per_device": change.saves,
        "layout": change.layout.to_json(),
    }
    return plain
