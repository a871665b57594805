"""Sums over arrays, against the shards that JAX has."""

from __future__ import annotations

from collections import Counter

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from inspector import capture
from inspector.totals import state_totals


def test_an_array_on_one_device_counts_there_alone() -> None:
    devices = jax.devices()[:4]
    mesh = Mesh(devices, ("x",))
    state = {
        "split": jax.device_put(jnp.ones((8, 4)), NamedSharding(mesh, PartitionSpec("x"))),
        "whole": jax.device_put(jnp.ones(5), NamedSharding(mesh, PartitionSpec())),
        "first": jax.device_put(jnp.ones(64), devices[0]),
        "last": jax.device_put(jnp.ones(16), devices[3]),
        "empty": jax.device_put(jnp.ones((0, 3)), devices[0]),
    }
    held: Counter[int] = Counter()
    for array in state.values():
        for shard in array.addressable_shards:
            held[shard.device.id] += shard.data.nbytes
    found = state_totals(capture(state))
    assert found.bytes == sum(array.nbytes for array in state.values())
    assert found.per_device == max(held.values())
    assert found.copies == sum(held.values()) / found.bytes
