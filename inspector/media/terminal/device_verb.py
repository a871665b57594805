"""`device`: what some devices hold, and what is lost if they die."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys

from inspector.core import device_holdings, snapshot
from inspector.core.device_holdings import Holdings
from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import bytes_text, devices_text, ranges_text
from inspector.core.totals import STATE_GROUPS
from inspector.media.terminal.terminal import one_line

NAME = "device"
HELP = "everything that a device, several, or a process hold, and what nobody else holds"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("snapshot", metavar="SNAPSHOT.json")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--device", metavar="ID[,ID…]", help="such as 3, or 0,4")
    which.add_argument("--process", metavar="N", help="all devices of this process")
    parser.add_argument("--all", action="store_true", help="all arrays, not the train state alone")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")


def run(options: argparse.Namespace) -> None:
    """Print what they hold."""
    found = snapshot.read(options.snapshot)
    if options.process is not None:
        process = _numbers(options.process, "--process")
        if len(process) != 1:
            raise InvalidInput(f"--process is {shown(options.process)}, but must be one number")
        devices = device_holdings.devices_of_process(found, process[0])
    else:
        devices = _numbers(options.device, "--device")
    held = device_holdings.holdings(found, devices, None if options.all else STATE_GROUPS)
    if options.json:
        json.dump(dataclasses.asdict(held) | {"bytes": held.bytes, "alone": held.alone}, sys.stdout)
        print()
    else:
        print("\n".join(map(one_line, _lines(held))))


def _numbers(text: str, option: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) <= 18 for part in parts):
        raise InvalidInput(
            f"{option} is {shown(text)}, but must be numbers joined by commas, such as 0,4"
        )
    return tuple(int(part) for part in parts)


def _lines(held: Holdings) -> list[str]:
    lines = [
        f"devices    {devices_text(held.devices, most=8)}",
        f"hold       {bytes_text(held.bytes)}",
        f"only here  {bytes_text(held.alone)}",
        "",
    ]
    for piece in sorted(held.pieces, key=lambda piece: -(piece.alone or 0)):
        where = f"also on {devices_text(piece.holders)}" if piece.holders else "on no other device"
        index = ", ".join(ranges_text(index) for index in piece.index[:2])
        more = f" and {len(piece.index) - 2} more" if len(piece.index) > 2 else ""
        size = "size unknown"
        if piece.bytes is not None:
            size = f"{bytes_text(piece.bytes)}, {bytes_text(piece.alone)} only here"
        lines.append(f"{piece.path}  {index}{more}  {size}, {where}")
    lines += [f"{path}  placement unknown" for path in held.unknown]
    return lines
