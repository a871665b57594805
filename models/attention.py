"""Causal self-attention with grouped queries, rotary positions, sliding windows, and caches.

A decode step reads one token of each sequence. All sequences of a batch are at the same position.

Rotary positions: Su et al. 2021, arXiv:2104.09864.
"""

import jax
from flax import linen as nn
from jax import numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from inspector.model.built_in.dot_product import dot_product_attention
from inspector.model.built_in.flash import flash_attention
from inspector.model.built_in.layer import Config, Layer
from inspector.model.built_in.ring import ring_attention

ROTARY_BASE = 10_000.0  # as in RoFormer


class Attention(Layer):
    """x (batch, seq, embed) → attention of each position to itself and earlier ones, same shape.

    With a window, a position sees itself and the window − 1 positions before it (Mistral, arXiv:2310.06825).
    """

    window: int = 0

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        c = self.config
        query_shape, key_shape = (c.embed, c.heads, c.head_dim), (c.embed, c.kv_heads, c.head_dim)
        query_axes, key_axes = ("embed", "heads", "head_dim"), ("embed", "kv_heads", "head_dim")
        w_query = self.weight("query", query_shape, query_axes, fan_in=c.embed, contracted=(0,))
        w_key = self.weight("key", key_shape, key_axes, fan_in=c.embed, contracted=(0,))
        w_value = self.weight("value", key_shape, key_axes, fan_in=c.embed, contracted=(0,))
        w_output = self.weight(
            *("output", (c.heads, c.head_dim, c.embed), ("heads", "head_dim", "embed")),
            fan_in=c.heads * c.head_dim,
            contracted=(0, 1),
        )

        by_query = ("batch", "seq", "heads", "head_dim")
        by_key = ("batch", "seq", "kv_heads", "head_dim")
        query = self.product("bsm,mnh->bsnh", x, w_query, by_query)
        key = self.product("bsm,mkh->bskh", x, w_key, by_key)
        value = self.product("bsm,mkh->bskh", x, w_value, by_key)
        first = self.position() if c.program == "decode" else None
        if c.positions == "rotary":
            query, key = rotated(query, first), rotated(key, first)
        query = checkpoint_name(self.constrained("query", query, by_query), "query_proj")
        key = checkpoint_name(self.constrained("key", key, by_key), "key_proj")
        value = checkpoint_name(self.constrained("value", value, by_key), "value_proj")

        if c.program == "prefill":
            self.keep("key", key)
            self.keep("value", value)
        if first is None:
            mixed = attended(c, query, key, value, self.window)
        else:
            keys, values = self.cached("key", key, first), self.cached("value", value, first)
            mixed = dot_product_attention(query, keys, values, self.window, first)
        mixed = self.constrained("attended", mixed, by_query)
        output = self.product("bsnh,nhm->bsm", mixed, w_output, ("batch", "seq", "embed"))
        return checkpoint_name(output, "out_proj")


def attended(c: Config, query: jax.Array, key: jax.Array, value: jax.Array, window: int) -> jax.Array:
    """Return the attention of the layout: that of a kernel, of a ring of devices, or of matrix products."""
    if c.attention == "flash":
        return flash_attention(query, key, value, window)
    if c.attention == "ring":
        return ring_attention(query, key, value, window)
    return dot_product_attention(query, key, value, window)


def rotated(x: jax.Array, first: jax.Array | None = None) -> jax.Array:
    """Rotate pairs (i, i + head_dim/2) of x (batch, seq, heads, head_dim) by angles that grow with seq.

    first: the position of the first token; None for 0.
    """
    seq, half = x.shape[1], x.shape[-1] // 2
    frequency = ROTARY_BASE ** (-jnp.arange(half) / half)
    position = jnp.arange(seq) if first is None else first + jnp.arange(seq)
    angle = position[:, None, None] * frequency  # (seq, 1, half)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    pairs = (first * cos - second * sin, second * cos + first * sin)
    return jnp.concatenate(pairs, axis=-1).astype(x.dtype)
