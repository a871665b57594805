"""Your own model in Flax nnx: a two-layer MLP that learns to double its input.

    sharding-inspector inspect --model examples.nnx_mlp:build --set width=64 --mesh 2x4 -o run.json
    sharding-inspector dashboard --model examples.nnx_mlp:build

The state has `params` and `opt_state`, split from module and optimizer by `nnx.split`. The metadata of each
initializer and the layout's rules decide the sharding. With the rules of nnx (`rules_semantics`), a name
without a rule is a mesh axis, so `embed` has a rule to no axis.
"""

from __future__ import annotations

import jax
import optax
from flax import nnx
from jax import numpy as jnp

from inspector.model import Model


class MLP(nnx.Module):
    """(batch, embed) → relu → (batch, hidden) → (batch, embed)."""

    def __init__(self, width: int, hidden: int, rngs: nnx.Rngs) -> None:
        init = nnx.initializers.lecun_normal()
        up = nnx.with_partitioning(init, ("embed", "hidden"))
        down = nnx.with_partitioning(init, ("hidden", "embed"))
        self.up = nnx.Linear(width, hidden, use_bias=False, kernel_init=up, rngs=rngs)
        self.down = nnx.Linear(hidden, width, use_bias=False, kernel_init=down, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.down(nnx.relu(self.up(x)))


def build(*, rows: int = 16, width: int = 256, hidden: int = 1024, learning_rate: float = 1e-3) -> Model:
    """Build the model at these sizes."""

    def create(key):
        model = MLP(width, hidden, nnx.Rngs(key))
        optimizer = nnx.Optimizer(model, optax.adam(learning_rate), wrt=nnx.Param)
        return model, optimizer

    def init(key, batch):
        model, optimizer = create(key)
        return {"params": nnx.state(model), "opt_state": nnx.state(optimizer)}

    def merged(state):
        """Return module and optimizer with the arrays of the state."""
        model, optimizer = nnx.eval_shape(create, jax.random.key(0))
        nnx.update(model, state["params"])
        nnx.update(optimizer, state["opt_state"])
        return model, optimizer

    def step(state, batch):
        model, optimizer = merged(state)

        def loss_of(model):
            return jnp.mean((model(batch["x"]) - batch["y"]) ** 2)

        loss, gradients = nnx.value_and_grad(loss_of)(model)
        optimizer.update(model, gradients)
        return {"params": nnx.state(model), "opt_state": nnx.state(optimizer)}, loss

    def apply(state, batch):
        model, _ = merged(state)
        return model(batch["x"])

    def batch(key):
        x = jax.random.normal(key, (rows, width))
        return {"x": x, "y": 2 * x}

    return Model(
        init=init,
        step=step,
        batch=batch,
        apply=apply,
        # Without `embed`: if its rule has the mesh axis of `batch`, nnx would use that axis twice.
        batch_axes={"x": ("batch", None), "y": ("batch", None)},
        output_axes=("batch", None),
        rules=(("batch", "data"), ("hidden", "model"), ("embed", None)),
        rules_semantics="nnx",
    )
