"""Training of language models: random tokens, and cross-entropy in float32."""

from typing import Any

import jax
import optax
from flax import linen as nn
from jax import numpy as jnp

from inspector.model import Batch, Model
from inspector.model.built_in.accumulation import accumulated
from inspector.model.built_in.training import trained


def next_token_model(
    module: nn.Module,
    optimizer: optax.GradientTransformation,
    *,
    shape: tuple[int, int],
    vocab: int,
    accumulate: int,
    routed: bool = False,
) -> Model:
    """Train `module` from tokens of `shape` (batch, seq) to logits (batch, seq, vocab) of the next token.

    A step adds the gradients of `accumulate` microbatches. Losses that layers sow into the
    collection `losses` are added to the cross-entropy.

    routed: whether layers sow the tokens of each expert into the collection `intermediates`.
    """

    def loss_of(params: Any, batch: Batch) -> jax.Array:
        logits, sown = module.apply({"params": params}, batch["tokens"], mutable=["losses"])
        extra = sum(jnp.sum(loss) for loss in jax.tree.leaves(sown))
        return cross_entropy(logits, batch["targets"]) + extra

    def batch(key: jax.Array) -> Batch:
        rows, seq = shape
        tokens = jax.random.randint(key, (rows, seq + 1), 0, vocab, jnp.int32)
        return {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}

    def routing(state: Any, batch: Batch) -> jax.Array:
        """Return the tokens of each sequence that chose each expert: (layer, sequence, expert)."""
        _, sown = module.apply({"params": state.params}, batch["tokens"], mutable=["intermediates"])
        counts = jax.tree.leaves(sown)
        return jnp.concatenate([count.reshape(-1, *count.shape[-2:]) for count in counts])

    axes = {"tokens": ("batch", "seq"), "targets": ("batch", "seq")}
    output_axes = ("batch", "seq", "vocab")
    facts = {"batch_axes": axes, "output_axes": output_axes, "routing": routing if routed else None}
    gradients_of = accumulated(loss_of, accumulate, axes)
    return trained(module, optimizer, "tokens", gradients_of, batch=batch, **facts)


def cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """Return the mean of −log softmax(logits)[target]: logits (batch, seq, vocab), targets (batch, seq)."""
    logits = logits.astype(jnp.float32)
    # A sum over a mask, because a gather would all-gather a sharded vocabulary.
    is_target = jnp.arange(logits.shape[-1]) == targets[..., None]
    of_target = jnp.sum(jnp.where(is_target, logits, 0.0), axis=-1)
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - of_target)
