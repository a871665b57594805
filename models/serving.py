"""Inference of language models: a prefill and a decode step with caches, or one forward pass."""

from typing import Any

import jax
from flax import linen as nn
from jax import numpy as jnp

from inspector.model import Batch, Model


def served_model(
    prefill: nn.Module, decode: nn.Module, *, prompts: tuple[int, int], batch: int, vocab: int
) -> Model:
    """Return the Model of two programs with the same parameters.

    * `prefill` reads `prompts` (batch, seq). It returns the token after each, and their keys and values.
    * `decode` reads one token of each of `batch` sequences, and the caches. It returns the next tokens.

    They are separate: the keys and values of a prefill are not copied into the caches.
    """

    def init(key: jax.Array, inputs: Batch) -> Any:
        state = decode.init(key, inputs["token"][:, None])  # which reads one token
        return {**state, "cache": jax.tree.map(jnp.zeros_like, state["cache"])}

    def run_prefill(state: Any, inputs: Batch) -> Any:
        logits, kept = prefill.apply({"params": state["params"]}, inputs["prompt"], mutable=["cache"])
        return _likeliest(logits), kept["cache"]

    def run_decode(state: Any, inputs: Batch) -> Any:
        logits, changed = decode.apply(state, inputs["token"][:, None], mutable=["cache"])
        return {**state, "cache": changed["cache"]}, _likeliest(logits)

    def inputs(key: jax.Array) -> Batch:
        return {
            "prompt": jax.random.randint(key, prompts, 0, vocab, jnp.int32),
            "token": jax.random.randint(key, (batch,), 0, vocab, jnp.int32),
        }

    return Model(
        init=init,
        batch=inputs,
        batch_axes={"prompt": ("batch", "seq"), "token": ("batch",)},
        programs={"decode": run_decode, "prefill": run_prefill},
        donates=("decode",),
    )


def inference_model(module: nn.Module, *, shape: tuple[int, int], vocab: int) -> Model:
    """Return the Model of one forward pass over tokens of `shape`, for weights that cannot be trained."""

    def init(key: jax.Array, inputs: Batch) -> Any:
        return {"params": module.init(key, inputs["tokens"])["params"]}

    def apply(state: Any, inputs: Batch) -> jax.Array:
        output: Any = module.apply(state, inputs["tokens"])
        return output

    def inputs(key: jax.Array) -> Batch:
        return {"tokens": jax.random.randint(key, shape, 0, vocab, jnp.int32)}

    return Model(
        init=init,
        apply=apply,
        batch=inputs,
        batch_axes={"tokens": ("batch", "seq")},
        output_axes=("batch", "seq", "vocab"),
    )


def _likeliest(logits: jax.Array) -> jax.Array:
    """Return the likeliest token of logits (batch, 1, vocab)."""
    return jnp.argmax(logits[:, -1], axis=-1).astype(jnp.int32)
