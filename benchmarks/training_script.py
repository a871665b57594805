"""A training script as users write them: `training_script.py STEPS`. It does not know this project."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

LAYERS, DEPTH, BATCH = 6, 512, 64


def main(steps: int) -> None:
    mesh = Mesh(np.array(jax.devices()).reshape(2, -1), ("data", "model"))

    def put(value, *spec):
        return jax.device_put(value, NamedSharding(mesh, PartitionSpec(*spec)))

    keys = jax.random.split(jax.random.key(0), LAYERS)
    params = [
        {
            "up": put(jax.random.normal(key, (DEPTH, 2 * DEPTH)) / 30, None, "model"),
            "down": put(jax.random.normal(key, (2 * DEPTH, DEPTH)) / 30, "model", None),
        }
        for key in keys
    ]
    optimizer = optax.adam(1e-3)
    state = {"params": params, "opt_state": optimizer.init(params)}

    def loss(params, batch):
        x = batch
        for layer in params:
            x = x + jnp.tanh(x @ layer["up"]) @ layer["down"]
        return jnp.mean((x - 1) ** 2)

    @jax.jit
    def train_step(state, batch):
        value, grads = jax.value_and_grad(loss)(state["params"], batch)
        updates, opt_state = optimizer.update(grads, state["opt_state"])
        return {
            "params": optax.apply_updates(state["params"], updates),
            "opt_state": opt_state,
        }, value

    generator = np.random.default_rng(0)
    for step in range(steps):
        batch = put(generator.normal(size=(BATCH, DEPTH)).astype("float32"), "data")
        state, value = train_step(state, batch)
        # Emulated devices can deadlock if several steps with collectives run at the same time.
        loss_value = float(value)
        if step % 50 == 0:
            print(f"step {step}, loss {loss_value:.4f}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
