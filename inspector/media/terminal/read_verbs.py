"""Verbs that print facts of one Snapshot: `show`, `shards`, `device` and `audit`."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inspector.assessment import assess
from inspector.checks import audit as audits
from inspector.checks.audit import Change
from inspector.compare.board_link import layout_of
from inspector.core import device_holdings, program_run, typed_json
from inspector.core.assumed import Assumed, with_assumed
from inspector.core.errors import InvalidInput
from inspector.core.memory_kinds import memory_kind
from inspector.core.meshes import number_of_devices
from inspector.core.placement import inside_shard_map
from inspector.core.program_run import ProgramRun
from inspector.core.snapshot import Finding, Snapshot
from inspector.core.totals import STATE_GROUPS
from inspector.machines import targets
from inspector.machines.evidence import for_chip
from inspector.machines.hardware import Chip
from inspector.media.terminal import options as shared
from inspector.media.terminal.options import CHIP, JSON, SNAPSHOT, Output, argument, one_of, verb
from inspector.sections import (
    activations,
    array,
    arrays,
    assessed,
    collectives,
    devices,
    expert_load,
    exposed,
    improvements,
    memory,
    partitioned_traffic,
    pipelines,
    reshards,
    sharding_errors,
    summary,
    time,
    verdict_bars,
)
from inspector.sections import program_run as program_run_section
from inspector.sections.section import Block


@verb(
    "show",
    "print a summary of a Snapshot: source, mesh, bytes, arrays, programs, findings; or of the folder of "
    "a recorded program",
    SNAPSHOT,
    CHIP,
    shared.assumptions,
    JSON,
)
def show(options: argparse.Namespace) -> Output:
    """Return the summary."""
    shared.chip_of(options)
    assumed = shared.assumed_of(options)

    def plain() -> dict[str, Any]:
        (snapshot,) = with_assumed([shared.read_snapshot(options.snapshot)], assumed)
        return facts_of(snapshot, shared.chip_of(options, snapshot))

    return Output(plain, lambda: _summary_blocks(options, assumed))


def facts_of(snapshot: Snapshot, chip: Chip | None) -> dict[str, Any]:
    """Return source, layout and assessment as JSON, and the reshards of a run."""
    return {
        "source": typed_json.encode(snapshot.source),
        "layout": snapshot.layout,
        "assessment": typed_json.encode(assess(snapshot, chip)),
        **({"reshards": reshards.plain(snapshot, chip)} if snapshot.reshards else {}),
        **({"pipelines": found} if (found := pipelines.of_snapshot(snapshot, chip)) else {}),
        **exposed.json_of(snapshot, targets.chip_for(snapshot, chip)),
        **({"activations": kept} if (kept := activations.to_json(snapshot, chip)) else {}),
        **expert_load.json_of(snapshot),
    }


def _summary_blocks(options: argparse.Namespace, assumed: Assumed) -> list[Block]:
    run = _run_of(options.snapshot)
    blocks: list[Block] = [] if run is None else [program_run_section.section(run)]
    recorded: Snapshot | None = None
    if run is None or run.programs or (Path(options.snapshot) / program_run.SNAPSHOT).is_file():
        (recorded,) = with_assumed([shared.read_snapshot(options.snapshot)], assumed)
        blocks += summary_of(recorded, shared.chip_of(options, recorded))
    return [*blocks, *_next(run, recorded)]


def _run_of(path: str) -> ProgramRun | None:
    """Return the record of a folder of `run`; None for another file or folder."""
    return program_run.read(path) if path and (Path(path) / program_run.FILE).is_file() else None


def _next(run: ProgramRun | None, snapshot: Snapshot | None) -> list[Block]:
    """Return the next command for a recorded program; nothing for a Snapshot."""
    if run is None or (snapshot is not None and snapshot.source.processes > 1):
        return []
    devices = None if snapshot is None else number_of_devices(snapshot)
    command = program_run_section.next_command(run, devices)
    return [] if command is None else [command]


def summary_of(snapshot: Snapshot, chip: Chip | None = None) -> list[Block]:
    """Return the summary, with memory and time modelled on `chip` if there is one."""
    chip = targets.chip_for(snapshot, chip)
    before, snapshot = snapshot, for_chip(snapshot, chip)
    blocks: list[Block] = [
        summary.facts(snapshot),
        assessed.facts(before, chip),
        *verdict_bars.blocks(assess(before, chip), "verdict"),
        *sharding_errors.sections(snapshot),
    ]
    if snapshot.arrays:
        blocks += arrays.tree_texts(snapshot, snapshot.arrays)
        blocks += arrays.host_memory(snapshot.arrays)
        blocks += arrays.packed(snapshot.arrays)
    if snapshot.programs:
        blocks.append(collectives.section(snapshot, listed=True))
        blocks += [*expert_load.section(snapshot), *partitioned_traffic.sections(before)]
    blocks += reshards.sections(snapshot, chip)
    if snapshot.programs or chip is not None:
        blocks.append(memory.section(snapshot, chip, replicated=False))
        blocks.append(time.section(before, chip))
    if snapshot.findings or snapshot.effects is not None:
        blocks.append(improvements.section(snapshot, chip))
    return blocks


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
def shards(options: argparse.Namespace) -> Output:
    """Return the shards of the array, or all arrays."""
    snapshot = shared.read_snapshot(options.snapshot)
    if options.array is None:
        fields = ("shape", "spec", "shard_shape", "bytes_per_device")
        return Output(
            lambda: [
                {"array": array.path, **{field: getattr(array, field) for field in fields}}
                | {"memory_kind": memory_kind(array)}
                for array in snapshot.arrays
            ],
            lambda: [arrays.table(snapshot.arrays)],
        )
    chosen = snapshot.array(options.array)
    rows = array.shard_rows(chosen, snapshot)
    if rows is None and (reason := inside_shard_map(chosen)):
        raise InvalidInput(reason)
    if rows is None:
        raise InvalidInput(f"the shards of {chosen.path} are unknown in {options.snapshot}")
    return Output(lambda: rows, lambda: [array.shards(chosen, snapshot)])


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
def device(options: argparse.Namespace) -> Output:
    """Return the contents of the devices."""
    snapshot = shared.read_snapshot(options.snapshot)
    if options.process is not None:
        process = shared.number(options.process.strip(), "--process", "one number")
        chosen = device_holdings.devices_of_process(snapshot, process)
    else:
        allowed = "numbers joined by commas, such as 0,4"
        ids = options.device.split(",")
        chosen = tuple(shared.number(text.strip(), "--device", allowed) for text in ids)
    held = device_holdings.holdings(snapshot, chosen, None if options.all else STATE_GROUPS)
    sums = {"bytes": held.bytes, "host_bytes": held.host, "alone": held.alone}
    return Output(lambda: dataclasses.asdict(held) | sums, lambda: devices.section(held).blocks)


@verb(
    "audit",
    "find wasted memory and unused rules, ranked by bytes, with a fix for each",
    SNAPSHOT,
    shared.own_model("to find fixes for its Snapshots"),
    JSON,
)
def audit(options: argparse.Namespace) -> Output:
    """Return the findings."""
    shared.register_own_model(options.model)
    snapshot = shared.read_snapshot(options.snapshot)
    layout = layout_of(snapshot)
    findings = audits.audited(snapshot).findings

    def with_fixes(findings: Sequence[Finding]) -> list[tuple[Finding, Change | None]]:
        return [
            (finding, None if layout is None else audits.smallest_change(snapshot, finding, layout))
            for finding in findings
        ]

    return Output(
        lambda: [_plain(*row) for row in with_fixes(findings)],
        lambda: [
            *improvements.audited(snapshot, with_fixes(audits.merged_by_logical_axis(findings))),
            *_next(_run_of(options.snapshot), snapshot),
        ],
    )


def _plain(finding: Finding, change: Change | None) -> dict[str, Any]:
    plain: dict[str, Any] = typed_json.encode(finding)
    plain["change"] = change and {
        "words": change.words,
        "saves_per_device": change.saves,
        "repeated_work": [finding.message for finding in change.repeated_work],
        "layout": change.layout.to_json(),
    }
    return plain
