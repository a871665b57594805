"""`shards`: print what each device holds of one array, or list the arrays."""

from __future__ import annotations

import argparse

from inspector.core import snapshot as snapshots
from inspector.core.errors import InvalidInput
from inspector.media.terminal import options as shared
from inspector.media.terminal import render
from inspector.sections import array as section
from inspector.sections import arrays

NAME = "shards"
HELP = "print the index range, replica, process and bytes of each shard of an array"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_snapshot(parser)
    parser.add_argument(
        "--array",
        metavar="PATH",
        help="such as params/DotReluDot_0/W2; without it, all arrays are listed",
    )
    shared.add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Print the shards of the array, or all arrays."""
    snapshot = snapshots.read(options.snapshot)
    if options.array is None:
        if options.json:
            shared.print_json([_array_row(array) for array in snapshot.arrays])
        else:
            render.show([arrays.table(snapshot.arrays)])
        return
    array = snapshot.array(options.array)
    rows = section.shard_rows(array, snapshot)
    if rows is None:
        raise InvalidInput(f"the shards of {array.path} are unknown in {options.snapshot}")
    if options.json:
        shared.print_json(rows)
    else:
        render.show([section.shards(array, snapshot)])


def _array_row(array: arrays.Array) -> dict:
    return {
        "array": array.path,
        "shape": array.shape,
        "spec": array.spec,
        "shard_shape": array.shard_shape,
        "bytes_per_device": array.bytes_per_device,
        "memory_kind": arrays.memory_kind(array),
    }
