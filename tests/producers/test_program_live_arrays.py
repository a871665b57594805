"""Names of a program's live arrays, when it compiles no more."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from inspector.producers.program_run.live import LiveArrays
from inspector.producers.program_run.named_arguments import argument_paths

MESH = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))


def put(shape: tuple[int, ...], *spec: Any) -> jax.Array:
    return jax.device_put(jnp.zeros(shape), NamedSharding(MESH, PartitionSpec(*spec)))


def recorded(function: Any, *arguments: Any) -> LiveArrays:
    """Return what the recorder knows after a compile ahead of time."""
    lowered = jax.jit(function).lower(*arguments)
    compiled = lowered.compile()
    names = [
        *("model['bias']", "model['kernel']", "optimizer['mu']"),
        *("rngs['key']", "metrics['count']", "metrics['total']"),
    ]
    live = LiveArrays()
    paths = argument_paths(lowered.in_tree, compiled.out_tree, names)
    live.compiled("step", compiled._executable, paths, ())
    return live


def test_a_step_keeps_its_names_with_a_random_key_and_without_its_metrics() -> None:
    def step(model: Any, optimizer: Any, rngs: Any, metrics: Any) -> Any:
        keys = {"key": jax.random.split(rngs["key"], 1)[0]}
        model, optimizer, metrics = jax.tree.map(lambda x: x + 1, (model, optimizer, metrics))
        return (model, optimizer, keys, metrics), model["bias"].sum()

    arguments = (
        {"kernel": put((24, 40), "data", "model"), "bias": put((40,), "model")},
        {"mu": put((24, 40), "model", "data")},
        {"key": jax.device_put(jax.random.key(0), NamedSharding(MESH, PartitionSpec()))},
        {"count": put(()), "total": put(())},
    )
    live = recorded(step, *arguments)
    (model, optimizer, rngs, metrics), loss = jax.jit(step)(*arguments)
    del arguments, metrics, loss
    found, _ = live.captured(())
    named = {one.path: one for one in found.arrays}
    assert named["model/kernel"].shape == model["kernel"].shape
    assert named["model/kernel"].spec == (("data",), ("model",))
    assert named["model/bias"].shape == model["bias"].shape
    assert named["optimizer/mu"].spec == (("model",), ("data",))
    # The key is held as its data, so that its bytes are known.
    assert named["rngs/key"].shape == jax.random.key_data(rngs["key"]).shape
    assert optimizer["mu"].shape == (24, 40)


def test_the_shards_that_a_program_looked_at_are_counted_once() -> None:
    array = put((56, 48), "data", "model")
    shards = [shard.data for shard in array.addressable_shards]
    assert sum(one.shape == (28, 12) for one in jax.live_arrays()) >= len(shards) == 8
    found, _ = LiveArrays().captured(())
    assert [one.shape for one in found.arrays if one.shape in ((56, 48), (28, 12))] == [(56, 48)]
    alone = shards[0]
    del array, shards
    found, _ = LiveArrays().captured(())
    # The array is gone, so its shard is the only array of that memory.
    assert [one.shape for one in found.arrays if one.shape in ((56, 48), (28, 12))] == [alone.shape]
