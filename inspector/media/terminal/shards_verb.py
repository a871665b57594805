"""`shards`: one array, device by device."""

from __future__ import annotations

import argparse
import json
import math
import sys

from inspector.core import sharding, snapshot
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Array, Shard

NAME = "shards"
HELP = "list what each device holds of one array: index ranges, replica, process, bytes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("snapshot", metavar="SNAPSHOT.json")
    parser.add_argument(
        "--array", required=True, metavar="PATH", help="such as params/DotReluDot_0/W2"
    )
    parser.add_argument("--json", action="store_true", help="a JSON list instead of a table")


def run(options: argparse.Namespace) -> None:
    """Print the shards of the array."""
    found = snapshot.read(options.snapshot)
    array = found.array(options.array)
    shards = sharding.shards(array, found.mesh) if found.mesh is not None else array.shards
    if shards is None:
        raise InvalidInput(f"where {array.path} lies is not known in {options.snapshot}")
    rows = [_row(shard, array) for shard in shards]
    if options.json:
        json.dump(rows, sys.stdout)
        print()
    else:
        print("\n".join(_table(rows)))


def _row(shard: Shard, array: Array) -> dict:
    return {
        "device": shard.device,
        "index": [list(part) for part in shard.index],
        "replica": shard.replica,
        "process": shard.process,
        "bytes": _bytes(shard, array),
    }


def _bytes(shard: Shard, array: Array) -> int | None:
    elements = math.prod(array.shape)
    if array.bytes is None:
        return None
    if elements == 0:
        return 0
    held = math.prod(stop - start for start, stop in shard.index)
    return held * array.bytes // elements


def _table(rows: list[dict]) -> list[str]:
    header = ("device", "index", "replica", "process", "bytes")
    cells = [header]
    for row in rows:
        index = "[" + ", ".join(f"{start}:{stop}" for start, stop in row["index"]) + "]"
        known = (
            "unknown" if row[key] is None else f"{row[key]:,}"
            for key in ("replica", "process", "bytes")
        )
        cells.append((str(row["device"]), index, *known))
    widths = [max(len(line[column]) for line in cells) for column in range(len(header))]
    # Numbers to the right, the index ranges to the left.
    return [
        "  ".join(
            text.ljust(width) if column == 1 else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
