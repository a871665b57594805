"""Your own model with explicit mesh axes: a mixture of experts with expert parallelism.

    sharding-inspector inspect --model examples.explicit_moe:build --target plan \\
        --mesh 2x4 --axes data:explicit,expert:explicit -o run.json

Both axes shard the sequences. `expert` also shards the experts, so every sequence must send its tokens to
the devices of their experts and back: two all-to-alls, each a `jax.sharding.reshard`.
"""

from __future__ import annotations

import jax
from jax import numpy as jnp
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from inspector.model import Model

SEQUENCES = ("data", "expert")
WEIGHTS = {
    "router": P(None, None),
    "up": P("expert", None, None),
    "down": P("expert", None, None),
}


def route(x, router, places):
    """Return the mask that sends each token to one expert: (batch, seq, expert, place), and its weight.

    Every sequence has `places` at each expert. Later tokens get none.
    """
    scores = jax.nn.softmax(jnp.einsum("bsd,de->bse", x, router))
    chosen = jax.nn.one_hot(jnp.argmax(scores, axis=-1), scores.shape[-1])
    position = jnp.cumsum(chosen, axis=1) * chosen - 1  # −1 at the experts that are not chosen
    mask = jax.nn.one_hot(position.astype(jnp.int32), places)
    return mask, jnp.max(scores, axis=-1)


def experts(w, x, places):
    """Return the output of each token's expert: x (batch, seq, embed) → the same shape."""
    mask, weight = route(x, w["router"], places)
    sent = jnp.einsum("bsec,bsd->ebcd", mask, x, out_sharding=P(None, SEQUENCES, None, None))
    sent = reshard(sent, P("expert", "data", None, None))
    hidden = jax.nn.silu(jnp.einsum("ebcd,edf->ebcf", sent, w["up"]))
    made = jnp.einsum("ebcf,efd->ebcd", hidden, w["down"])
    made = reshard(made, P(None, SEQUENCES, None, None))
    returned = jnp.einsum("bsec,ebcd->bsd", mask, made)
    return returned * weight[..., None]


def build(
    *,
    rows: int = 16,
    seq: int = 64,
    embed: int = 128,
    mlp: int = 256,
    count: int = 8,
    learning_rate: float = 1e-2,
) -> Model:
    """Build the model with `count` experts. Its mesh has the explicit axes `data` and `expert`."""
    shapes = {"router": (embed, count), "up": (count, embed, mlp), "down": (count, mlp, embed)}
    places = 2 * seq // count

    def init(key, batch):
        return {
            "params": {
                name: embed**-0.5 * jax.random.normal(key, shapes[name], out_sharding=spec)
                for name, spec in WEIGHTS.items()
            }
        }

    def step(state, batch):
        def loss_of(params):
            return jnp.mean((experts(params, batch["x"], places) - batch["y"]) ** 2)

        loss, gradients = jax.value_and_grad(loss_of)(state["params"])
        params = jax.tree.map(lambda w, g: w - learning_rate * g, state["params"], gradients)
        return {"params": params}, loss

    def batch(key):
        x = jax.random.normal(key, (rows, seq, embed))
        return {"x": x, "y": jnp.abs(x)}

    by_sequence = (SEQUENCES, None, None)
    return Model(
        init=init,
        step=step,
        batch=batch,
        apply=lambda state, batch: experts(state["params"], batch["x"], places),
        batch_axes={"x": by_sequence, "y": by_sequence},
        names="mesh",
    )
