"""Options and files that several verbs share, and progress of jobs on standard error."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from inspector import layout as layouts
from inspector.core import output, snapshot, strict_json
from inspector.core.errors import InvalidInput
from inspector.layout import Layout
from inspector.machines import hardware
from inspector.machines.hardware import Chip
from inspector.service.engine import Job, Status
from inspector.service.own_model_registration import register_own

Answer = TypeVar("Answer")


def add_snapshot(parser: argparse.ArgumentParser) -> None:
    """Add the argument SNAPSHOT.json."""
    parser.add_argument("snapshot", metavar="SNAPSHOT.json")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option --json."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_chip(parser: argparse.ArgumentParser) -> None:
    """Add the option --chip."""
    parser.add_argument(
        "--chip",
        metavar="NAME",
        help=f"model time and memory on this chip: {', '.join(hardware.CHIPS)}",
    )


def add_output(parser: argparse.ArgumentParser, metavar: str) -> None:
    """Add the option -o for a file that replaces standard output."""
    parser.add_argument(
        "-o", "--output", metavar=metavar, help="write to this file instead of standard output"
    )


def add_own_model(parser: argparse.ArgumentParser, purpose: str) -> None:
    """Add the option --model for a model that is not in the catalogue."""
    parser.add_argument(
        "--model",
        metavar="NAME",
        help=f"your own model as package.module:function, {purpose}",
    )


def chip_of(options: argparse.Namespace) -> Chip | None:
    """Return the chip of --chip, or None without the option."""
    return None if options.chip is None else hardware.chip(options.chip)


def register_own_model(name: str | None) -> None:
    """Load the model of --model if it is one of the user's own."""
    if name is not None and ":" in name:
        register_own(name)


def read_layout(path: str) -> Layout:
    """Return the layout in a layout file or in a Snapshot.

    Raises:
      InvalidInput: the file cannot be read or contains no layout.
    """
    plain = strict_json.read(path)
    if isinstance(plain, dict) and plain.get("format") == snapshot.FORMAT:
        plain = plain.get("layout")
        if plain is None:
            raise InvalidInput(f"{path} is a Snapshot without a layout")
    return layouts.from_json(plain, path)


def snapshot_names(paths: Sequence[str], given: Sequence[str] = ()) -> list[str]:
    """Return a name per Snapshot: the given ones, then file names, with a number if they repeat."""
    stems = [Path(path).name.removesuffix(".json") or path for path in paths[len(given) :]]
    names = [*given, *stems]
    for place in range(len(given), len(names)):
        name, number = names[place], 1
        while names[place] in names[:place]:
            number += 1
            names[place] = f"{name} ({number})"
    return names


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


def follow(job: Job[Answer], words: Callable[[Status], str]) -> Answer:
    """Wait for a job, print its progress to standard error, and return its answer.

    Args:
      words: the progress in words; an empty text prints nothing.

    Raises:
      InvalidInput: the job failed.
    """
    printed = ""
    while not job.wait(0.1).finished:
        said = words(job.status())
        if said and said != printed:
            print(said, file=sys.stderr, flush=True)
            printed = said
    return job.answer()
