"""`device`: print the contents of devices, and the data that is lost if they fail."""

from __future__ import annotations

import argparse
import dataclasses

from inspector.core import device_holdings
from inspector.core import snapshot as snapshots
from inspector.core.errors import InvalidInput, shown
from inspector.core.totals import STATE_GROUPS
from inspector.media.terminal import options as shared
from inspector.media.terminal import render
from inspector.sections import devices as section

NAME = "device"
HELP = "list the contents of devices and the data that is lost if they fail"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_snapshot(parser)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--device", metavar="ID[,ID…]", help="such as 3, or 0,4")
    which.add_argument("--process", metavar="N", help="all devices of this process")
    parser.add_argument(
        "--all", action="store_true", help="count all arrays, not only the train state"
    )
    shared.add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Print the contents of the devices."""
    snapshot = snapshots.read(options.snapshot)
    if options.process is not None:
        process = _numbers(options.process, "--process")
        if len(process) != 1:
            raise InvalidInput(f"--process is {shown(options.process)}, but must be one number")
        devices = device_holdings.devices_of_process(snapshot, process[0])
    else:
        devices = _numbers(options.device, "--device")
    groups = None if options.all else STATE_GROUPS
    held = device_holdings.holdings(snapshot, devices, groups)
    if options.json:
        sums = {"bytes": held.bytes, "alone": held.alone}
        shared.print_json(dataclasses.asdict(held) | sums)
    else:
        render.show(section.section(snapshot, held).blocks)


def _numbers(text: str, option: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) <= 18 for part in parts):
        raise InvalidInput(
            f"{option} is {shown(text)}, but must be numbers joined by commas, such as 0,4"
        )
    return tuple(int(part) for part in parts)
