"""The default layout as a script of Flax and JAX, as in their guides, without the inspector.

Each line on standard input is a JSON request; the answer is a line on standard output. `run` builds,
compiles and runs the model again, `places` asks JAX for the placement of arrays. The process stays warm.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
from flax import linen as nn
from flax.training.train_state import TrainState
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

RULES = (("batch", "data"), ("hidden", "model"))


class DotReluDot(nn.Module):
    depth: int

    @nn.compact
    def __call__(self, x):
        init = nn.initializers.xavier_normal()
        y = nn.Dense(
            self.depth,
            use_bias=False,
            kernel_init=nn.with_logical_partitioning(init, ("embed", "hidden")),
        )(x)
        y = nn.with_logical_constraint(nn.relu(y), ("batch", "hidden"))
        w2: Any = self.param(
            "W2",
            nn.with_logical_partitioning(init, ("hidden", "embed")),
            (self.depth, x.shape[-1]),
        )
        return nn.with_logical_constraint(jnp.dot(y, w2), ("batch", "embed"))


class MLP(nn.Module):
    layers: int
    depth: int

    @nn.compact
    def __call__(self, x):
        for _ in range(self.layers):
            x = DotReluDot(self.depth)(x)
        return x


def functions(layers: int, depth: int):
    """Return init, train step and inference as new functions, which JAX has not cached."""
    model: Any = MLP(layers, depth)
    optimizer = optax.adam(1e-3)

    def init(key, x):
        params = model.init(key, x)["params"]
        return TrainState.create(apply_fn=model.apply, params=params, tx=optimizer)

    def train_step(state, x):
        grads = jax.grad(lambda params: model.apply({"params": params}, x).sum())(state.params)
        return state.apply_gradients(grads=grads)

    def infer(state, x):
        return model.apply({"params": state.params}, x)

    return init, train_step, infer


def state_shardings(init, mesh: Mesh, key, x):
    """Return the abstract train state and its shardings."""
    abstract = jax.eval_shape(init, key, x)
    return abstract, nn.logical_to_mesh_sharding(nn.get_partition_spec(abstract), mesh, RULES)


def run(batch: int, layers: int, depth: int, mesh: list[int], steps: int) -> dict:
    """Lower, compile, initialize, train and infer; return all seconds, and those of each train step."""
    began = time.perf_counter()
    devices = Mesh(np.array(jax.devices()).reshape(mesh), ("data", "model"))
    init, train_step, infer = functions(layers, depth)
    with jax.set_mesh(devices), nn.logical_axis_rules(RULES):
        key = jax.random.key(0)
        rows = NamedSharding(devices, PartitionSpec("data", None))
        x = jax.device_put(jax.random.normal(key, (batch, depth)), rows)
        abstract, placed = state_shardings(init, devices, key, x)
        whole = NamedSharding(devices, PartitionSpec())
        jitted = jax.jit(init, in_shardings=(whole, rows), out_shardings=placed)
        make = jitted.lower(key, x).compile()
        jitted = jax.jit(train_step, in_shardings=(placed, rows), out_shardings=placed)
        step = jitted.lower(abstract, x).compile()
        jitted = jax.jit(infer, in_shardings=(placed, rows), out_shardings=rows)
        predict = jitted.lower(abstract, x).compile()

        state = jax.block_until_ready(make(jax.device_put(key, whole), x))
        train_seconds = timed_loop(lambda state: step(state, x), state, steps)
        timed_loop(lambda _: predict(state, x), None, steps)
    return {"seconds": time.perf_counter() - began, "train_steps": train_seconds}


def timed_loop(step, state, steps: int) -> list[float]:
    """Run a step once, then `steps` more times; return the seconds of the latter."""
    state = jax.block_until_ready(step(state))
    seconds = []
    for _ in range(steps):
        began = time.perf_counter()
        state = jax.block_until_ready(step(state))
        seconds.append(time.perf_counter() - began)
    return seconds


def places(mesh: list[int], axes: list[str], arrays: list) -> dict:
    """Return the seconds in which JAX gives the indices of [shape, spec] on all devices."""
    jax.clear_caches()
    devices = Mesh(np.array(jax.devices()).reshape(mesh), axes)
    began = time.perf_counter()
    for shape, spec in arrays:
        partitions = PartitionSpec(*(tuple(entry) if entry else None for entry in spec))
        NamedSharding(devices, partitions).devices_indices_map(tuple(shape))
    return {"seconds": time.perf_counter() - began}


def main() -> None:
    """Answer requests until standard input ends."""
    answers: dict[str, Callable[..., dict]] = {"run": run, "places": places}
    for line in sys.stdin:
        request = json.loads(line)
        answer = answers[request.pop("ask")](**request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
