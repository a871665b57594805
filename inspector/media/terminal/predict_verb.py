"""`predict`: how long a step takes on a chip, with its interval, and where the time goes."""

import argparse
import json

from inspector.assessment.activations import recomputing_seconds
from inspector.assessment.measured import measured_step
from inspector.core import output
from inspector.core.assumed import with_assumed
from inspector.core.errors import InvalidInput, require_one_of
from inspector.core.program_names import noun
from inspector.core.snapshot import Program, Snapshot
from inspector.figures.timeline import trace_events
from inspector.machines import hardware, targets
from inspector.machines.evidence import for_chip
from inspector.machines.prediction.predicted import predicted_in
from inspector.media.terminal import options as shared
from inspector.media.terminal.options import CHIP, JSON, SNAPSHOT, Output, argument, verb
from inspector.sections import activations, exposed, measured, pipelines, prediction
from inspector.sections.programs import main_first


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
    """Return the prediction for one program."""
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
        events = trace_events(predicted.simulated, program, prediction.measured_for(predicted, program))
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
