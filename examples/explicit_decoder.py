"""Your own model with explicit mesh axes: a dense decoder, as pure functions over a pytree.

    sharding-inspector inspect --model examples.explicit_decoder:build --target plan \\
        --mesh 2x4 --axes data:explicit,model:explicit -o run.json

`data` shards the batch, and between steps also the weights (FSDP). `model` shards heads and columns. On
explicit axes the sharding of an array is part of its type: `jax.sharding.reshard` moves data, and
`out_sharding` says how an operation shards its result if its operands do not determine it.
"""

from __future__ import annotations

import jax
from jax import numpy as jnp
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from inspector.model import Model

# The stored weights: shape, by the names of sizes, and PartitionSpec. Blocks are stacked for a scan.
BLOCK = {
    "query": (("layers", "embed", "heads", "head_dim"), P(None, "data", "model", None)),
    "key": (("layers", "embed", "heads", "head_dim"), P(None, "data", "model", None)),
    "value": (("layers", "embed", "heads", "head_dim"), P(None, "data", "model", None)),
    "project": (("layers", "heads", "head_dim", "embed"), P(None, "model", None, "data")),
    "up": (("layers", "embed", "mlp"), P(None, "data", "model")),
    "down": (("layers", "mlp", "embed"), P(None, "model", "data")),
}
ENDS = {
    "embedding": (("vocab", "embed"), P("model", "data")),
    "output": (("embed", "vocab"), P("data", "model")),
}


def norm(x):
    """Return the root mean square norm over the last dimension."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def gathered(weights, specs):
    """Return weights without the axis `data`, which shards them only between steps."""

    def gather(weight, spec):
        entries = (None if axis == "data" else axis for axis in spec)
        return reshard(weight, P(*entries))

    return {name: gather(weight, specs[name]) for name, weight in weights.items()}


def block(x, stored):
    """Attention and an MLP, each added to x (batch, seq, embed). Returns (x, None) for scan."""
    w = gathered(stored, {name: P(*spec[1:]) for name, (_, spec) in BLOCK.items()})
    seq, head_dim = x.shape[1], w["query"].shape[-1]

    h = norm(x)
    query, key, value = (jnp.einsum("bsd,dhk->bshk", h, w[name]) for name in ("query", "key", "value"))
    scores = jnp.einsum("bshk,bthk->bhst", query, key) * head_dim**-0.5
    scores = jnp.where(jnp.tril(jnp.ones((seq, seq), bool)), scores, -jnp.inf)
    attended = jnp.einsum("bhst,bthk->bshk", jax.nn.softmax(scores, axis=-1), value)
    # Both operands shard the heads, so JAX must know that the sum is complete on every device.
    x = x + jnp.einsum("bshk,hkd->bsd", attended, w["project"], out_sharding=P("data", None, None))

    hidden = jax.nn.silu(jnp.einsum("bsd,df->bsf", norm(x), w["up"]))
    x = x + jnp.einsum("bsf,fd->bsd", hidden, w["down"], out_sharding=P("data", None, None))
    return x, None


def logits_of(params, tokens):
    """Return the logits of the token after each: tokens (batch, seq) → (batch, seq, vocab)."""
    ends = gathered(params["ends"], {name: spec for name, (_, spec) in ENDS.items()})
    x = ends["embedding"].at[tokens].get(out_sharding=P("data", None, None))
    x, _ = jax.lax.scan(block, x, params["blocks"])
    return jnp.einsum("bsd,dv->bsv", norm(x), ends["output"])


def build(
    *,
    rows: int = 8,
    seq: int = 64,
    layers: int = 2,
    embed: int = 128,
    mlp: int = 512,
    heads: int = 8,
    vocab: int = 512,
    learning_rate: float = 1e-2,
) -> Model:
    """Build the model at these sizes. Its mesh has the explicit axes `data` and `model`."""
    sizes = {"layers": layers, "embed": embed, "mlp": mlp, "heads": heads, "vocab": vocab}
    sizes["head_dim"] = embed // heads

    def init(key, batch):
        def weights(table):
            return {
                name: embed**-0.5
                * jax.random.normal(key, tuple(sizes[size] for size in shape), out_sharding=spec)
                for name, (shape, spec) in table.items()
            }

        params = {"blocks": weights(BLOCK), "ends": weights(ENDS)}
        return {"params": params, "momentum": jax.tree.map(jnp.zeros_like, params)}

    def step(state, batch):
        def loss_of(params):
            chances = jax.nn.log_softmax(logits_of(params, batch["tokens"]))
            is_target = jax.nn.one_hot(batch["targets"], vocab)
            return -jnp.mean(jnp.sum(chances * is_target, axis=-1))

        loss, gradients = jax.value_and_grad(loss_of)(state["params"])
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, state["momentum"], gradients)
        params = jax.tree.map(lambda w, m: w - learning_rate * m, state["params"], momentum)
        return {"params": params, "momentum": momentum}, loss

    def batch(key):
        tokens = jax.random.randint(key, (rows, seq + 1), 0, vocab)
        return {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}

    return Model(
        init=init,
        step=step,
        batch=batch,
        apply=lambda state, batch: logits_of(state["params"], batch["tokens"]),
        batch_axes={"tokens": ("data", None), "targets": ("data", None)},
        names="mesh",
    )
