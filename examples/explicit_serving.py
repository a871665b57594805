"""Your own model with explicit mesh axes: inference with a cache of keys and values.

    sharding-inspector inspect --model examples.explicit_serving:build --target plan \\
        --mesh 2x4 --axes data:explicit,model:explicit -o run.json

Inference (`apply`) is the prefill: it reads the whole prompt and fills the cache. The step decodes one
token. `data` shards the requests, `model` shards heads, columns and the vocabulary. The weights are not
sharded over `data`, so no step has to gather them.
"""

from __future__ import annotations

import jax
from jax import numpy as jnp
from jax.sharding import PartitionSpec as P

from inspector.model import Model

WEIGHTS = {
    "embedding": P("model", None),
    "query": P(None, "model", None),
    "key": P(None, "model", None),
    "value": P(None, "model", None),
    "project": P("model", None, None),
    "output": P(None, "model"),
}
CACHE = P("data", None, "model", None)  # (request, position, head, head_dim)
BY_REQUEST = P("data", None, None)


def attention(params, x, keys, values, first):
    """Return the attention of x (batch, seq, embed) to the cache. x begins at position `first`."""
    query = jnp.einsum("bsd,dhk->bshk", x, params["query"])
    scores = jnp.einsum("bshk,bthk->bhst", query, keys) * query.shape[-1] ** -0.5
    here = first + jnp.arange(x.shape[1])[:, None]
    scores = jnp.where(jnp.arange(keys.shape[1]) <= here, scores, -jnp.inf)
    attended = jnp.einsum("bhst,bthk->bshk", jax.nn.softmax(scores, axis=-1), values)
    return jnp.einsum("bshk,hkd->bsd", attended, params["project"], out_sharding=BY_REQUEST)


def forward(params, cache, tokens, first):
    """Return the logits of the token after the last one, and the cache with these tokens."""
    x = params["embedding"].at[tokens].get(out_sharding=BY_REQUEST)
    start = (0, first, 0, 0)
    cache = {
        name: jax.lax.dynamic_update_slice(cache[name], jnp.einsum("bsd,dhk->bshk", x, params[name]), start)
        for name in ("key", "value")
    }
    x = x + attention(params, x, cache["key"], cache["value"], first)
    last = x[:, -1]
    return jnp.einsum("bd,dv->bv", last, params["output"], out_sharding=P("data", None)), cache


def build(
    *,
    requests: int = 8,
    prompt: int = 32,
    positions: int = 128,
    embed: int = 128,
    heads: int = 8,
    vocab: int = 512,
) -> Model:
    """Build the model at these sizes. Its mesh has the explicit axes `data` and `model`."""
    head_dim = embed // heads
    by_head = (embed, heads, head_dim)
    shapes = {
        "embedding": (vocab, embed),
        **{"query": by_head, "key": by_head, "value": by_head},
        "project": (heads, head_dim, embed),
        "output": (embed, vocab),
    }

    def init(key, batch):
        params = {
            name: embed**-0.5 * jax.random.normal(key, shapes[name], out_sharding=spec)
            for name, spec in WEIGHTS.items()
        }
        empty = jnp.zeros((requests, positions, heads, head_dim), out_sharding=CACHE)
        return {
            "params": params,
            "cache": {"key": empty, "value": empty},
            "length": jnp.int32(prompt),
        }

    def prefill(state, batch):
        logits, cache = forward(state["params"], state["cache"], batch["prompt"], 0)
        return {"token": jnp.argmax(logits, axis=-1), "cache": cache}

    def decode(state, batch):
        logits, cache = forward(state["params"], state["cache"], batch["token"][:, None], state["length"])
        chance = jnp.max(jax.nn.log_softmax(logits), axis=-1)
        return state | {"cache": cache, "length": state["length"] + 1}, jnp.mean(chance)

    def batch(key):
        return {
            "prompt": jax.random.randint(key, (requests, prompt), 0, vocab),
            "token": jax.random.randint(key, (requests,), 0, vocab),
        }

    return Model(
        init=init,
        step=decode,
        batch=batch,
        apply=prefill,
        batch_axes={"prompt": ("data", None), "token": ("data",)},
        names="mesh",
    )
