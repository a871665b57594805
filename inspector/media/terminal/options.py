"""Verbs and their arguments, files that several verbs read or write, and progress of jobs."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from inspector.compiled.assumed import MOST_TRIPS, Assumed, Cost
from inspector.files import input_file, output, strict_json
from inspector.files.sources import PROFILE_ENDING
from inspector.machines import hardware, targets
from inspector.machines.hardware import Chip
from inspector.records import program_run, snapshot
from inspector.records.snapshot import Snapshot
from inspector.text.errors import InvalidInput, choices, file_name, shown
from inspector.text.printable import one_line

if TYPE_CHECKING:  # imported by the functions that need them: `run` starts the user's program
    from inspector.answers.section import Block
    from inspector.jobs.engine import Status
    from inspector.jobs.inspection import Inspection
    from inspector.jobs.library import Library
    from inspector.jobs.request import Request
    from inspector.layout import Layout

Answer = TypeVar("Answer")
# Adds one or more arguments to a parser or to a group of a parser.
Argument: TypeAlias = Callable[[Any], object]
_HEAD = 4096  # bytes; a JSON file has its first brace in them


@dataclass(frozen=True)
class Output:
    """The output of a verb: JSON with the option --json, else blocks. Each is made when it is needed.

    brief: whether the blocks are cut to one screen. The last one says how to get the rest.
    """

    plain: Callable[[], Any]
    blocks: Callable[[], Iterable[Block]]
    brief: bool = False


Run: TypeAlias = Callable[[argparse.Namespace], "int | Output | None"]


@dataclass(frozen=True)
class Verb:
    """One verb of the command line. `run` returns its output, or may return an exit status."""

    name: str
    help: str
    arguments: tuple[Argument, ...]
    run: Run

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the verb's arguments, in the order of its help text."""
        for add in self.arguments:
            add(parser)


def verb(name: str, help: str, *arguments: Argument) -> Callable[[Run], Verb]:
    """Make a function a verb."""
    return lambda run: Verb(name, help, arguments, run)


def argument(*names: str, **settings: Any) -> Argument:
    """Return an argument with the names and settings of `add_argument`."""
    return lambda parser: parser.add_argument(*names, **settings)


def one_of(*arguments: Argument, required: bool = False) -> Argument:
    """Return arguments of which a command has at most one."""

    def add(parser: argparse.ArgumentParser) -> None:
        group = parser.add_mutually_exclusive_group(required=required)
        for argument in arguments:
            argument(group)

    return add


SNAPSHOT = argument(
    "snapshot",
    metavar="SNAPSHOT.json",
    help="a Snapshot, a folder of `run`, or what the page Open takes, such as a zip",
)
JSON = argument("--json", action="store_true", help="print JSON")
ALL = argument(
    "--all", action="store_true", help="print all sections, not only the answers that fit on a screen"
)
CHIP = argument(
    "--chip",
    metavar="NAME",
    help="for a Snapshot without a chip (a plan, emulated devices, a capture): model time and memory on this "
    f"one: {', '.join(hardware.CHIPS)}",
)


def assumptions(parser: argparse.ArgumentParser) -> None:
    """Add the options that state what no program text says."""
    for name, metavar, help in (
        ("--trips", "NAME=N", "iterations of a loop whose trip count depends on data"),
        ("--branch", "NAME=SHARE", "share of the executions of a conditional that take its branch"),
        ("--kernel-cost", "NAME=FLOPS,BYTES", "cost of one execution of a custom kernel on one device"),
    ):
        named = "kernel, the target of its calls" if metavar.endswith("BYTES") else "instruction"
        text = f"{help}; NAME is that of the {named} or its line, such as train.py:31"
        parser.add_argument(name, metavar=metavar, action="append", default=[], help=text)


def assumed_of(options: argparse.Namespace) -> Assumed:
    """Return the facts in the options.

    Raises:
      InvalidInput: one is not of its form, or its number is out of range.
    """
    trips: dict[str, int] = {}
    shares: dict[str, float] = {}
    kernels: dict[str, Cost] = {}
    for given in options.trips:
        name, value = _named(given, "--trips", "NAME=N such as while.3=100")
        trips[name] = number(value, "--trips", f"a number from 0 to {MOST_TRIPS:,}", 0, MOST_TRIPS)
    for given in options.branch:
        name, value = _named(given, "--branch", "NAME=SHARE such as train.py:31=0.1")
        shares[name] = _real(value, "--branch", "a share from 0 to 1", 1.0)
    for given in options.kernel_cost:
        name, value = _named(given, "--kernel-cost", "NAME=FLOPS,BYTES such as flash=2e9,1e6")
        flops, comma, moved = value.partition(",")
        if not comma:
            raise InvalidInput(f"--kernel-cost is {shown(given)}, but must be NAME=FLOPS,BYTES")
        allowed = "numbers from 0 to 1e18"
        kernels[name] = Cost(
            _real(flops, "--kernel-cost", allowed, 1e18),
            round(_real(moved, "--kernel-cost", allowed, 1e18)),
        )
    return Assumed(trips, shares, kernels)


def _named(given: str, option: str, form: str) -> tuple[str, str]:
    name, equals, value = given.rpartition("=")
    if not equals or not name:
        raise InvalidInput(f"{option} is {shown(given)}, but must be {form}")
    return name, value


def _real(value: str, option: str, allowed: str, most: float) -> float:
    try:
        known = float(value)
    except ValueError:
        known = math.nan
    if not 0 <= known <= most:
        raise InvalidInput(f"{option} has {shown(value)}, but must have {allowed}")
    return known


def output_to(metavar: str) -> Argument:
    """Return the option -o for a file that replaces standard output."""
    return argument("-o", "--output", metavar=metavar, help="write to this file instead of standard output")


def own_model(purpose: str) -> Argument:
    """Return the option --model for a model that is not in the catalogue."""
    help = f"your own model as package.module:function, {purpose}"
    return argument("--model", metavar="NAME", help=help)


def chip_of(options: argparse.Namespace, *snapshots: Snapshot) -> Chip | None:
    """Return the chip of --chip, or None without the option.

    Raises:
      InvalidInput: there is no such chip, or all Snapshots were made for another one.
    """
    if options.chip is None:
        return None
    chosen = hardware.chip(options.chip)
    own = [targets.chip_of(snapshot) for snapshot in snapshots]
    others = [chip for chip in own if chip is not None and chip != chosen]
    if own and len(others) == len(own):
        raise InvalidInput(
            f"--chip is {shown(options.chip)}, but the figures are those of {others[0].title}, for which the "
            "programs were compiled: leave --chip out, or compile the layout for another target"
        )
    return chosen


def add_program(parser: argparse.ArgumentParser, program: str) -> None:
    """Add a program and its arguments, which end the options. `program` describes the choices."""
    parser.allow_abbrev = False  # the program can have an option with such a beginning
    rest = argparse.REMAINDER
    parser.add_argument("-m", dest="module", nargs=rest, metavar="MODULE", help="a module, as `python -m`")
    parser.add_argument("program", nargs=rest, metavar="SCRIPT.py ARGS", help=program)


def register_own_model(name: str | None) -> None:
    """Load the model of --model if it is one of the user's own.

    Raises:
      InvalidInput: there is no such model.
    """
    if name is None:
        return
    from inspector.jobs.own_model_registration import register_own
    from inspector.model.built_in.catalogue import CATALOGUE

    if name in CATALOGUE:
        return
    if ":" not in name:
        built_in = ", ".join(CATALOGUE)
        raise InvalidInput(
            f"--model is {shown(name)}, but must be one of {built_in}, or package.module:function for your "
            "own model"
        )
    register_own(name)


def check_saved(library: Library, name: str, option: str) -> None:
    """Check that the library has an entry of this name.

    Raises:
      InvalidInput: it lacks the name. `option` names the argument.
    """
    names = [entry.name for entry in library.entries()]
    if name not in names:
        allowed = f"must be {choices(name, names)}" if names else "the library is empty"
        raise InvalidInput(f"{option} is {shown(name)}, but {allowed}")


def number(text: str, option: str, allowed: str, least: int = 0, most: int = 10**18 - 1) -> int:
    """Return the number in an option.

    Raises:
      InvalidInput: the text is not a number from `least` to `most`. `allowed` says so.
    """
    if text.isascii() and text.isdecimal() and len(text) <= 18 and least <= int(text) <= most:
        return int(text)
    raise InvalidInput(f"{option} is {shown(text)}, but must be {allowed}")


def read_layout(path: str) -> Layout:
    """Return the layout in a layout file or in a Snapshot.

    Raises:
      InvalidInput: the file cannot be read or contains no layout.
    """
    from inspector import layout as layouts

    plain = strict_json.read(path)
    if isinstance(plain, dict) and plain.get("format") == snapshot.FORMAT:
        source, plain = plain.get("source"), plain.get("layout")
        if plain is None:
            raise InvalidInput(f"{path} is a Snapshot without a layout")
        unsafe = source.get("unsafe_compiler_options") if isinstance(source, dict) else None
        if unsafe is not None:
            ignored = f"{path}: its compiler options {shown(unsafe, 200)} are not part of the layout"
            print(one_line(f"{ignored}, and are ignored"), file=sys.stderr)
    return layouts.from_json(plain, path)


def read_snapshot(path: str) -> Snapshot:
    """Return the Snapshot in a file, that of the folder of a recorded program, or of what *Open* accepts.

    Raises:
      InvalidInput: there is no such file or folder, or it cannot be read.
    """
    return snapshot_of(path, json_with_format(path))


def snapshot_of(path: str, plain: dict[str, Any] | None) -> Snapshot:
    """Return the Snapshot of a file or folder, of which `plain` is the JSON that names its format, if any."""
    if plain is not None:
        return snapshot.from_json(plain, path)
    if path and Path(path, program_run.FILE).is_file():
        from inspector.jobs.program_run import folder_snapshot

        return folder_snapshot.read(Path(path))
    return opened(path, lambda status: "")


def json_with_format(path: str) -> dict[str, Any] | None:
    """Return the content of a JSON file that names its format; None for other files and for folders.

    Raises:
      InvalidInput: the file cannot be read, or begins as JSON but is not strict JSON.
    """
    if path and (Path(path).is_dir() or path.endswith(PROFILE_ENDING)):
        return None
    if not input_file.head(path, _HEAD, file_name(path)).lstrip().startswith((b"{", b"[")):
        return None
    plain = strict_json.read(path)
    return plain if isinstance(plain, dict) and "format" in plain else None


def opened(
    path: str,
    words: Callable[[Status], str],
    kind: str | None = None,
    step: int | None = None,
    mesh: tuple[tuple[str, int], ...] | None = None,
) -> Snapshot:
    """Return the Snapshot of a file or folder, read by a worker process as on the page *Open*.

    Args:
      words: as of `follow`.
      kind: a key of `READERS`. None if the content decides.
      step: the step of a checkpoint. None for the latest.
      mesh: name and size of each mesh axis, for a file that names no mesh.

    Raises:
      InvalidInput: it cannot be read, or no reader recognizes it.
    """
    from inspector.files.temporary_folder import TemporaryFolder

    folder = TemporaryFolder()  # for the files of a zip file
    try:
        with workers() as service:
            request = service.file(os.path.abspath(path), path, kind, step, folder.path, mesh)
            return follow(request, words)
    finally:
        folder.remove()


def write_text(text: str, path: str | None) -> None:
    """Write data to a file, or to standard output without one."""
    if path is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, path)


def print_json(value: Any) -> None:
    """Print JSON on one line of standard output."""
    json.dump(value, sys.stdout, allow_nan=False)
    sys.stdout.write("\n")


def on_screen(
    options: argparse.Namespace, plain: Callable[[], Any], blocks: Callable[[], Iterable[Block]]
) -> Output:
    """Return the output of a verb with the option --all: without it, one screen."""
    from inspector.answers.section import text

    if options.all:
        return Output(plain, blocks)
    return Output(plain, lambda: [*blocks(), text("All sections: --all.", quiet=True)], brief=True)


def print_output(printed: Output, as_json: bool) -> None:
    """Print the output of a verb."""
    if as_json:
        print_json(printed.plain())
        return
    from inspector.media.terminal import render

    (render.show_on_screen if printed.brief else render.show)(printed.blocks())


_kept: list[Inspection] = []  # the last one has the workers of all commands


@contextmanager
def kept_workers() -> Iterator[None]:
    """Let all commands share worker processes until the end of the block."""
    with workers() as service:
        _kept.append(service)
        try:
            yield
        finally:
            _kept.pop()


@contextmanager
def workers() -> Iterator[Inspection]:
    """Start worker processes for one command, and stop them at its end."""
    if _kept:
        yield _kept[-1]
        return
    from inspector.jobs.inspection import Inspection

    with closing(Inspection(run_workers=1)) as service:
        yield service


def follow(request: Request[Answer], words: Callable[[Status], str]) -> Answer:
    """Return the result of a request. Print the progress of its job to standard error.

    Args:
      words: the progress in words; an empty text prints nothing.

    Raises:
      InvalidInput: the job failed, or cannot be started.
    """
    if (known := request.known()) is not None:
        return known
    job, printed = request.start(), ""
    while not job.wait(0.1).finished:
        said = words(job.status())
        if said and said != printed:
            print(said, file=sys.stderr, flush=True)
            printed = said
    return job.answer()
