"""Verbs that make a Snapshot or a script: `inspect`, `import` and `code`."""

import argparse
import sys
from contextlib import suppress
from dataclasses import replace

from inspector import audit
from inspector import layout as layouts
from inspector.answers import sharding_errors
from inspector.compiled.measured_program import joined
from inspector.files import output
from inspector.files.sources import IMPORT_KINDS, READERS
from inspector.jobs.agreement import refuse_indivisible
from inspector.jobs.engine import Status
from inspector.layout import Layout
from inspector.layout.script import script
from inspector.machines.compiler_options import Options
from inspector.media.terminal import explain_verb, render
from inspector.media.terminal import options as shared
from inspector.media.terminal.layout_options import LAYOUT, LAYOUT_HELP, layout_of, unsafe_options_of
from inspector.media.terminal.options import argument, verb
from inspector.readers import limits
from inspector.records import snapshot
from inspector.records.snapshot import Snapshot
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import and_text
from inspector.text.printable import one_line


@verb(
    "inspect",
    "make a Snapshot: plan a layout, run it on emulated devices, or compile it for a target",
    *LAYOUT,
    argument(
        "--effects",
        action="store_true",
        help="also compute the effect of each rule, sharding constraint and mesh axis on the train step",
    ),
    shared.output_to("SNAPSHOT.json"),
)
def inspect(options: argparse.Namespace) -> None:
    """Make the Snapshot of a layout and write it."""
    if options.output is not None:
        output.refuse_unwritable(options.output)
    layout = layout_of(options)
    result = snapshot_of(layout, unsafe_options_of(options, layout))
    render.show(sharding_errors.refusals(result.programs), sys.stderr)
    for finding in result.findings:
        if finding.code == audit.LEFT_OUT:
            print(one_line(f"{finding.level}: {finding.message}"), file=sys.stderr)
    if options.effects:
        chip = layout.machine.chip if layout.machine else None
        result = replace(result, effects=explain_verb.computed_effects(layout, layout.step_program, chip))
    shared.write_text(snapshot.dumps(result), options.output)


def snapshot_of(layout: Layout, unsafe: Options = ()) -> Snapshot:
    """Return the audited Snapshot of a layout for its target, with progress on standard error."""
    return audit.audited(_inspected(layout, unsafe))


def _inspected(layout: Layout, unsafe: Options) -> Snapshot:
    with shared.workers() as service:
        planned = service.plan(layout)
        refuse_indivisible(planned)
        if layout.target == "plan":
            return service.with_programs(planned, layout)
        request = service.run(layout, planned, unsafe)
        if request.known() is not None:
            print("cached from an earlier compile", file=sys.stderr)
        programs = service.programs(layout).start()  # in another process than the run
        answer = shared.follow(
            request, lambda status: " ".join(filter(None, (status.phase, status.progress.get("program"))))
        )
        with suppress(InvalidInput):
            programs.wait().answer()  # the service then knows them
        return service.with_programs(answer, layout)


@verb(
    "import",
    "make a Snapshot from: " + ", ".join(READERS[kind].title for kind in IMPORT_KINDS),
    argument("kind", choices=IMPORT_KINDS),
    argument(
        "path",
        metavar="PATH",
        help="; ".join(f"{kind}: {READERS[kind].path}" for kind in IMPORT_KINDS) + "; or a zip file of it",
    ),
    argument("--step", metavar="N", help="the step of an Orbax checkpoint; the latest by default"),
    argument("--mesh", metavar="2x4", help="sizes of the mesh axes, if the HLO names no mesh"),
    argument("--axes", metavar="data,model", help="names of the mesh axes of --mesh"),
    argument(
        "--program",
        metavar="SNAPSHOT.json",
        help="a Snapshot of the program that was profiled, or a folder of run, for arrays, origins and "
        "sources",
    ),
    shared.output_to("SNAPSHOT.json"),
)
def import_(options: argparse.Namespace) -> None:
    """Read the files of a job and write the Snapshot.

    Raise InvalidInput for an option of another kind of file.
    """
    step = None
    if options.step is not None:
        if not READERS[options.kind].has_steps:
            names = ", ".join(reader.name for reader in READERS.values() if reader.has_steps)
            raise InvalidInput(f"--step is {shown(options.step)}, but only {names} has steps")
        step = shared.number(options.step, "--step", "the number of a step, such as 1000")
    mesh = layouts.parse_given_mesh(options.mesh, options.axes, limits.MOST_DEVICES, limits.MOST_AXES)
    if mesh is not None and not READERS[options.kind].takes_mesh:
        names = and_text([reader.name for reader in READERS.values() if reader.takes_mesh])
        raise InvalidInput(f"--mesh is {shown(options.mesh)}, but is only for {names}")
    if options.output is not None:
        output.refuse_unwritable(options.output)
    if not options.path:
        raise InvalidInput(f"PATH is {shown(options.path)}, but must be a file or folder")
    known = None
    if options.program is not None:
        if options.kind != "profile":
            raise InvalidInput(
                f"--program is {shown(options.program)}, but is only for {READERS['profile'].name}"
            )
        known = shared.read_snapshot(options.program)
    imported = shared.opened(options.path, _read_progress, options.kind, step, mesh)
    if known is not None:
        imported = joined(imported, known, options.program)
    for finding in imported.findings:
        print(one_line(f"{finding.level}: {finding.message}"), file=sys.stderr)
    shared.write_text(snapshot.dumps(audit.audited(imported)), options.output)


def _read_progress(status: Status) -> str:
    return "" if status.phase in (None, "start") else str(status.phase)


@verb(
    "code",
    "write a Flax script that builds and trains a model with exactly this layout",
    argument("layout", metavar="LAYOUT.json", help=LAYOUT_HELP),
    shared.own_model("if the layout is of one"),
    shared.output_to("FILE"),
)
def code(options: argparse.Namespace) -> None:
    """Write the script. A model of the user's own is only loaded if --model names it.

    Raise InvalidInput if it names another one.
    """
    if options.output is not None:
        output.refuse_unwritable(options.output)
    shared.register_own_model(options.model)
    layout = shared.read_layout(options.layout)
    if options.model not in (None, layout.model):
        raise InvalidInput(
            f"--model is {shown(options.model)}, but the model of {options.layout} is {layout.model}"
        )
    shared.write_text(script(layout), options.output)
