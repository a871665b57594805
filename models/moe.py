"""The transformer with a mixture of experts in place of each MLP, of the kind of Mixtral.

A router sends each token to a few experts, each of them a gated MLP. Tokens are handed out as in GShard
(arXiv:2006.16668): each sequence has a buffer of fixed capacity at every expert, and products with a mask
move tokens into it and back. Every shape is static and every step is an einsum, so that rules alone decide:
where `expert` and `batch` have mesh axes of their own the buffers change from being split by sequence to
being split by expert in an all-to-all. The price is 2 · experts · capacity · embed products for each token,
which grow with seq; a sort and a ragged product save them where there is a kernel for these.
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
from inspector.models import transformer
from inspector.models.layer import Layer

# Weight of the loss that keeps experts equally busy (Switch Transformer, arXiv:2101.03961).
BALANCE_WEIGHT = 0.01


class MixtureOfExperts(Layer):
    """x (batch, seq, embed) → the weighted sum of what each token's chosen experts make of it, same shape.

    A token that finds an expert's buffer full gets nothing from that expert.
    """

    experts: int = 8
    experts_per_token: int = 2
    capacity_factor: float = 1.25

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        c, experts = self.config, self.experts
        # Every device needs the scores of all experts, so that the router's columns have no name.
        router = self.weight("router", (c.embed, experts), ("embed", None), fan_in=c.embed)
        w_in, w_out = (experts, c.embed, c.mlp), (experts, c.mlp, c.embed)
        gate = self.weight("gate", w_in, ("expert", "embed", "mlp"), fan_in=c.embed)
        up = self.weight("up", w_in, ("expert", "embed", "mlp"), fan_in=c.embed)
        down = self.weight("down", w_out, ("expert", "mlp", "embed"), fan_in=c.mlp)

        logits = jnp.einsum("bsm,me->bse", x, router, preferred_element_type=jnp.float32)
        places = capacity(x.shape[1], experts, self.experts_per_token, self.capacity_factor)
        combine, balance = handed_out(jax.nn.softmax(logits), self.experts_per_token, places)
        self.sow("losses", "balance", BALANCE_WEIGHT * balance)
        combine = combine.astype(c.dtype)
        combine = self.constrained("combine", combine, ("batch", "seq", None, None))
        dispatch = (combine > 0).astype(c.dtype)

        # Two constraints in a row, first by sequence and then by expert, are what makes the all-to-all: with
        # only the second the compiler would gather x and fill each expert's buffers where they are needed.
        sent = jnp.einsum("bsec,bsm->ebcm", dispatch, x)
        sent = self.constrained("sent", sent, (None, "batch", None, "embed"))
        buffers = self.constrained("buffers", sent, ("expert", "batch", None, "embed"))
        hidden = nn.silu(jnp.einsum("ebcm,emh->ebch", buffers, gate))
        hidden = hidden * jnp.einsum("ebcm,emh->ebch", buffers, up)
        hidden = self.constrained("hidden", hidden, ("expert", "batch", None, "mlp"))
        returned = jnp.einsum("ebch,ehm->ebcm", hidden, down)
        returned = self.constrained("returned", returned, ("expert", "batch", None, "embed"))
        returned = self.constrained("received", returned, (None, "batch", None, "embed"))
        return jnp.einsum("bsec,ebcm->bsm", combine, returned)


def capacity(seq: int, experts: int, experts_per_token: int, factor: float) -> int:
    """Places of one sequence at one expert: `factor` times its equal share, at most all its tokens."""
    return min(seq, math.ceil(seq * experts_per_token / experts * factor))


def handed_out(
    scores: jax.Array, experts_per_token: int, places: int
) -> tuple[jax.Array, jax.Array]:
    """Which token goes to which place of which expert, and how unequally busy the experts are.

    scores: (batch, seq, expert), which sum to one over experts.
    combine: (batch, seq, expert, place), the weight with which a token takes what comes back from there; the
      weights of a token's chosen experts sum to one unless a buffer was full.
    balance: experts · Σ share of first choices · mean score; 1 where experts are equally busy.
    """
    batch, seq, experts = scores.shape
    # Sorted and not `top_k`, before which the compiler gathers the whole batch on every device.
    chosen = jnp.argsort(scores, axis=-1, descending=True)[..., :experts_per_token]
    is_chosen = jax.nn.one_hot(chosen, experts, dtype=jnp.int32)  # (batch, seq, choice, expert)
    weights = jnp.sum(scores[:, :, None] * is_chosen, axis=-1)
    weights = weights / weights.sum(axis=-1, keepdims=True)

    # First choices are served before second ones, and earlier tokens before later ones.
    in_order = is_chosen.swapaxes(1, 2).reshape(batch, -1, experts)
    before = jnp.cumsum(in_order, axis=1) - in_order
    before = before.reshape(batch, experts_per_token, seq, experts).swapaxes(1, 2)
    place = jnp.sum(before * is_chosen, axis=-1)  # (batch, seq, choice)
    at_place = jax.nn.one_hot(place, places)  # all zero beyond the last place
    combine = jnp.einsum("bsk,bske,bskc->bsec", weights, is_chosen.astype(scores.dtype), at_place)

    first = is_chosen[:, :, 0].mean(axis=(0, 1), dtype=scores.dtype)
    return combine, experts * jnp.sum(first * scores.mean(axis=(0, 1)))


def build(
    *,
    experts: int = 8,
    experts_per_token: int = 2,
    capacity_factor: float = 1.25,
    **sizes: Any,
) -> Model:
    """The transformer of `sizes` with experts of the MLP's size; must be traced under a mesh and rules.

    Raises:
      InvalidInput: the sizes do not go together.
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
    return transformer.build(**sizes, feed_forward=layer)
