"""Tests that sums over arrays agree with JAX's shards."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from inspector import capture
from inspector import layout as layouts
from inspector.layout.plan import plan
from inspector.recording.capture import capture_compiled
from inspector.sharding import device_holdings
from inspector.sharding.totals import STATE_GROUPS, in_elements, state_totals
from inspector.tracing.model.abstract import abstract_state


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
    totals = state_totals(capture(state))
    assert totals.bytes == sum(array.nbytes for array in state.values())
    assert totals.per_device == max(held.values())
    assert totals.copies == sum(held.values()) / totals.bytes


def test_totals_count_elements_if_dtypes_are_unknown() -> None:
    layout = layouts.parse({"mesh": "2x4", "depth": "64", "layers": "2"}).unwrap()
    planned = plan(layout, abstract_state(layout))
    assert in_elements(planned) is None
    untyped = replace(
        planned,
        arrays=tuple(
            replace(array, dtype="unknown", bytes=None, bytes_per_device=None) for array in planned.arrays
        ),
    )
    elements, known = state_totals(in_elements(untyped)), state_totals(planned)
    # Each element of this state has four bytes.
    assert (4 * elements.bytes, 4 * elements.per_device) == (known.bytes, known.per_device)
    assert elements.copies == known.copies


def test_arrays_that_several_programs_list_count_once() -> None:
    mesh = Mesh(jax.devices()[:4], ("x",))
    params = {
        "kernel": jax.device_put(jnp.ones((8, 4)), NamedSharding(mesh, PartitionSpec("x"))),
        "bias": jax.device_put(jnp.ones(4), NamedSharding(mesh, PartitionSpec())),
    }
    programs = {
        "evaluate": jax.jit(lambda s: s["params"]["kernel"].sum()),
        "train": jax.jit(lambda s: jax.tree.map(lambda x: 2 * x, s)),
    }
    compiled = {name: program.lower({"params": params}).compile() for name, program in programs.items()}
    snapshot = capture_compiled(compiled)
    assert len([array for array in snapshot.arrays if array.group == "params"]) == 3
    assert state_totals(snapshot).bytes == sum(parameter.nbytes for parameter in params.values())
    held = device_holdings.holdings(snapshot, (0,), STATE_GROUPS)
    assert held.bytes == sum(parameter.addressable_shards[0].data.nbytes for parameter in params.values())
