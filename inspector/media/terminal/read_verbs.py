"""Verbs that read a Snapshot: `shards`, `device`, `audit` and `predict`."""

import argparse
import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from inspector import audit as audits
from inspector.answers import (
    activations,
    array,
    arrays,
    devices,
    exposed,
    improvements,
    measured,
    pipelines,
    prediction,
    screen,
)
from inspector.answers.catalogue import Subject
from inspector.answers.improvements import Improvement
from inspector.answers.section import more
from inspector.assessment import assess
from inspector.assessment.activations import recomputing_seconds
from inspector.assessment.measured import measured_step
from inspector.compiled.assumed import with_assumed
from inspector.figures.timeline import trace_events
from inspector.files import output
from inspector.layout import Layout, layout_of
from inspector.layout.changes import SMALL
from inspector.machines import hardware, targets
from inspector.media.terminal import explain_verb
from inspector.media.terminal import options as shared
from inspector.media.terminal.options import CHIP, JSON, SNAPSHOT, Output, argument, one_of, verb
from inspector.media.terminal.show_verb import following_of, run_of
from inspector.prediction.evidence import for_chip
from inspector.prediction.predicted import predicted_in
from inspector.prediction.step_parts import measured_spans
from inspector.prediction.step_program import main_first
from inspector.records import typed_json
from inspector.records.snapshot import Effects, Program, Snapshot
from inspector.sharding import device_holdings
from inspector.sharding.memory_kinds import memory_kind
from inspector.sharding.sharding_text import inside_shard_map
from inspector.sharding.totals import state_groups
from inspector.text.errors import InvalidInput, require_one_of
from inspector.text.program_names import noun


@verb(
    "predict",
    "predict the time of a step from the compiler's schedule, with an interval from published runs",
    SNAPSHOT,
    argument("--program", metavar="NAME", help="such as train_step; the one of `show` by default"),
    CHIP,
    shared.assumptions,
    argument(
        "--trace",
        metavar="TRACE.json",
        help="also write the timeline to a file that Perfetto opens",
    ),
    shared.ALL,
    JSON,
)
def predict(options: argparse.Namespace) -> Output:
    """Return the prediction for one program.

    Raise InvalidInput without a mesh, or a timeline that is asked for.
    """
    if options.trace is not None:
        output.refuse_unwritable(options.trace)
    snapshot = shared.read_snapshot(options.snapshot)
    chip = targets.chip_for(snapshot, shared.chip_of(options, snapshot))
    assumed = shared.assumed_of(options)
    if chip is None:
        return _needs(options, snapshot, _program(snapshot, options.program))
    (ran,) = with_assumed([snapshot], assumed)
    snapshot = for_chip(ran, chip)
    program = _program(snapshot, options.program)
    if snapshot.mesh is None:
        raise InvalidInput(f"{options.snapshot} has no mesh, so its step cannot be predicted")
    predicted = predicted_in(snapshot, program, chip)
    if options.trace is not None:
        if predicted.seconds is None or predicted.simulated is None:
            why = (
                f"the time of {noun(program.name)} is unknown: {'; '.join(predicted.unknown)}"
                if predicted.seconds is None
                else f"{noun(program.name)} is not compiled, so the order of its operations is unknown"
            )
            raise InvalidInput(f"--trace needs a timeline, but {why}")
        events = trace_events(predicted.simulated, program, measured_spans(program))
        output.write_text(json.dumps({"traceEvents": events}), options.trace)
    own_chip, timed = targets.chip_of(snapshot), _program(ran, program.name)

    return shared.on_screen(
        options,
        lambda: (
            prediction.json_of(predicted, program)
            | {"recomputing_seconds": recomputing_seconds(predicted, program)}
            | _measured(ran, timed, own_chip)
            | exposed.json_of(ran, chip, [timed])
        ),
        lambda: [
            prediction.section(snapshot, program.name, chip),
            *activations.sentences(snapshot, program.name, chip),
            *measured.section(ran, own_chip, [timed]),
            *exposed.section(ran, chip, [timed]),
        ],
    )


def _measured(snapshot: Snapshot, program: Program, chip: hardware.Chip | None) -> dict[str, object]:
    """Return the measured step under its key; empty if the program was not profiled."""
    profiled = measured_step(snapshot, program, chip)
    return {} if profiled is None else {"measured": measured.json_of(profiled)}


def _program(snapshot: Snapshot, name: str | None) -> Program:
    if not snapshot.programs:
        raise InvalidInput("the Snapshot has no programs, so no step can be predicted")
    if name is None:
        return next(iter(main_first(snapshot)))
    require_one_of("--program", name, [program.name for program in snapshot.programs])
    return next(program for program in snapshot.programs if program.name == name)


def _needs(options: argparse.Namespace, snapshot: Snapshot, program: Program) -> Output:
    """Return the needs of a prediction.

    Raises:
      InvalidInput: a file is to be written.
    """
    if options.trace is not None:
        raise InvalidInput("--trace needs the chip of the timeline: choose one with --chip")
    chips = [*hardware.CHIPS]
    return shared.on_screen(
        options,
        lambda: {
            "program": program.name,
            "seconds": None,
            "needs": prediction.needs(program, chips),
            **({"pipelines": pipelines.plain(program)} if program.pipelines else {}),
            **_measured(snapshot, program, None),
            **exposed.json_of(snapshot, None, [program]),
        },
        lambda: [
            *measured.section(snapshot, None, [program]),
            prediction.needed(program, chips),
            *exposed.section(snapshot, None, [program]),
        ],
    )


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
    """Return the shards of the array, or all arrays; raise InvalidInput if they are unknown."""
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
    "list the contents of devices",
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
    held = device_holdings.holdings(snapshot, chosen, None if options.all else state_groups(snapshot))
    sums = {"bytes": held.bytes, "host_bytes": held.host}
    return Output(lambda: dataclasses.asdict(held) | sums, lambda: devices.section(held).blocks)


@verb(
    "audit",
    "find wasted memory and unused rules, ranked by bytes, with a fix for each",
    SNAPSHOT,
    shared.own_model("to find fixes for its Snapshots"),
    shared.ALL,
    JSON,
)
def audit(options: argparse.Namespace) -> Output:
    """Return the findings."""
    shared.register_own_model(options.model)
    snapshot = shared.read_snapshot(options.snapshot)
    layout = layout_of(snapshot)
    snapshot = replace(audits.audited(snapshot), effects=_small_changes(snapshot, layout))
    listed = audits.merged_by_logical_axis(snapshot.findings)
    rows = improvements.ranked(snapshot, listed)
    kept = listed if options.all else screen.matter(listed, Subject.of(snapshot, None))
    large = [row for row in rows if row.finding is None or row.finding in kept]
    fixes = {
        id(finding): audits.smallest_change(snapshot, finding, layout)
        for row in rows
        for finding in row.findings
        if layout is not None
    }
    return shared.on_screen(
        options,
        lambda: [plain for row in rows for plain in _plain(row, fixes)],
        lambda: [
            *improvements.audited(snapshot, large or rows, fixes),
            *more(len(rows) - len(large or rows), "finding"),
            *following_of(run_of(options.snapshot), snapshot),
        ],
    )


def _small_changes(snapshot: Snapshot, layout: Layout | None) -> Effects | None:
    """Return the effects of a Snapshot; those of small changes if it has a layout, but no effects."""
    assessed = assess(snapshot)
    if snapshot.effects is not None or layout is None or assessed.rejected is not None:
        return snapshot.effects
    too_large = assessed.memory is not None and assessed.memory.fits is False
    kinds = (*SMALL, "preset", "chips") if too_large else SMALL
    chip = layout.machine.chip if layout.machine else None
    try:
        return explain_verb.computed_effects(layout, layout.step_program, chip, kinds)
    except InvalidInput:  # it cannot be traced here, such as without its source files
        return None


def _plain(row: Improvement, fixes: Mapping[int, audits.Fix | None]) -> Iterator[dict[str, Any]]:
    for finding in row.findings:
        fix = fixes.get(id(finding))
        plain = typed_json.encode(finding)
        plain["change"] = fix and {
            "words": fix.words,
            "saves_per_device": fix.saves,
            "repeated_work": [finding.message for finding in fix.repeated_work],
            "layout": fix.layout,
        }
        if row.effect is not None:
            plain["change"] = {"words": row.effect.label, "layout": row.effect.layout}
        yield plain
    if row.finding is None and row.effect is not None:
        message = f"{row.title}: {row.gain}. {row.message}".strip()
        change = {"words": row.effect.label, **typed_json.encode(row.effect)}
        yield {"level": "note", "code": f"change-{row.effect.kind}", "message": message, "change": change}
