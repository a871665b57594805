"""`explain --effects`: what each rule, sharding constraint and mesh axis of a layout costs."""

import argparse
from collections.abc import Sequence

from inspector.answers import effects as section
from inspector.files import strict_json
from inspector.jobs.engine import Status
from inspector.layout import Layout
from inspector.machines.hardware import Chip
from inspector.media.terminal import options as shared
from inspector.media.terminal.options import Output, argument
from inspector.records import snapshot as snapshots
from inspector.records import typed_json
from inspector.records.snapshot import Effects

OPTION = argument(
    "--effects",
    action="store_true",
    help="the change in bytes and time without each rule, sharding constraint and mesh axis, and with two "
    "rules swapped, after XLA's partitioner; the file can also be a layout",
)
PROGRAM = argument(
    "--program",
    metavar="NAME",
    help="the program of --effects: train_step, apply, init or another; by default the train step, else the "
    "first program of the model",
)


def explain(options: argparse.Namespace) -> Output:
    """Return the effects for the layout of a Snapshot or of a layout file."""
    layout = shared.read_layout(options.snapshot)
    chip = shared.chip_of(options) or (layout.machine.chip if layout.machine else None)
    program = options.program or layout.step_program
    effects = _recorded(options.snapshot, program, chip) or computed(layout, program, chip)
    return shared.on_screen(options, lambda: typed_json.encode(effects), lambda: [section.section(effects)])


def computed(layout: Layout, program: str, chip: Chip | None, kinds: Sequence[str] = ()) -> Effects:
    """Compute the effects of changes in a worker process, with progress on standard error.

    kinds: kinds of changes that are tried; all if it is empty.

    Raises:
      InvalidInput: the layout is not valid, or it has no such program.
    """
    with shared.workers() as service:
        request = service.effects(layout, program, None if chip is None else chip.name, kinds)
        return shared.follow(request, _progress)


def _recorded(path: str, program: str, chip: Chip | None) -> Effects | None:
    """Return the effects that the Snapshot contains, if they are those of this program and chip."""
    plain = strict_json.read(path)
    if not isinstance(plain, dict) or plain.get("effects") is None:
        return None
    effects = snapshots.from_json(plain, path).effects
    wanted = (program, None if chip is None else chip.name)
    return effects if effects and (effects.program, effects.chip) == wanted else None


def _progress(status: Status) -> str:
    if "of" not in status.progress:
        return ""
    done, number = status.progress["done"], status.progress["of"]
    return f"change {min(done + 1, number)} of {number}"
