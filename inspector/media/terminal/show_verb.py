"""`show`: print a summary of a Snapshot."""

from __future__ import annotations

import argparse

from inspector.core import snapshot as snapshots
from inspector.core.snapshot import Snapshot
from inspector.machines.hardware import Chip
from inspector.media.terminal import options as shared
from inspector.media.terminal import render
from inspector.sections import arrays, collectives, findings, memory, summary, time
from inspector.sections.section import Block

NAME = "show"
HELP = "print a summary of a Snapshot: source, mesh, bytes, arrays, programs, findings"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_snapshot(parser)
    shared.add_chip(parser)


def run(options: argparse.Namespace) -> None:
    """Print the summary."""
    chip = shared.chip_of(options)
    render.show(blocks(snapshots.read(options.snapshot), chip))


def blocks(snapshot: Snapshot, chip: Chip | None = None) -> list[Block]:
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
