"""Causal attention with grouped queries (Ainslie et al. 2023, arXiv:2305.13245) in two matrix products."""

import jax
from jax import numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from inspector.model.built_in.explicit import out_sharding


def dot_product_attention(
    query: jax.Array, key: jax.Array, value: jax.Array, window: int = 0, first: jax.Array | None = None
) -> jax.Array:
    """Return the attention of each position to itself and earlier ones, with softmax in float32.

    query: (batch, seq, heads, head_dim). key, value: (batch, seq, kv_heads, head_dim). The result is like the
    query, with the head_dim of the value.
    window: positions that a query sees, itself included; 0 for all.
    first: the position of the first query, if the keys and values are those of a cache.
    """
    batch, seq, heads, head_dim = query.shape
    kv_heads = key.shape[2]
    # Each key head k serves a group of g query heads.
    of_query, of_key = ("seq", None) if first is None else (None, "seq")
    by_group = ("batch", of_query, "kv_heads", None, "head_dim")
    grouped = (batch, seq, kv_heads, heads // kv_heads, head_dim)
    query = jnp.reshape(query, grouped, out_sharding=out_sharding(by_group))
    scores = jnp.einsum(
        "bskgh,btkh->bkgst",
        query,
        key,
        preferred_element_type=jnp.float32,
        out_sharding=out_sharding(("batch", "kv_heads", None, of_query, of_key)),
    )
    if first is None:
        seen = jnp.tril(jnp.ones((seq, seq), bool))
        if window:
            seen = jnp.triu(seen, 1 - window)
    else:
        before = first + jnp.arange(seq)[:, None] - jnp.arange(key.shape[1])
        seen = (before >= 0) & (before < window if window else True)
    scores = jnp.where(seen, scores * head_dim**-0.5, -jnp.inf)
    weights = jax.nn.softmax(scores, axis=-1).astype(value.dtype)
    attended = jnp.einsum("bkgst,btkh->bskgh", weights, value, out_sharding=out_sharding(by_group))
    by_query = out_sharding(("batch", of_query, "heads", "head_dim"))
    attended = jnp.reshape(attended, (batch, seq, heads, value.shape[-1]), out_sharding=by_query)
    return checkpoint_name(attended, "context")
