"""What live `jax.Array`s say of themselves, and which of them are alive on each device."""

from __future__ import annotations

import gc
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from inspector.core import sharding
from inspector.core.snapshot import (
    Array,
    ArrayFacts,
    LiveBytes,
    Mesh,
    Shard,
)
from inspector.producers.distributed import gathered
from inspector.producers.leaves import Leaf
from inspector.producers.records import spec_of


def live_arrays(leaves: Sequence[Leaf], mesh: Mesh, logical: bool) -> list[Array]:
    """The Snapshot's records of live arrays.

    The shards are those of `addressable_shards`, as every process tells them of its own; they are left
    to the spec only where integer arithmetic on it gives exactly the same. All processes must call it.
    """
    seen = gathered([_addressable(leaf.value) for leaf in leaves])
    return [
        _live_array(leaf, [shard for process in seen for shard in process[place]], mesh, logical)
        for place, leaf in enumerate(leaves)
    ]


def live_array(leaf: Leaf, mesh: Mesh, logical: bool) -> Array:
    """The record of one live array."""
    return live_arrays([leaf], mesh, logical)[0]


def _live_array(leaf: Leaf, seen: Sequence[dict[str, Any]], mesh: Mesh, logical: bool) -> Array:
    value: jax.Array = leaf.value
    shards = tuple(
        Shard(one["device"], tuple(map(tuple, one["index"])), one["replica"], one["process"])
        for one in seen
    )
    array = Array(
        path=leaf.path,
        group=leaf.group,
        shape=tuple(value.shape),
        dtype=str(value.dtype),
        logical_axes=leaf.names if logical else None,
        spec=_spec(value.sharding, value.ndim),
        shard_shape=tuple(value.sharding.shard_shape(value.shape)),
        bytes=value.nbytes,
        bytes_per_device=max(one["bytes"] for one in seen),
        replicas=sum(shard.index == shards[0].index for shard in shards),
        box=leaf.box,
        facts=facts_of(value),
    )
    return _explicit_where_needed(array, shards, mesh)


def chosen_array(
    leaf: Leaf, chosen: jax.sharding.Sharding, mesh: Mesh, logical: bool, program: str
) -> Array:
    """The record of a value inside a compiled program, by the sharding that the compiler gave it."""
    shape, dtype = tuple(leaf.value.shape), np.dtype(leaf.value.dtype)
    array = Array(
        path=leaf.path,
        group=leaf.group,
        shape=shape,
        dtype=str(dtype),
        logical_axes=leaf.names if logical else None,
        spec=_spec(chosen, len(shape)),
        bytes=math.prod(shape) * dtype.itemsize,
        program=program,
    )
    try:
        indices = chosen.devices_indices_map(shape)
    except (
        ValueError
    ):  # the compiler pads what mesh axes do not divide, and JAX tells no pieces of that
        return array
    seen: Counter[Any] = Counter()
    shards = []
    for device, index in indices.items():
        bounds = tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))
        shards.append(Shard(device.id, bounds, seen[bounds], device.process_index))
        seen[bounds] += 1
    pieces = [tuple(stop - start for start, stop in shard.index) for shard in shards]
    largest = max(pieces, key=math.prod)
    array = replace(
        array,
        shard_shape=largest,
        bytes_per_device=math.prod(largest) * dtype.itemsize,
        replicas=seen[shards[0].index],
    )
    return _explicit_where_needed(array, tuple(shards), mesh)


def facts_of(value: jax.Array) -> ArrayFacts:
    """What the array knows of its devices."""
    processes = {device.process_index for device in value.sharding.device_set}
    if len(value.sharding.device_set) == 1:
        placement = "single device"
    else:
        placement = "one process" if len(processes) == 1 else "several processes"
    return ArrayFacts(
        committed=bool(value.committed),
        fully_addressable=value.is_fully_addressable,
        fully_replicated=value.is_fully_replicated,
        placement=placement,
        devices=len(value.sharding.device_set),
        addressable_shards=len(value.addressable_shards),
        global_shards=len(value.global_shards),
        memory_kind=value.sharding.memory_kind,
    )


def live_bytes(owners: Iterable[tuple[str, Any]]) -> tuple[LiveBytes, ...]:
    """Bytes alive on each device by owner, from `jax.live_arrays()`.

    `owners` pairs a word with a tree of arrays that are alive on purpose; whatever else is alive has the
    owner `nobody`. An array in two trees belongs to the last one.
    """
    gc.collect()  # what is only waiting to be collected is not alive on purpose
    owner_of = {id(leaf): owner for owner, tree in owners for leaf in jax.tree.leaves(tree)}
    held: Counter[tuple[int, str]] = Counter()
    count: Counter[tuple[int, str]] = Counter()
    for array in jax.live_arrays():
        owner = owner_of.get(id(array), "nobody")
        for shard in array.addressable_shards:
            held[shard.device.id, owner] += shard.data.nbytes
            count[shard.device.id, owner] += 1
    own = [[device, owner, count[device, owner], total] for (device, owner), total in held.items()]
    return tuple(LiveBytes(*row) for process in gathered(own) for row in sorted(process))


def _explicit_where_needed(array: Array, shards: tuple[Shard, ...], mesh: Mesh) -> Array:
    in_mesh_order = tuple(sorted(shards, key=lambda shard: mesh.devices.index(shard.device)))
    if sharding.shards(array, mesh) == in_mesh_order:
        return array
    return replace(array, shards=in_mesh_order)


def _addressable(value: jax.Array) -> list[dict[str, Any]]:
    """The shards that this process holds, as plain JSON."""
    return [
        {
            "device": shard.device.id,
            "index": [
                part.indices(size)[:2] for part, size in zip(shard.index, value.shape, strict=True)
            ],
            "replica": shard.replica_id,
            "process": shard.device.process_index,
            "bytes": shard.data.nbytes,
        }
        for shard in value.addressable_shards
    ]


def _spec(chosen: jax.sharding.Sharding, rank: int) -> Any:
    return spec_of(chosen.spec, rank) if isinstance(chosen, NamedSharding) else None
