"""`same`: whether a sharded program computes the same as on one device."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from inspector.answers import same_results
from inspector.files import output
from inspector.files.temporary_folder import TemporaryFolder
from inspector.jobs import start
from inspector.jobs.program_run import same as comparison
from inspector.layout.emulation import why_not_emulated
from inspector.layout.script import script
from inspector.media.terminal import options as shared
from inspector.media.terminal import render
from inspector.media.terminal.options import JSON, argument, verb
from inspector.media.terminal.run_verb import command_of, emulated, emulated_devices
from inspector.records import typed_json
from inspector.text.errors import InvalidInput, shown

DIFFERENT, UNCHECKED = 1, 2


def _options(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "%(prog)s [--devices N] [--model NAME] [--json] [-o FILE] "
        "(SCRIPT.py [ARGS...] | -m MODULE [ARGS...] | LAYOUT.json)"
    )
    shared.add_program(parser, "a script, a layout, or a Snapshot with a layout")


@verb(
    "same",
    "run a program sharded and on one device, compare the results of all its programs, and name the first "
    "operation that differs; exit status 1 if a result differs, 2 if one cannot be checked",
    argument("--devices", metavar="N", help="run a script on this many emulated devices"),
    shared.own_model("if the layout is of one"),
    JSON,
    shared.output_to("FILE"),
    _options,
)
def same(options: argparse.Namespace) -> int:
    """Compare the results, print them, and return the exit status."""
    if options.output is not None:
        output.refuse_unwritable(options.output)
    with _program(options) as program:
        results = comparison.compare(
            program.subject,
            program.command,
            program.variables,
            lambda phase: print(phase, file=sys.stderr, flush=True),
            # The script of a layout prints shardings; other output would be mixed with the JSON.
            discards_output=program.is_layout or (options.json and options.output is None),
        )
    if options.json:
        text = typed_json.dumps(typed_json.encode(results))
        shared.write_text(text if text.endswith("\n") else f"{text}\n", options.output)
    elif options.output is not None:
        output.write_text(render.text(same_results.section(results).blocks), options.output)
    else:
        render.show(same_results.section(results).blocks)
    return {True: 0, False: DIFFERENT, None: UNCHECKED}[results.same]


@dataclass(frozen=True)
class _Program:
    """The program, the command of Python, and its environment variables."""

    subject: str
    command: list[str]
    variables: dict[str, str]
    is_layout: bool = False


@contextmanager
def _program(options: argparse.Namespace) -> Iterator[_Program]:
    """Give the program of the command line. The script of a layout is removed afterwards."""
    if options.module is None and options.program and options.program[0].endswith(".json"):
        folder = TemporaryFolder()
        try:
            yield _program_of_layout(options, folder.path / "layout_script.py")
        finally:
            folder.remove()
        return
    if options.model is not None:
        raise InvalidInput(f"--model is {shown(options.model)}, but is only for a layout")
    command = command_of(options)
    variables = emulated_devices(options.devices)
    yield _Program(
        command[1] if options.module is not None else command[0],
        command,
        {"JAX_PLATFORMS": "cpu", **variables},
    )


def _program_of_layout(options: argparse.Namespace, path: Path) -> _Program:
    """Write the script of a layout, for emulated devices and one step, and return the program."""
    subject, *rest = options.program
    if rest:
        raise InvalidInput(f"{shown(rest[0])} follows the layout {subject}, which has no arguments")
    if options.devices is not None:
        raise InvalidInput(
            f"--devices is {shown(options.devices)}, but the mesh of the layout has its devices"
        )
    shared.register_own_model(options.model)
    layout = shared.read_layout(subject)
    if options.model not in (None, layout.model):
        raise InvalidInput(f"--model is {shown(options.model)}, but the model of {subject} is {layout.model}")
    if layout.devices == 1:
        raise InvalidInput(f"the mesh of {subject} has one device")
    reason = why_not_emulated(layout.devices)
    if reason is not None:
        raise InvalidInput(f"{subject} cannot be checked: {reason}")
    # The options of a target's compiler, its order of devices and processes change no result.
    layout = replace(
        layout,
        target="cpu",
        steps=1,
        processes=1,
        compiler_options=(),
        device_order="row-major",
    )
    path.write_text(script(layout), encoding="utf-8")
    _, *command = start.command(str(path))
    path_variable = {"PYTHONPATH": start.variables().get("PYTHONPATH", "")}
    variables = {**path_variable, **emulated(layout.devices)}
    return _Program(subject, command, variables, is_layout=True)
