"""`import`: make a Snapshot from the files of a real job."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from inspector.checks import audit
from inspector.core import output, snapshot
from inspector.core.errors import InvalidInput, shown
from inspector.core.snapshot import Snapshot
from inspector.core.sources import IMPORT_KINDS, READERS
from inspector.core.temporary_folder import TemporaryFolder
from inspector.media.printable import one_line
from inspector.media.terminal import options as shared
from inspector.producers.readers.archive import ZIP
from inspector.service.engine import Status
from inspector.service.inspection import Inspection

NAME = "import"
HELP = "make a Snapshot from: " + ", ".join(READERS[kind].title for kind in IMPORT_KINDS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=IMPORT_KINDS)
    parser.add_argument(
        "path",
        metavar="PATH",
        help="; ".join(f"{kind}: {READERS[kind].path}" for kind in IMPORT_KINDS)
        + "; or a zip file of it",
    )
    parser.add_argument(
        "--step", metavar="N", help="the step of an Orbax checkpoint; the latest by default"
    )
    shared.add_output(parser, "SNAPSHOT.json")


def run(options: argparse.Namespace) -> None:
    """Read the files and write the Snapshot."""
    step = _step(options.step, options.kind)
    if options.output is not None:
        output.refuse_unwritable(options.output)
    found = read(options.kind, options.path, step)
    for finding in found.findings:
        print(one_line(f"{finding.level}: {finding.message}"), file=sys.stderr)
    found = audit.audited(found)
    shared.write_text(snapshot.dumps(found), options.output)


def read(kind: str, path: str, step: int | None = None) -> Snapshot:
    """Return the Snapshot of a file or folder, read by a worker process.

    Raises:
      InvalidInput: the file cannot be read.
    """
    service = Inspection(run_workers=1)
    folder = TemporaryFolder() if _is_zip(path) else None
    try:
        job = service.start_import(
            os.path.abspath(path), path, kind, step, folder.path if folder else None
        )
        return shared.follow(job, _progress)
    finally:
        service.close()
        if folder is not None:
            folder.remove()


def _progress(status: Status) -> str:
    return "" if status.phase in (None, "start") else str(status.phase)


def _is_zip(path: str) -> bool:
    try:
        if not Path(path).is_file():
            return False
        with open(path, "rb") as file:
            return file.read(4) in ZIP
    except (OSError, ValueError):
        return False  # the worker reports the error


def _step(text: str | None, kind: str) -> int | None:
    if text is None:
        return None
    if not READERS[kind].has_steps:
        with_steps = ", ".join(reader.name for reader in READERS.values() if reader.has_steps)
        raise InvalidInput(f"--step is {shown(text)}, but only {with_steps} has steps")
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise InvalidInput(
            f"--step is {shown(text)}, but must be the number of a step, such as 1000"
        )
    return int(text)
