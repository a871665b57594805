"""Multi-head latent attention: keys and values of all heads are computed from one short vector per token.

DeepSeek-V2 (arXiv:2405.04434), as it is trained: the keys and values of each head are computed. Inference can
keep the short vectors instead.
"""

import jax
from flax import linen as nn
from jax import numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from inspector.model.built_in.attention import attended, rotated
from inspector.model.built_in.explicit import has_explicit_axes, resharded
from inspector.model.built_in.layer import Layer


class LatentAttention(Layer):
    """x (batch, seq, embed) → causal attention, same shape.

    A query and a key of a head have `head_dim` elements without a position and `rotary_dim` rotated ones; the
    rotated part of a key is that of all heads. A value has `head_dim` elements. Queries are computed from a
    short vector, too, if `q_rank` is not 0.
    """

    window: int = 0

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        c = self.config
        by_token, by_head = ("batch", "seq", None), ("batch", "seq", "heads", "head_dim")
        query_from = x
        if c.q_rank:
            down = self.weight(
                "query_down", (c.embed, c.q_rank), ("embed", None), fan_in=c.embed, contracted=(0,)
            )
            query_from = self.short_norm("query_norm", self.product("bsm,mr->bsr", x, down, by_token))
        query = self.up("query", query_from, c.head_dim + c.rotary_dim)

        down = self.weight(
            *("key_down", (c.embed, c.kv_rank + c.rotary_dim), ("embed", None)),
            fan_in=c.embed,
            contracted=(0,),
        )
        short, position = jnp.split(self.product("bsm,mr->bsr", x, down, by_token), [c.kv_rank], axis=-1)
        short = self.short_norm("key_norm", short)
        key, value = self.up("key", short, c.head_dim), self.up("value", short, c.head_dim)

        plain, turned = jnp.split(query, [c.head_dim], axis=-1)
        query = jnp.concatenate((plain, rotated(turned)), axis=-1)
        of_all_heads = jnp.broadcast_to(rotated(position[:, :, None]), (*key.shape[:3], c.rotary_dim))
        if has_explicit_axes():
            of_all_heads = resharded(of_all_heads, by_head)
        key = jnp.concatenate((key, of_all_heads), axis=-1)
        query = checkpoint_name(self.constrained("query", query, by_head), "query_proj")
        key = checkpoint_name(self.constrained("key", key, by_head), "key_proj")
        value = checkpoint_name(self.constrained("value", value, by_head), "value_proj")
        mixed = self.constrained("attended", attended(c, query, key, value, self.window), by_head)
        w_output = self.weight(
            *("output", (c.heads, c.head_dim, c.embed), ("heads", "head_dim", "embed")),
            fan_in=c.heads * c.head_dim,
            contracted=(0, 1),
        )
        output = self.product("bsnh,nhm->bsm", mixed, w_output, ("batch", "seq", "embed"))
        return checkpoint_name(output, "out_proj")

    def up(self, name: str, short: jax.Array, width: int) -> jax.Array:
        """Return (batch, seq, heads, width) from short vectors, which are sharded like `embed`."""
        shape = (short.shape[-1], self.config.heads, width)
        weight = self.weight(name, shape, ("embed", "heads", "head_dim"), fan_in=shape[0], contracted=(0,))
        return self.product("bsr,rnh->bsnh", short, weight, ("batch", "seq", "heads", "head_dim"))

    def short_norm(self, name: str, short: jax.Array) -> jax.Array:
        return self.norm(name, short, names=(None,))
