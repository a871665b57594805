"""`inspect`: make a Snapshot from a layout."""

from __future__ import annotations

import argparse
import sys

from inspector import layout as layouts
from inspector.checks import audit
from inspector.core import output, snapshot
from inspector.core.errors import InvalidInput, shown
from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
from inspector.media.terminal import options as shared
from inspector.models.catalogue import CATALOGUE
from inspector.service.agreement import refuse_indivisible
from inspector.service.engine import Status
from inspector.service.inspection import Inspection

NAME = "inspect"
HELP = "make a Snapshot: plan a layout, run it on emulated devices, or compile it for a target"

_OPTIONS = ("model", "mesh", "axes", "rules", "specs", "target", "steps", "processes")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "layout", nargs="?", metavar="LAYOUT.json", help="a layout, or a Snapshot with a layout"
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help=f"one of {', '.join(CATALOGUE)}, or your own as package.module:function",
    )
    parser.add_argument("--mesh", metavar="2x4", help="sizes of the mesh axes")
    parser.add_argument("--axes", metavar="data,model", help="names of the mesh axes")
    parser.add_argument(
        "--rules",
        metavar="batch=data,hidden=model",
        help="rules in order; embed=fsdp+tensor for more than one mesh axis, embed= for none",
    )
    parser.add_argument(
        "--specs",
        metavar="W1=None.model,…",
        help="PartitionSpecs of a model with device axes, instead of rules",
    )
    parser.add_argument(
        "--sizes", metavar="NAME", help="the sizes of a published model, such as Llama-3-8B"
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="one size of the model; may be repeated",
    )
    parser.add_argument(
        "--target",
        metavar="T",
        help="cpu (default): build and run; plan: shapes and specs only; tpu:v5p:4x4x4 or gpu:h100:8: "
        "compile for a machine, without the machine",
    )
    parser.add_argument(
        "--steps", metavar="N", help="number of measured train steps and inferences"
    )
    parser.add_argument(
        "--processes",
        metavar="N",
        help="1 (default), 2 or 4 processes that share the devices, with jax.distributed",
    )
    shared.add_output(parser, "SNAPSHOT.json")


def run(options: argparse.Namespace) -> None:
    """Make the Snapshot and write it."""
    if options.output is not None:
        output.refuse_unwritable(options.output)
    if options.model not in CATALOGUE:
        shared.register_own_model(options.model)
    layout = layouts.parse(_fields(options)).unwrap()
    found = audit.audited(inspect(layout))
    shared.write_text(snapshot.dumps(found), options.output)


def inspect(layout: Layout) -> Snapshot:
    """Return the Snapshot of a layout for its target, with progress on standard error.

    Raises:
      InvalidInput: the layout does not fit its mesh or this machine, or the run failed.
    """
    service = Inspection(run_workers=1)
    try:
        planned = service.plan(layout)
        refuse_indivisible(planned)
        if layout.target == "plan":
            return service.with_programs(planned, layout)
        kept = service.cached_compile(layout)
        if kept is not None:
            print("cached from an earlier compile", file=sys.stderr)
            return kept
        return shared.follow(service.start_run(layout, planned), _progress)
    finally:
        service.close()


def _progress(status: Status) -> str:
    return " ".join(filter(None, (status.phase, status.progress.get("program"))))


def _fields(options: argparse.Namespace) -> dict[str, str]:
    fields: dict[str, str] = {}
    if options.layout is not None:
        fields = layouts.to_fields(shared.read_layout(options.layout))
    given = {
        name: getattr(options, name) for name in _OPTIONS if getattr(options, name) is not None
    }
    if options.sizes is not None:
        given = _sizes_of(options.sizes, (fields | given).get("model")) | given
    for pair in options.set:
        name, separator, value = pair.partition("=")
        if not separator or name in _OPTIONS:
            raise InvalidInput(
                f"--set is {shown(pair)}, but must be SIZE=VALUE, such as --set depth=512"
            )
        given[name] = value
    return fields | given


def _sizes_of(name: str, model: str | None) -> dict[str, str]:
    """Return the sizes of a published model, as the text of fields."""
    entry = CATALOGUE[layouts.parse({} if model is None else {"model": model}).unwrap().model]
    chosen = next((one for one in entry.presets if one.name.lower() == name.lower()), None)
    if chosen is None:
        names = ", ".join(one.name for one in entry.presets) or "none"
        raise InvalidInput(f"--sizes is {shown(name)}, but model {entry.name} has {names}")
    return {key: layouts.print_size(value) for key, value in entry.sizes_of(chosen).items()}
