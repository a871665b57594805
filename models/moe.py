"""The transformer with a mixture of experts in each block, like Mixtral.

A router sends each token to a few experts, each of them a gated MLP. Tokens are dispatched as in GShard
(arXiv:2006.16668): each sequence has a buffer of fixed capacity at every expert, and products with a mask
move tokens into it and back. All shapes are static and every step is an einsum, so rules alone decide the
sharding. If `expert` and `batch` have different mesh axes, an all-to-all changes the buffers from sharded by
sequence to sharded by expert. The masks cost 2 · experts · capacity · embed products for each token; they
grow with seq.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
from flax import linen as nn
from jax import numpy as jnp

from inspector.core.errors import InvalidInput
from inspector.model import Model
from inspector.model.built_in.explicit import out_sharding
from inspector.model.built_in.layer import Layer
from inspector.model.built_in.transformer import transformer

# Weight of the loss that keeps experts equally busy (Switch Transformer, arXiv:2101.03961).
BALANCE_WEIGHT = 0.01


class MixtureOfExperts(Layer):
    """x (batch, seq, embed) → the weighted sum of the outputs of each token's experts, same shape.

    A token gets nothing from an expert whose buffer is full.
    """

    experts: int = 8
    experts_per_token: int = 2
    capacity_factor: float = 1.25

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        c, experts = self.config, self.experts
        # Every device needs the scores of all experts, so the router's columns are replicated.
        router = self.weight("router", (c.embed, experts), ("embed", None), fan_in=c.embed)
        w_in, w_out = (experts, c.embed, c.mlp), (experts, c.mlp, c.embed)
        gate = self.weight("gate", w_in, ("expert", "embed", "mlp"), fan_in=c.embed)
        up = self.weight("up", w_in, ("expert", "embed", "mlp"), fan_in=c.embed)
        down = self.weight("down", w_out, ("expert", "mlp", "embed"), fan_in=c.mlp)

        logits = jnp.einsum(
            "bsm,me->bse",
            x,
            router,
            preferred_element_type=jnp.float32,
            out_sharding=out_sharding(("batch", "seq", None)),
        )
        places = capacity(x.shape[1], experts, self.experts_per_token, self.capacity_factor)
        combine, balance = route(jax.nn.softmax(logits), self.experts_per_token, places)
        self.sow("losses", "balance", BALANCE_WEIGHT * balance)
        combine = combine.astype(c.dtype)
        combine = self.constrained("combine", combine, ("batch", "seq", None, None))
        dispatch = (combine > 0).astype(c.dtype)

        # Two constraints, first by sequence and then by expert, make an all-to-all. With only the second one
        # the compiler would all-gather x.
        by_sequence, by_expert = (None, "batch", None, "embed"), ("expert", "batch", None, "embed")
        by_column = ("expert", "batch", None, "mlp")
        sent = jnp.einsum("bsec,bsm->ebcm", dispatch, x, out_sharding=out_sharding(by_sequence))
        sent = self.constrained("sent", sent, by_sequence)
        buffers = self.constrained("buffers", sent, by_expert)
        hidden = nn.silu(self.product("ebcm,emh->ebch", buffers, gate, by_column))
        hidden = hidden * self.product("ebcm,emh->ebch", buffers, up, by_column)
        hidden = self.constrained("hidden", hidden, by_column)
        returned = self.product("ebch,ehm->ebcm", hidden, down, by_expert)
        returned = self.constrained("returned", returned, by_expert)
        returned = self.constrained("received", returned, by_sequence)
        by_token = out_sharding(("batch", "seq", "embed"))
        return jnp.einsum("bsec,ebcm->bsm", combine, returned, out_sharding=by_token)


def capacity(seq: int, experts: int, experts_per_token: int, factor: float) -> int:
    """Return the places of one sequence at one expert: `factor` times its equal share, at most `seq`."""
    return min(seq, math.ceil(seq * experts_per_token / experts * factor))


def route(scores: jax.Array, experts_per_token: int, places: int) -> tuple[jax.Array, jax.Array]:
    """Assign tokens to places of experts. Return (combine, balance).

    scores: (batch, seq, expert), which sum to one over experts.
    combine: (batch, seq, expert, place), the weight of an expert's output for a token. The weights of a token
      sum to one unless a buffer was full.
    balance: experts · Σ share of first choices · mean score; 1 if all experts are equally busy.
    """
    batch, seq, experts = scores.shape
    # Sorted, because for `top_k` the compiler all-gathers the whole batch.
    ranking = jnp.argsort(jax.lax.stop_gradient(scores), axis=-1, descending=True)
    chosen = ranking[..., :experts_per_token]
    is_chosen = jax.nn.one_hot(chosen, experts, dtype=jnp.int32)  # (batch, seq, choice, expert)
    weights = jnp.sum(scores[:, :, None] * is_chosen, axis=-1)
    weights = weights / weights.sum(axis=-1, keepdims=True)

    # First choices come before second ones, and earlier tokens before later ones.
    in_order = is_chosen.swapaxes(1, 2).reshape(batch, -1, experts)
    before = jnp.cumsum(in_order, axis=1) - in_order
    before = before.reshape(batch, experts_per_token, seq, experts).swapaxes(1, 2)
    place = jnp.sum(before * is_chosen, axis=-1)  # (batch, seq, choice)
    at_place = jax.nn.one_hot(place, places)  # zero beyond the last place
    combine = jnp.einsum("bsk,bske,bskc->bsec", weights, is_chosen.astype(scores.dtype), at_place)

    first = is_chosen[:, :, 0].mean(axis=(0, 1), dtype=scores.dtype)
    return combine, experts * jnp.sum(first * scores.mean(axis=(0, 1)))


def mixture_of_experts(
    *,
    experts: int = 8,
    experts_per_token: int = 2,
    capacity_factor: float = 1.25,
    **sizes: Any,
) -> Model:
    """Build the transformer of `sizes` with experts. Trace it under a mesh and rules.

    Raises:
      InvalidInput: the sizes contradict each other.
    """
    if experts_per_token > experts:
        raise InvalidInput(
            f"experts_per_token is {experts_per_token}, but must be at most experts, which is {experts}"
        )
    layer = functools.partial(
        MixtureOfExperts,
        experts=experts,
        experts_per_token=experts_per_token,
        capacity_factor=capacity_factor,
    )
    return transformer(**sizes, feed_forward=layer)
