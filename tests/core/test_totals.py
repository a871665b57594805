"""Tests that sums over arrays agree with JAX's shards."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from inspector import capture
from inspector import layout as layouts
from inspector.core.totals import in_elements, state_totals
from inspector.layout.plan import plan
from inspector.producers.abstract import abstract_state


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


def test_totals_count_elements_if_dtypes_are_unknown() -> None:
    layout = layouts.parse({"mesh": "2x4", "depth": "64", "layers": "2"}).unwrap()
    planned = plan(layout, abstract_state(layout))
    assert in_elements(planned) is None
    untyped = replace(
        planned,
        arrays=tuple(
            replace(array, dtype="unknown", bytes=None, bytes_per_device=None)
            for array in planned.arrays
        ),
    )
    elements, known = state_totals(in_elements(untyped)), state_totals(planned)
    # Each element of this state has four bytes.
    assert (4 * elements.bytes, 4 * elements.per_device) == (known.bytes, known.per_device)
    assert elements.copies == known.copies
