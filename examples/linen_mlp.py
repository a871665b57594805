"""Your own model in Flax Linen: a two-layer MLP that learns to double its input.

    sharding-inspector inspect --model examples.linen_mlp:build --set width=64 --mesh 2x4 -o run.json
    sharding-inspector dashboard --model examples.linen_mlp:build

The keyword parameters of `build` are the sizes that the dashboard shows and `--set` sets. The names at the
dimensions (`embed`, `hidden`, `batch`) are logical axes; `rules` maps them to mesh axes by default.
"""

from __future__ import annotations

from typing import Literal

import jax
import optax
from flax import linen as nn
from flax.training.train_state import TrainState
from jax import numpy as jnp

from inspector.model import Model


class MLP(nn.Module):
    """(batch, embed) → relu → (batch, hidden) → (batch, embed)."""

    width: int
    hidden: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        init = nn.initializers.lecun_normal()
        up = nn.with_logical_partitioning(init, ("embed", "hidden"))
        down = nn.with_logical_partitioning(init, ("hidden", "embed"))
        y = nn.relu(nn.Dense(self.hidden, use_bias=False, kernel_init=up, name="up")(x))
        y = nn.with_logical_constraint(y, ("batch", "hidden"))
        return nn.Dense(self.width, use_bias=False, kernel_init=down, name="down")(y)


def build(
    *,
    rows: int = 16,
    width: int = 256,
    hidden: int = 1024,
    optimizer: Literal["adam", "sgd"] = "adam",
    learning_rate: float = 1e-3,
) -> Model:
    """Build the model at these sizes."""
    # Not in `init`, because both are part of the state's tree structure, which must not change.
    module = MLP(width, hidden)
    chosen = getattr(optax, optimizer)(learning_rate)

    def init(key, batch):
        params = module.init(key, batch["x"])["params"]
        return TrainState.create(apply_fn=module.apply, params=params, tx=chosen)

    def step(state, batch):
        def loss_of(params):
            return jnp.mean((module.apply({"params": params}, batch["x"]) - batch["y"]) ** 2)

        loss, gradients = jax.value_and_grad(loss_of)(state.params)
        return state.apply_gradients(grads=gradients), loss

    def batch(key):
        x = jax.random.normal(key, (rows, width))
        return {"x": x, "y": 2 * x}

    return Model(
        init=init,
        step=step,
        batch=batch,
        apply=lambda state, batch: module.apply({"params": state.params}, batch["x"]),
        batch_axes={"x": ("batch", "embed"), "y": ("batch", "embed")},
        output_axes=("batch", "embed"),
        rules=(("batch", "data"), ("hidden", "model")),
    )
