"""Hold 1,000 live arrays on all devices, and capture them as in a user's job.

Each line on standard input is a JSON request; the answer is a line on standard output. `hold` makes the
arrays, `capture` writes their Snapshot, `places` asks JAX for the index of every shard.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from inspector import capture

SPECS = (PartitionSpec("fsdp", "tensor"), PartitionSpec("tensor", "fsdp"), PartitionSpec("fsdp"))


def held(arrays: int, mesh_shape: list[int]) -> dict[str, dict[str, jax.Array]]:
    """Return this number of arrays of different shapes, large enough to be split over all devices."""
    mesh = Mesh(np.array(jax.devices()).reshape(mesh_shape), ("fsdp", "tensor"))
    rows, columns = mesh.size, mesh.size
    made: dict[str, jax.Array] = {}
    for number in range(arrays):
        sharding = NamedSharding(mesh, SPECS[number % len(SPECS)])
        # Made of one piece of memory per device, because a program for this takes minutes.
        shape = (rows * (1 + number % 7), columns)
        piece = jnp.zeros(sharding.shard_shape(shape), jnp.int8)
        pieces = _pieces(piece)
        made[f"layer_{number}"] = jax.make_array_from_single_device_arrays(shape, sharding, pieces)
    return {"params": made}


_KEPT: dict[tuple[int, ...], list[jax.Array]] = {}


def _pieces(piece: jax.Array) -> list[jax.Array]:
    if piece.shape not in _KEPT:
        _KEPT[piece.shape] = [jax.device_put(piece, device) for device in jax.devices()]
    return _KEPT[piece.shape]


def main() -> None:
    """Answer requests until standard input ends."""
    state: dict[str, dict[str, jax.Array]] = {}
    folder = Path(tempfile.mkdtemp())
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, float] = {}
        if request["ask"] == "hold":
            state = held(request["arrays"], request["mesh"])
        began = time.perf_counter()
        if request["ask"] == "capture":
            before = _alive()
            found = capture(state, folder / "run.json")
            answer["seconds"] = time.perf_counter() - began
            answer |= {
                "arrays": len(found.arrays),
                "bytes": (folder / "run.json").stat().st_size,
                "new_arrays": len(_alive() - before),
            }
        elif request["ask"] == "places":
            for array in jax.tree.leaves(state):
                array.sharding.devices_indices_map(array.shape)
            answer["seconds"] = time.perf_counter() - began
        print(json.dumps(answer), flush=True)


def _alive() -> set[int]:
    return {id(array) for array in jax.live_arrays()}


if __name__ == "__main__":
    main()
