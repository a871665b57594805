"""Verbs that make a Snapshot or a script: `inspect`, `import` and `code`."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

from inspector import layout as layouts
from inspector.checks import audit
from inspector.core import output, snapshot
from inspector.core.errors import InvalidInput, shown
from inspector.core.printable import one_line
from inspector.core.snapshot import Snapshot
from inspector.core.sources import IMPORT_KINDS, READERS
from inspector.core.temporary_folder import TemporaryFolder
from inspector.layout import Layout, rule_files
from inspector.layout.script import script
from inspector.media.terminal import effects, render
from inspector.media.terminal import options as shared
from inspector.media.terminal.options import argument, verb
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.producers.readers import limits
from inspector.producers.readers.archive import ZIP
from inspector.sections import sharding_errors
from inspector.service.agreement import refuse_indivisible
from inspector.service.engine import Status

_OPTIONS = (
    *("model", "mesh", "axes", "rules", "specs", "state_specs"),
    *("target", "steps", "processes", "compiler_options"),
)
_LAYOUT_HELP = "a layout, or a Snapshot with a layout"


@verb(
    "inspect",
    "make a Snapshot: plan a layout, run it on emulated devices, or compile it for a target",
    argument("layout", nargs="?", metavar="LAYOUT.json", help=_LAYOUT_HELP),
    argument(
        "--model",
        metavar="NAME",
        help=f"one of {', '.join(CATALOGUE)}, or your own as package.module:function",
    ),
    argument("--mesh", metavar="2x4", help="sizes of the mesh axes"),
    argument(
        "--axes",
        metavar="data,model",
        help="names of the mesh axes; data:explicit,model for an explicit axis",
    ),
    argument(
        "--rules",
        metavar="batch=data,hidden=model",
        help="rules in order; embed=fsdp+tensor for more than one mesh axis, embed= for none; or a file with "
        "rules: YAML of MaxText or Levanter, Python or gin of T5X",
    ),
    argument(
        "--rule-set",
        metavar="NAME",
        help="a list in the file of --rules; the first one by default",
    ),
    argument(
        "--specs",
        metavar="W1=None.model,…",
        help="PartitionSpecs of a model with device axes, instead of rules",
    ),
    argument(
        "--state-specs",
        metavar="PATTERN=SPEC;…",
        help="PartitionSpecs of a model with state_specs, by regular expressions of paths in order: "
        "'wq/kernel=fsdp.mp;bias=;.*=fsdp(data,1024)'; fsdp shards the largest dimension of an array above "
        "a number of bytes",
    ),
    argument("--sizes", metavar="NAME", help="the sizes of a published model, such as Llama-3-8B"),
    argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="one size of the model; may be repeated",
    ),
    argument(
        "--target",
        metavar="T",
        help="cpu (default): build and run; plan: shapes and specs only; tpu:v5p:4x4x4, "
        "tpu:v5e:16x16*2 or gpu:h100:8: compile for a machine, without the machine",
    ),
    argument("--steps", metavar="N", help="number of measured train steps and inferences"),
    argument(
        "--processes",
        metavar="N",
        help="1 (default), 2 or 4 processes that share the devices, with jax.distributed",
    ),
    argument(
        "--compiler-options",
        metavar="NAME=VALUE,…",
        help="options of XLA for all programs, such as xla_tpu_scoped_vmem_limit_kib=98304",
    ),
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
    if options.model not in CATALOGUE:
        shared.register_own_model(options.model)
    layout = layouts.parse(_fields(options)).unwrap()
    found = audit.audited(_inspected(layout))
    render.show(sharding_errors.refusals(found.programs), sys.stderr)
    for finding in found.findings:
        if finding.code == audit.LEFT_OUT:
            print(one_line(f"{finding.level}: {finding.message}"), file=sys.stderr)
    if options.effects:
        chip = layout.machine.chip if layout.machine else None
        found = replace(found, effects=effects.computed(layout, effects.program_of(layout), chip))
    shared.write_text(snapshot.dumps(found), options.output)


def _inspected(layout: Layout) -> Snapshot:
    """Return the Snapshot of a layout for its target, with progress on standard error."""
    with shared.workers() as service:
        planned = service.plan(layout)
        refuse_indivisible(planned)
        if layout.target == "plan":
            return service.with_programs(planned, layout)
        kept = service.cached_compile(layout)
        if kept is not None:
            print("cached from an earlier compile", file=sys.stderr)
            found = kept
        else:
            propagation = service.start_propagation(layout)  # in another process than the run
            found = shared.follow(service.start_run(layout, planned), _run_progress)
            propagation.wait()
        service.propagate(layout)
        return service.with_propagated(found, layout)


def _run_progress(status: Status) -> str:
    return " ".join(filter(None, (status.phase, status.progress.get("program"))))


def _fields(options: argparse.Namespace) -> dict[str, str]:
    fields: dict[str, str] = {}
    if options.layout is not None:
        fields = layouts.to_fields(shared.read_layout(options.layout))
    given = {
        name: getattr(options, name) for name in _OPTIONS if getattr(options, name) is not None
    }
    if "axes" in given:
        fields.pop("axis_types", None)  # an axis without a type is auto
    if options.sizes is not None:
        given = _sizes_of(options.sizes, (fields | given).get("model")) | given
    for pair in options.set:
        name, separator, value = pair.partition("=")
        if not separator or name in _OPTIONS:
            raise InvalidInput(
                f"--set is {shown(pair)}, but must be SIZE=VALUE, such as --set depth=512"
            )
        given[name] = value
    path = given.get("rules", "")
    if path and rule_files.is_file(path):
        del given["rules"]
        keep_mesh = True if "mesh" in given or "axes" in given else None
        layout = layouts.parse(fields | given).unwrap()
        return layouts.to_fields(_with_rules(layout, path, options.rule_set, keep_mesh))
    if options.rule_set is not None:
        raise InvalidInput(
            f"--rule-set is {shown(options.rule_set)}, but --rules must be a file for it"
        )
    return fields | given


def _with_rules(layout: Layout, path: str, name: str | None, keep_mesh: bool | None) -> Layout:
    """Return the layout with the rules of a file. Report its mesh and the rules that it does not use."""
    rule_set = rule_files.chosen(rule_files.rule_sets(rule_files.read(path), path), name)
    changed = rule_set.applied_to(layout, keep_mesh)
    print(one_line(f"{path}: {rule_files.applied_text(rule_set, changed)}"), file=sys.stderr)
    return changed


def _sizes_of(name: str, model: str | None) -> dict[str, str]:
    """Return the sizes of a published model, as the text of fields."""
    entry = layouts.parse({} if model is None else {"model": model}).unwrap().entry
    chosen = next((one for one in entry.presets if one.name.lower() == name.lower()), None)
    if chosen is None:
        names = ", ".join(one.name for one in entry.presets) or "none"
        raise InvalidInput(f"--sizes is {shown(name)}, but model {entry.name} has {names}")
    return {key: layouts.print_size(value) for key, value in entry.sizes_of(chosen).items()}


@verb(
    "import",
    "make a Snapshot from: " + ", ".join(READERS[kind].title for kind in IMPORT_KINDS),
    argument("kind", choices=IMPORT_KINDS),
    argument(
        "path",
        metavar="PATH",
        help="; ".join(f"{kind}: {READERS[kind].path}" for kind in IMPORT_KINDS)
        + "; or a zip file of it",
    ),
    argument("--step", metavar="N", help="the step of an Orbax checkpoint; the latest by default"),
    argument("--mesh", metavar="2x4", help="sizes of the mesh axes, if HLO text names no mesh"),
    argument("--axes", metavar="data,model", help="names of the mesh axes of --mesh"),
    shared.output_to("SNAPSHOT.json"),
)
def import_(options: argparse.Namespace) -> None:
    """Read the files of a job and write the Snapshot."""
    step = None
    if options.step is not None:
        if not READERS[options.kind].has_steps:
            names = ", ".join(reader.name for reader in READERS.values() if reader.has_steps)
            raise InvalidInput(f"--step is {shown(options.step)}, but only {names} has steps")
        step = shared.number(options.step, "--step", "the number of a step, such as 1000")
    mesh = layouts.parse_given_mesh(
        options.mesh, options.axes, limits.MOST_DEVICES, limits.MOST_AXES
    )
    if mesh is not None and not READERS[options.kind].takes_mesh:
        names = ", ".join(reader.name for reader in READERS.values() if reader.takes_mesh)
        raise InvalidInput(f"--mesh is {shown(options.mesh)}, but is only for {names}")
    if options.output is not None:
        output.refuse_unwritable(options.output)
    found = _imported(options.kind, options.path, step, mesh)
    for finding in found.findings:
        print(one_line(f"{finding.level}: {finding.message}"), file=sys.stderr)
    shared.write_text(snapshot.dumps(audit.audited(found)), options.output)


def _imported(
    kind: str, path: str, step: int | None, mesh: tuple[tuple[str, int], ...] | None = None
) -> Snapshot:
    """Return the Snapshot of a file or folder, read by a worker process."""
    folder = TemporaryFolder() if _is_zip(path) else None
    try:
        with shared.workers() as service:
            job = service.start_import(
                os.path.abspath(path), path, kind, step, folder.path if folder else None, mesh
            )
            return shared.follow(
                job, lambda status: "" if status.phase in (None, "start") else str(status.phase)
            )
    finally:
        if folder is not None:
            folder.remove()


def _is_zip(path: str) -> bool:
    try:
        if not Path(path).is_file():
            return False
        with open(path, "rb") as file:
            return file.read(4) in ZIP
    except (OSError, ValueError):
        return False  # the worker reports the error


@verb(
    "code",
    "write a Flax script that builds and trains a model with exactly this layout",
    argument("layout", metavar="LAYOUT.json", help=_LAYOUT_HELP),
    shared.own_model("if the layout is of one"),
    shared.output_to("FILE"),
)
def code(options: argparse.Namespace) -> None:
    """Write the script. A model of the user's own is only loaded if --model names it."""
    if options.output is not None:
        output.refuse_unwritable(options.output)
    shared.register_own_model(options.model)
    layout = shared.read_layout(options.layout)
    if options.model not in (None, layout.model):
        raise InvalidInput(
            f"--model is {shown(options.model)}, but the model of {options.layout} is {layout.model}"
        )
    shared.write_text(script(layout), options.output)
