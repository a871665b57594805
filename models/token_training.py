"""Training of language models: random tokens, and cross-entropy in float32."""

from __future__ import annotations

from typing import Any

import jax
import optax
from flax import linen as nn
from flax.training.train_state import TrainState
from jax import numpy as jnp

from inspector.model import Batch, Model
from inspector.model.built_in.training import watch_gradients


def next_token_model(
    module: nn.Module,
    optimizer: optax.GradientTransformation,
    *,
    shape: tuple[int, int],
    vocab: int,
) -> Model:
    """Train `module` from tokens of `shape` (batch, seq) to logits (batch, seq, vocab) of the next token.

    Losses that layers sow into the collection `losses` are added to the cross-entropy.
    """

    def init(key: jax.Array, batch: Batch) -> TrainState:
        params = module.init(key, batch["tokens"])["params"]
        return TrainState.create(apply_fn=module.apply, params=params, tx=optimizer)

    def step(state: TrainState, batch: Batch) -> tuple[TrainState, jax.Array]:
        def loss_of(params: Any) -> jax.Array:
            logits, sown = module.apply({"params": params}, batch["tokens"], mutable=["losses"])
            extra = sum(jnp.sum(loss) for loss in jax.tree.leaves(sown))
            return cross_entropy(logits, batch["targets"]) + extra

        value, gradients = jax.value_and_grad(loss_of)(state.params)
        watch_gradients(gradients)
        return state.apply_gradients(grads=gradients), value

    def apply(state: TrainState, batch: Batch) -> jax.Array:
        return module.apply({"params": state.params}, batch["tokens"])

    def batch(key: jax.Array) -> Batch:
        rows, seq = shape
        tokens = jax.random.randint(key, (rows, seq + 1), 0, vocab, jnp.int32)
        return {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}

    axes = {"tokens": ("batch", "seq"), "targets": ("batch", "seq")}
    return Model(
        init=init,
        step=step,
        batch=batch,
        apply=apply,
        batch_axes=axes,
        output_axes=("batch", "seq", "vocab"),
    )


def cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """Return the mean of −log softmax(logits)[target]: logits (batch, seq, vocab), targets (batch, seq)."""
    logits = logits.astype(jnp.float32)
    # A sum over a mask, because a gather would all-gather a sharded vocabulary.
    is_target = jnp.arange(logits.shape[-1]) == targets[..., None]
    of_target = jnp.sum(jnp.where(is_target, logits, 0.0), axis=-1)
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - of_target)
