"""The verb `show`: the answers about a Snapshot, or about a recorded program."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inspector.answers import catalogue, screen
from inspector.answers import program_run as program_run_section
from inspector.answers.catalogue import SECTIONS, Subject
from inspector.answers.section import Block, text
from inspector.assessment import assess
from inspector.compiled.assumed import Assumed, with_assumed
from inspector.machines.hardware import Chip
from inspector.media.terminal import options as shared
from inspector.media.terminal.options import CHIP, JSON, SNAPSHOT, Output, argument, verb
from inspector.records import program_run, typed_json
from inspector.records.program_run import ProgramRun
from inspector.records.snapshot import Snapshot
from inspector.sharding.meshes import number_of_devices
from inspector.text.errors import require_one_of


@verb(
    "show",
    "print the answers about a Snapshot, or about the folder of a recorded program, on one screen",
    SNAPSHOT,
    CHIP,
    argument(
        "--section",
        metavar="NAME",
        action="append",
        default=[],
        help=f"print this section whole; repeat it for several: {', '.join(SECTIONS)}",
    ),
    shared.ALL,
    shared.assumptions,
    JSON,
)
def show(options: argparse.Namespace) -> Output:
    """Return the answers, or sections."""
    shared.chip_of(options)
    for name in options.section:
        require_one_of("--section", name, [*SECTIONS])
    assumed = shared.assumed_of(options)

    def plain() -> dict[str, Any]:
        (snapshot,) = with_assumed([shared.read_snapshot(options.snapshot)], assumed)
        return facts_of(snapshot, shared.chip_of(options, snapshot))

    brief = not (options.all or options.section)
    return Output(plain, lambda: _shown(options, assumed, brief), brief)


def facts_of(snapshot: Snapshot, chip: Chip | None) -> dict[str, Any]:
    """Return source, layout and assessment as JSON, and the facts of the sections."""
    return {
        "source": typed_json.encode(snapshot.source),
        "layout": snapshot.layout,
        "assessment": typed_json.encode(assess(snapshot, chip)),
        **catalogue.facts(Subject.of(snapshot, chip)),
    }


def _shown(options: argparse.Namespace, assumed: Assumed, brief: bool) -> list[Block]:
    run = run_of(options.snapshot)
    if run is not None and not run.programs and not (Path(options.snapshot) / program_run.SNAPSHOT).is_file():
        return [program_run_section.section(run)]
    (recorded,) = with_assumed([shared.read_snapshot(options.snapshot)], assumed)
    about = Subject.of(recorded, shared.chip_of(options, recorded), run)
    if options.section:
        return catalogue.blocks(about, options.section)
    following = following_of(run, recorded)
    return answers(about, following) if brief else [*catalogue.blocks(about), *following]


def answers(about: Subject, following: Sequence[Block] = ()) -> list[Block]:
    """Return the answers for one screen, what to do next, and the sections with the rest."""
    known = [key for key, entry in SECTIONS.items() if any(entry.make(about))]
    more = text(f"More: --section {', '.join(known)}; all sections: --all.", quiet=True)
    return [*screen.of_snapshot(about), *following, more]


def run_of(path: str) -> ProgramRun | None:
    """Return the record of a folder of `run`; None for another file or folder."""
    return program_run.read(path) if path and (Path(path) / program_run.FILE).is_file() else None


def following_of(run: ProgramRun | None, snapshot: Snapshot | None) -> list[Block]:
    """Return the next command for a recorded program; nothing for a Snapshot."""
    if run is None or (snapshot is not None and snapshot.source.processes > 1):
        return []
    devices = None if snapshot is None else number_of_devices(snapshot)
    command = program_run_section.next_command(run, devices)
    return [] if command is None else [command]
