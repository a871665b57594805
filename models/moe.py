"""The transformer with a mixture of experts in each block, like Mixtral.

A router sends each token to a few experts, each of them a gated MLP. With the routing `dropless`, an expert
gets all tokens that chose it (`dropless`). Otherwise each sequence has a buffer of fixed capacity at every
expert. Tokens move into it and back in one of two ways:

* `masks`, as in GShard (arXiv:2006.16668): products with a mask. Every step is an einsum, so rules alone
  decide the sharding. They cost 2 · experts · capacity · embed products for each token, which grow with seq.
* `sorted`: gathers of the tokens in the order of their experts, without products. With a capacity factor of
  1, the experts multiply as many rows as those of a dropless model whose experts are equally busy.

All shapes are static. If `expert` and `batch` have different mesh axes, an all-to-all changes the buffers
from sharded by sequence to sharded by expert.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
from flax import linen as nn
from jax import numpy as jnp

from inspector.model import Model
from inspector.model.built_in.dropless import grouped_experts
from inspector.model.built_in.explicit import out_sharding
from inspector.model.built_in.feed_forward import MLP
from inspector.model.built_in.layer import Layer
from inspector.model.built_in.quantized import STORED
from inspector.model.built_in.transformer import transformer
from inspector.text.errors import InvalidInput

# Weight of the loss that keeps experts equally busy (Switch Transformer, arXiv:2101.03961).
BALANCE_WEIGHT = 0.01


class MixtureOfExperts(Layer):
    """x (batch, seq, embed) → the weighted sum of the outputs of each token's experts, same shape.

    A token gets nothing from an expert whose buffer is full. With `shared_mlp`, all tokens use one more
    expert of that width (DeepSeekMoE, arXiv:2401.06066).
    """

    experts: int = 8
    experts_per_token: int = 2
    capacity_factor: float = 1.25
    routing: str = "masks"
    buffer_factor: float = 0.0
    imbalance: float = 1.0
    shared_mlp: int = 0

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        c, experts = self.config, self.experts
        # Every device needs the scores of all experts, so the router's columns are replicated.
        router = self.weight("router", (c.embed, experts), ("embed", None), fan_in=c.embed)
        logits = jnp.einsum(
            "bsm,me->bse",
            x,
            router,
            preferred_element_type=jnp.float32,
            out_sharding=self.sharding(("batch", "seq", None)),
        )
        choices, balance = chosen(jax.nn.softmax(logits), self.experts_per_token)
        self.sow("losses", "balance", BALANCE_WEIGHT * balance)
        if self.is_mutable_collection("intermediates"):
            chose = jax.nn.one_hot(choices.experts, experts, dtype=jnp.int32)
            self.sow("intermediates", "tokens", jnp.sum(chose, axis=(1, 2)))
        output = self.routed(x, choices)
        if self.shared_mlp:
            shared = dataclasses.replace(c, mlp=self.shared_mlp)
            output = output + MLP(shared, name="shared")(x)
        return output

    def routed(self, x: jax.Array, choices: Choices) -> jax.Array:
        """Return the weighted sum of the outputs of each token's experts, by buffers."""
        places = capacity(x.shape[1], self.experts, self.experts_per_token, self.capacity_factor)
        by_masks = self.routing == "masks"
        return (self.routed_by_masks if by_masks else self.routed_by_sorting)(x, choices, places)

    def matrices(self) -> tuple[Any, Any, Any]:
        """Return the matrices gate and up, and down, of all experts."""
        c, experts = self.config, self.experts
        w_in, w_out = (experts, c.embed, c.mlp), (experts, c.mlp, c.embed)
        gate = self.weight("gate", w_in, ("expert", "embed", "mlp"), fan_in=c.embed, contracted=(1,))
        up = self.weight("up", w_in, ("expert", "embed", "mlp"), fan_in=c.embed, contracted=(1,))
        down = self.weight("down", w_out, ("expert", "mlp", "embed"), fan_in=c.mlp, contracted=(1,))
        return gate, up, down

    def routed_by_masks(self, x: jax.Array, choices: Choices, places: int) -> jax.Array:
        """Return the weighted sum of the outputs of experts, with products that move tokens (GShard)."""
        combine = combining(choices, self.experts, places).astype(self.config.dtype)
        combine = self.constrained("combine", combine, ("batch", "seq", None, None))
        dispatch = (combine > 0).astype(self.config.dtype)
        by_sequence = out_sharding((None, "batch", None, "embed"))
        sent = jnp.einsum("bsec,bsm->ebcm", dispatch, x, out_sharding=by_sequence)
        returned = self.experts_of(sent)
        by_token = self.sharding(("batch", "seq", "embed"))
        return jnp.einsum("bsec,ebcm->bsm", combine, returned, out_sharding=by_token)

    def routed_by_sorting(self, x: jax.Array, choices: Choices, places: int) -> jax.Array:
        """Return the same, with gathers of the tokens of each sequence in the order of their experts."""
        token, place, is_used = sorting(choices, self.experts, places)
        sent = rows(x, token) * is_used[..., None].astype(x.dtype)
        shape = (x.shape[0], self.experts, places, x.shape[-1])
        returned = self.experts_of(sent.reshape(shape).swapaxes(0, 1)).swapaxes(0, 1)
        # One more row, of zeros, for choices without a place.
        returned = jnp.pad(returned.reshape(sent.shape), ((0, 0), (0, 1), (0, 0)))
        of_choices = rows(returned, place).reshape(*choices.weights.shape, -1)
        output = jnp.sum(choices.weights[..., None].astype(x.dtype) * of_choices, axis=2)
        return self.constrained("combine", output, ("batch", "seq", "embed"))

    def experts_of(self, sent: jax.Array) -> jax.Array:
        """Return the outputs of the experts for buffers (expert, batch, place, embed), same shape."""
        gate, up, down = self.matrices()
        # Two constraints, first by sequence and then by expert, make an all-to-all. With only the second one
        # the compiler would all-gather x.
        by_sequence, by_expert = (None, "batch", None, "embed"), ("expert", "batch", None, "embed")
        by_column = ("expert", "batch", None, "mlp")
        sent = self.constrained("sent", sent, by_sequence)
        buffers = self.constrained("buffers", sent, by_expert)
        hidden = nn.silu(self.product("ebcm,emh->ebch", buffers, gate, by_column))
        hidden = hidden * self.product("ebcm,emh->ebch", buffers, up, by_column)
        hidden = self.constrained("hidden", hidden, by_column)
        returned = self.product("ebch,ehm->ebcm", hidden, down, by_expert)
        returned = self.constrained("returned", returned, by_expert)
        return self.constrained("received", returned, by_sequence)


class DroplessExperts(MixtureOfExperts):
    """The same without buffers, which drops no token."""

    def routed(self, x: jax.Array, choices: Choices) -> jax.Array:
        """Return the weighted sum of the outputs of each token's experts, by groups of rows (`dropless`)."""
        names = self.named(("batch", "seq", "embed"))
        output = grouped_experts(x, *choices, self.matrices(), names, self.buffer_factor, self.imbalance)
        return self.constrained("combine", output, ("batch", "seq", "embed"))


class Choices(NamedTuple):
    """The experts of each token and their weights, which sum to one: arrays (batch, seq, choice)."""

    experts: jax.Array
    weights: jax.Array


def capacity(seq: int, experts: int, experts_per_token: int, factor: float) -> int:
    """Return the places of one sequence at one expert: `factor` times its equal share, at most `seq`."""
    return min(seq, math.ceil(seq * experts_per_token / experts * factor))


def chosen(scores: jax.Array, experts_per_token: int) -> tuple[Choices, jax.Array]:
    """Return the experts of each token with the highest scores, and how unequally busy the experts are.

    scores: (batch, seq, expert), which sum to one over experts.
    The second value is experts · Σ share of first choices · mean score; 1 if all experts are equally busy.
    """
    experts = scores.shape[-1]
    # Sorted, because for `top_k` the compiler all-gathers the whole batch.
    ranking = jnp.argsort(jax.lax.stop_gradient(scores), axis=-1, descending=True)
    first_ones = ranking[..., :experts_per_token]
    is_chosen = jax.nn.one_hot(first_ones, experts, dtype=scores.dtype)  # (batch, seq, choice, expert)
    weights = jnp.sum(scores[:, :, None] * is_chosen, axis=-1)
    weights = weights / weights.sum(axis=-1, keepdims=True)
    first = is_chosen[:, :, 0].mean(axis=(0, 1))
    return Choices(first_ones, weights), experts * jnp.sum(first * scores.mean(axis=(0, 1)))


def combining(choices: Choices, experts: int, places: int) -> jax.Array:
    """Return (batch, seq, expert, place): the weight of the output at a place of an expert for a token.

    The weights of a token sum to one unless a buffer was full.
    """
    batch, seq, experts_per_token = choices.experts.shape
    is_chosen = jax.nn.one_hot(choices.experts, experts, dtype=jnp.int32)  # (batch, seq, choice, expert)
    # First choices come before second ones, and earlier tokens before later ones.
    in_order = is_chosen.swapaxes(1, 2).reshape(batch, -1, experts)
    before = jnp.cumsum(in_order, axis=1) - in_order
    before = before.reshape(batch, experts_per_token, seq, experts).swapaxes(1, 2)
    place = jnp.sum(before * is_chosen, axis=-1)  # (batch, seq, choice)
    at_place = jax.nn.one_hot(place, places)  # zero beyond the last place
    weights = choices.weights
    return jnp.einsum("bsk,bske,bskc->bsec", weights, is_chosen.astype(weights.dtype), at_place)


def sorting(choices: Choices, experts: int, places: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the tokens at the places of all experts, and the places of the choices of all tokens.

    The places of an expert have the first tokens that chose it, in their order. For each sequence:

    * the token at each place, and whether there is one: (batch, expert · place)
    * the place of each choice: (batch, seq · choice), experts · places for a choice without a place
    """
    batch, seq, experts_per_token = choices.experts.shape
    expert = choices.experts.reshape(batch, -1)
    order = jnp.argsort(expert, axis=-1, stable=True)
    counts = jnp.sum(jax.nn.one_hot(expert, experts, dtype=jnp.int32), axis=1)  # (batch, expert)
    starts = jnp.cumsum(counts, axis=-1) - counts
    at = starts[..., None] + jnp.arange(places)  # (batch, expert, place), numbers of sorted choices
    is_used = (jnp.arange(places) < counts[..., None]).reshape(batch, -1)
    sorted_at = jnp.minimum(at.reshape(batch, -1), seq * experts_per_token - 1)
    token = jnp.take_along_axis(order, sorted_at, axis=-1) // experts_per_token
    number = jnp.argsort(order, axis=-1) - jnp.take_along_axis(starts, expert, axis=-1)
    place = jnp.where(number < places, expert * places + number, experts * places)
    return token, place, is_used


def rows(x: jax.Array, numbers: jax.Array) -> jax.Array:
    """Return the rows `numbers` (batch, row) of x (batch, row, embed)."""
    return jax.vmap(lambda of_one, at: of_one.at[at].get(mode="promise_in_bounds"))(x, numbers)


def mixture_of_experts(
    *,
    experts: int = 8,
    experts_per_token: int = 2,
    capacity_factor: float = 1.25,
    routing: str = "masks",
    buffer_factor: float = 0.0,
    imbalance: float = 1.0,
    shared_mlp: int = 0,
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
    if 0 < buffer_factor < imbalance:
        raise InvalidInput(
            f"buffer_factor is {buffer_factor}, but must be 0 or at least imbalance, which is {imbalance}"
        )
    for name, allowed in (("quantization", "none"), ("weight_dtype", "a type of activations")):
        value = sizes.get(name, "none")
        if routing == "dropless" and value in STORED:
            raise InvalidInput(
                f"{name} is {value}, but must be {allowed} with dropless routing: JAX does not quantize its "
                "products"
            )
    kind = MixtureOfExperts
    if routing == "dropless":
        kind = DroplessExperts
    layer = functools.partial(
        kind,
        experts=experts,
        experts_per_token=experts_per_token,
        capacity_factor=capacity_factor,
        routing=routing,
        buffer_factor=buffer_factor,
        imbalance=imbalance,
        shared_mlp=shared_mlp,
    )
    return transformer(**sizes, feed_forward=layer)
