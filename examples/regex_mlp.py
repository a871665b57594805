"""Your own model without boxes: plain dicts, and PartitionSpecs by regular expressions of paths.

    sharding-inspector inspect --model examples.regex_mlp:build --target plan -o plan.json
    sharding-inspector inspect --model examples.regex_mlp:build --state-specs '.*=fsdp(mp,0)' -o run.json

The rows of `state_specs` can be edited on the page and with `--state-specs`.
"""

from __future__ import annotations

import jax
from jax import numpy as jnp
from jax.sharding import PartitionSpec as P

from inspector.model import Model, by_regex, fsdp


def forward(params, x):
    return jax.nn.relu(x @ params["up"]["kernel"]) @ params["down"]["kernel"] + params["bias"]


def build(*, rows: int = 16, width: int = 256, hidden: int = 1024) -> Model:
    """Build the model at these sizes."""

    def init(key, batch):
        up, down = jax.random.split(key)
        return {
            "up": {"kernel": jax.random.normal(up, (width, hidden)) / width**0.5},
            "down": {"kernel": jax.random.normal(down, (hidden, width)) / hidden**0.5},
            "bias": jnp.zeros(width),
        }

    def step(params, batch):
        def loss_of(params):
            return jnp.mean((forward(params, batch["x"]) - 2 * batch["x"]) ** 2)

        loss, gradients = jax.value_and_grad(loss_of)(params)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, gradients), loss

    return Model(
        init=init,
        step=step,
        batch={"x": jax.ShapeDtypeStruct((rows, width), jnp.float32)},
        batch_axes={"x": ("dp", None)},
        state_specs=by_regex(
            [("up/kernel", P(None, "mp")), ("down/kernel", P("mp", None)), (".*", fsdp("mp"))]
        ),
        mesh={"dp": 2, "mp": 4},
    )
