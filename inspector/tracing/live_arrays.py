"""Make Array records from live `jax.Array`s, and count the bytes alive on each device."""

import gc
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding

from inspector.jax_private import cpu_clients
from inspector.model.built_in.watching import Watched
from inspector.records.snapshot import Array, LiveBytes, Mesh, Shard, Spec
from inspector.sharding import placement
from inspector.tracing.leaves import (
    Leaf,
    array_facts,
    index_bounds,
    named_spec,
    shards_of,
    spec_of,
    whole_names,
)

_T = TypeVar("_T")

CONNECT_TIMEOUT = 60  # seconds; all processes start together, and importing JAX takes one second
# Seconds, JAX's default. The engine notices a dead process at once; a busy or sleeping machine must not
# exceed this.
HEARTBEAT_TIMEOUT = 100


def meet(address: str, processes: int, index: int) -> None:
    """Connect this process as number `index` of `processes`, which meet at `address`, a `host:port`.

    JAX listens on that host only.
    """
    host, _, _ = address.rpartition(":")
    cpu_clients.listen_on(host)
    jax.distributed.initialize(
        coordinator_address=address,
        num_processes=processes,
        process_id=index,
        cluster_detection_method="deactivate",
        coordinator_bind_address=address,
        initialization_timeout=CONNECT_TIMEOUT,
        heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT,
    )


def gathered(value: object) -> list[Any]:
    """Return the JSON values of all processes, in process order. All processes must call it together."""
    if jax.process_count() == 1:
        return [value]
    text = np.frombuffer(zlib.compress(json.dumps(value).encode(), 1), dtype=np.uint8)
    lengths = multihost_utils.process_allgather(np.array(text.size, dtype=np.int32))
    room = np.zeros(int(lengths.max()), dtype=np.uint8)
    room[: text.size] = text
    rows = multihost_utils.process_allgather(room)
    return [
        json.loads(zlib.decompress(row[:length].tobytes()))
        for row, length in zip(np.asarray(rows), lengths.tolist(), strict=True)
    ]


def agreed(value: _T) -> _T:
    """Return the JSON value of process 0. All processes must call it together."""
    agreed: _T = gathered(value)[0]
    return agreed


def live_arrays(leaves: Sequence[Leaf], mesh: Mesh, logical: bool) -> list[Array]:
    """Return the records of live arrays, each with the `addressable_shards` of all processes.

    If integer arithmetic on the spec gives the same shards, the record has only the spec. All processes
    must call this function. `logical` says whether the names of the leaves are logical axes.
    """
    processes = gathered([_addressable_shards(leaf.value) for leaf in leaves])
    return [
        _live_array(leaf, [shard for rows in processes for shard in rows[number]], mesh, logical)
        for number, leaf in enumerate(leaves)
    ]


def live_array(leaf: Leaf, mesh: Mesh, logical: bool) -> Array:
    """Return the record of one live array."""
    return live_arrays([leaf], mesh, logical)[0]


def _live_array(leaf: Leaf, rows: Sequence[dict[str, Any]], mesh: Mesh, logical: bool) -> Array:
    value: jax.Array = leaf.value
    shards = tuple(
        Shard(row["device"], tuple(map(tuple, row["index"])), row["replica"], row["process"]) for row in rows
    )
    array = Array(
        path=leaf.path,
        group=leaf.group or "other",
        shape=tuple(value.shape),
        dtype=str(value.dtype),
        memory_kind=value.sharding.memory_kind,
        logical_axes=whole_names(leaf.names, len(leaf.value.shape)) if logical else None,
        spec=named_spec(value.sharding, value.ndim),
        shard_shape=tuple(value.sharding.shard_shape(value.shape)),
        bytes=value.nbytes,
        bytes_per_device=max(row["bytes"] for row in rows),
        replicas=sum(shard.index == shards[0].index for shard in shards),
        box=leaf.box,
        facts=array_facts(value),
    )
    return _with_shards(array, shards, mesh)


def watched_arrays(watched: Iterable[Watched], mesh: Mesh, logical: bool, list_shards: bool) -> list[Array]:
    """Return the activations and gradients of the train step. If a value was traced twice, keep the first.

    `list_shards` says whether to list the shards of a value without a spec, which is slow on many devices.
    """
    by_path: dict[str, Watched] = {}
    for value in watched:
        by_path.setdefault(value.path, value)
    return [_watched_array(value, mesh, logical, list_shards) for value in by_path.values()]


def _watched_array(value: Watched, mesh: Mesh, logical: bool, list_shards: bool) -> Array:
    placed, shape, dtype = value.sharding, value.shape, np.dtype(value.dtype)
    array = Array(
        path=value.path,
        group="gradient" if value.path.startswith("gradient/") else "activation",
        shape=shape,
        dtype=str(dtype),
        logical_axes=value.names if logical else None,
        bytes=math.prod(shape) * dtype.itemsize,
        program="train_step",
    )
    if isinstance(placed, NamedSharding):
        return with_spec(array, spec_of(placed.spec, len(shape)), mesh)
    try:
        piece = tuple(placed.shard_shape(shape))
        shards = shards_of(placed, shape) if list_shards else None
    except ValueError:  # the compiler pads dimensions that the mesh axes do not divide
        return array
    array = replace(array, shard_shape=piece, bytes_per_device=math.prod(piece) * dtype.itemsize)
    if shards is None:
        return array
    replicas = sum(shard.index == shards[0].index for shard in shards)
    return _with_shards(replace(array, replicas=replicas), shards, mesh)


def with_spec(array: Array, spec: Spec, mesh: Mesh) -> Array:
    """Return the array with a spec. Its shard is unknown if the mesh axes do not divide a dimension."""
    shape = array.shape or ()
    if any(placement.indivisible(shape, spec, mesh)):
        return replace(array, spec=spec, shard_shape=None, bytes_per_device=None, replicas=None)
    piece = placement.shard_shape(shape, spec, mesh)
    itemsize = (array.bytes or 0) // max(1, math.prod(shape))
    return replace(
        array,
        spec=spec,
        shard_shape=piece,
        bytes_per_device=math.prod(piece) * itemsize,
        replicas=placement.replicas(spec, mesh),
    )


def live_bytes(owners: Iterable[tuple[str, Any]]) -> tuple[LiveBytes, ...]:
    """Return the bytes alive on each device by owner, from `jax.live_arrays()`.

    Args:
      owners: names of owners with their pytrees. An array in two pytrees belongs to the last one. All
        other arrays have the owner `nobody`.
    """
    gc.collect()  # arrays that only wait for the garbage collector do not count
    owner_of = {id(leaf): owner for owner, tree in owners for leaf in jax.tree.leaves(tree)}
    size: Counter[tuple[int, str]] = Counter()
    count: Counter[tuple[int, str]] = Counter()
    for array in jax.live_arrays():
        owner = owner_of.get(id(array), "nobody")
        for shard in array.addressable_shards:
            size[shard.device.id, owner] += shard.data.nbytes
            count[shard.device.id, owner] += 1
    rows = [[device, owner, count[device, owner], total] for (device, owner), total in size.items()]
    return tuple(LiveBytes(*row) for process in gathered(rows) for row in sorted(process))


def _with_shards(array: Array, shards: tuple[Shard, ...], mesh: Mesh) -> Array:
    """Add the shards to the record, unless its spec expresses them."""
    in_mesh_order = tuple(sorted(shards, key=lambda shard: mesh.devices.index(shard.device)))
    if placement.shards(array, mesh) == in_mesh_order:
        return array
    return replace(array, shards=in_mesh_order)


def _addressable_shards(value: jax.Array) -> list[dict[str, Any]]:
    """Return the shards of this process as JSON."""
    return [
        {
            "device": shard.device.id,
            "index": index_bounds(shard.index, value.shape),
            "replica": shard.replica_id,
            "process": shard.device.process_index,
            "bytes": shard.data.nbytes,
        }
        for shard in value.addressable_shards
    ]
