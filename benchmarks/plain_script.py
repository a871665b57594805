"""The default layout as a script: Flax and JAX by their guides, nothing of the inspector.

Each line on standard input is a JSON request, answered by a line on standard output: `run` builds,
compiles and runs the model anew, `places` asks JAX where many arrays lie. The process stays warm.
"""

from __future__ import annotations

import json
import sys
import time

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
        w2 = self.param(
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


def run(batch: int, layers: int, depth: int, mesh: list[int], steps: int) -> dict:
    """Lower, compile, initialise, train, infer; the seconds of it all and of each train step.

    Every function that is compiled is a new one, so that nothing is found in JAX's caches.
    """
    began = time.perf_counter()
    devices = Mesh(np.array(jax.devices()).reshape(mesh), ("data", "model"))
    model, optimizer = MLP(layers, depth), optax.adam(1e-3)

    def init(key, x):
        params = model.init(key, x)["params"]
        return TrainState.create(apply_fn=model.apply, params=params, tx=optimizer)

    def train_step(state, x):
        grads = jax.grad(lambda params: model.apply({"params": params}, x).sum())(state.params)
        return state.apply_gradients(grads=grads)

    def infer(state, x):
        return model.apply({"params": state.params}, x)

    with jax.set_mesh(devices), nn.logical_axis_rules(RULES):
        key = jax.random.key(0)
        rows = NamedSharding(devices, PartitionSpec("data", None))
        x = jax.device_put(jax.random.normal(key, (batch, depth)), rows)
        abstract = jax.eval_shape(init, key, x)
        specs = nn.get_partition_spec(abstract)
        placed = nn.logical_to_mesh_sharding(specs, devices, RULES)
        whole = NamedSharding(devices, PartitionSpec())
        make = jax.jit(init, in_shardings=(whole, rows), out_shardings=placed)
        make = make.lower(key, x).compile()
        step = jax.jit(train_step, in_shardings=(placed, rows), out_shardings=placed)
        step = step.lower(abstract, x).compile()
        predict = jax.jit(infer, in_shardings=(placed, rows), out_shardings=rows)
        predict = predict.lower(abstract, x).compile()

        state = jax.block_until_ready(make(jax.device_put(key, whole), x))
        train_seconds = timed_loop(lambda state: step(state, x), state, steps)
        timed_loop(lambda _: predict(state, x), None, steps)
    return {"seconds": time.perf_counter() - began, "train_steps": train_seconds}


def timed_loop(step, state, steps: int) -> list[float]:
    """Run a step once, then `steps` times more; the seconds of each of those."""
    state = jax.block_until_ready(step(state))
    seconds = []
    for _ in range(steps):
        began = time.perf_counter()
        state = jax.block_until_ready(step(state))
        seconds.append(time.perf_counter() - began)
    return seconds


def places(mesh: list[int], axes: list[str], arrays: list) -> dict:
    """Ask JAX for the index of every array on every device; each array is [shape, spec]."""
    jax.clear_caches()  # it remembers answers, also those to equal questions
    devices = Mesh(np.array(jax.devices()).reshape(mesh), axes)
    began = time.perf_counter()
    for shape, spec in arrays:
        partitions = PartitionSpec(*(tuple(entry) if entry else None for entry in spec))
        NamedSharding(devices, partitions).devices_indices_map(tuple(shape))
    return {"seconds": time.perf_counter() - began}


def main() -> None:
    """Answer requests until there are no more."""
    for line in sys.stdin:
        request = json.loads(line)
        answer = {"run": run, "places": places}[request.pop("ask")](**request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
