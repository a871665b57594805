"""Compile the default train step, or that of a transformer without a loop over layers.

Each line on standard input is a JSON request, `compile` of `mlp` or `transformer`; the answer is a line on
standard output. The process stays warm and compiles each time, without the inspector.
"""

from __future__ import annotations

import json
import sys
import time

import jax
import numpy as np
from flax import linen as nn
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from plain_script import RULES, functions, state_shardings  # the script in this folder

BATCH, SEQUENCE, HEADS, EMBED, HIDDEN = 8, 16, 4, 64, 256  # small, because only the text matters


def mlp(mesh: Mesh, layers: int):
    """Lower the train step of the default layout."""
    init, train_step, _ = functions(layers, 1024)
    with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
        x = jax.ShapeDtypeStruct((8, 1024), "float32")
        key = jax.eval_shape(lambda: jax.random.key(0))
        abstract, placed = state_shardings(init, mesh, key, x)
        rows = NamedSharding(mesh, PartitionSpec("data", None))
        step = jax.jit(train_step, in_shardings=(placed, rows), out_shardings=placed)
        return step.lower(abstract, x)


def transformer(mesh: Mesh, layers: int):
    """Lower a train step with layers of attention and MLP, without a loop."""
    head = EMBED // HEADS
    columns, rows = PartitionSpec(None, "model"), PartitionSpec("model")
    weights = {
        "inputs": ((3, EMBED, HEADS, head), PartitionSpec(None, None, "model")),
        "output": ((HEADS, head, EMBED), rows),
        "up": ((EMBED, HIDDEN), columns),
        "down": ((HIDDEN, EMBED), rows),
    }
    split = NamedSharding(mesh, PartitionSpec("data"))

    def layer(weight, x):
        query, key, value = jnp.einsum("bsd,ndhk->nbshk", x, weight["inputs"])
        scores = jax.nn.softmax(jnp.einsum("bshk,bthk->bhst", query, key))
        x += jnp.einsum("bhst,bthk,hkd->bsd", scores, value, weight["output"])
        x += jax.nn.relu(x @ weight["up"]) @ weight["down"]
        return jax.lax.with_sharding_constraint(x, split)

    def loss(params, x):
        for weight in params:
            x = layer(weight, x)
        return (x * x).mean()

    def train_step(params, x):
        grads = jax.grad(loss)(params, x)
        return jax.tree.map(lambda param, grad: param - 1e-3 * grad, params, grads)

    params = [
        {
            name: jax.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(mesh, spec))
            for name, (shape, spec) in weights.items()
        }
        for _ in range(layers)
    ]
    x = jax.ShapeDtypeStruct((BATCH, SEQUENCE, EMBED), "float32", sharding=split)
    return jax.jit(train_step).lower(params, x)


def main() -> None:
    """Answer requests until standard input ends."""
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
    for line in sys.stdin:
        request = json.loads(line)
        lowered = {"mlp": mlp, "transformer": transformer}[request["program"]](mesh, request["layers"])
        began = time.perf_counter()
        executable = lowered.compile()
        seconds = time.perf_counter() - began
        print(json.dumps({"seconds": seconds, "text": executable.as_text()}), flush=True)


if __name__ == "__main__":
    main()
