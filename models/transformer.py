"""A decoder-only transformer with logical axes, by default like Llama: RMSNorm before each layer, rotary
positions, grouped-query attention, and gated MLPs.

    tokens (batch, seq) → x (batch, seq, embed)
    → `layers` times: x + attention(norm(x)), then x + feed_forward(norm(x))
    → logits (batch, seq, vocab)

Rules map logical axes to mesh axes when the model is traced (`nn.logical_axis_rules`).
"""

import dataclasses
import functools
from collections.abc import Callable, Collection
from typing import Any

import jax
from flax import linen as nn
from jax import numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from inspector.model import Model
from inspector.model.built_in.attention import Attention
from inspector.model.built_in.explicit import has_explicit_axes
from inspector.model.built_in.feed_forward import MLP
from inspector.model.built_in.flash import LANES
from inspector.model.built_in.latent_attention import LatentAttention
from inspector.model.built_in.layer import Config, Layer
from inspector.model.built_in.pipeline import pipelined
from inspector.model.built_in.quantized import STORED
from inspector.model.built_in.remat import rematerialized
from inspector.model.built_in.serving import inference_model, served_model
from inspector.model.built_in.token_training import next_token_model
from inspector.model.built_in.training import optimizer_named
from inspector.text.errors import InvalidInput

# The layer after attention; called with the config and its name.
FeedForward = Callable[..., Layer]


class Block(Layer):
    """Attention and a feed-forward layer, each added to x. Returns (x, None) for scan.

    In a parallel block both read the same normalized x (GPT-J; Wang and Komatsuzaki 2021).
    """

    feed_forward: FeedForward = MLP
    window: int = 0

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, None]:
        x = checkpoint_name(x, "decoder_layer_input")
        normed = self.norm("attention_norm", x)
        attention = LatentAttention if self.config.kv_rank else Attention
        x = x + attention(self.config, self.window, name="attention")(normed)
        x = self.constrained("after_attention", x, ("batch", "seq", "embed"))
        if not self.config.parallel:
            normed = self.norm("norm", x)
        x = x + self.feed_forward(self.config, name="feed_forward")(normed)
        x = self.constrained("after_feed_forward", x, ("batch", "seq", "embed"))
        return x, None


def window_of(config: Config, number: int) -> int:
    """Return the window of a layer, from 0 on: of every `global_every` layers the last one has none."""
    is_global = config.global_every and (number + 1) % config.global_every == 0
    return 0 if is_global else config.window


class Period(Layer):
    """The `global_every` blocks that a scan repeats if only some of them have a window, like Gemma."""

    feed_forward: FeedForward = MLP
    block: type[Block] = Block

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, None]:
        for number in range(self.config.global_every):
            layer = self.block(
                self.config, self.feed_forward, window_of(self.config, number), name=f"block_{number}"
            )
            x, _ = layer(x)
        return x, None


def repeated(x: jax.Array, config: Config, feed_forward: FeedForward, name: str) -> jax.Array:
    """Return x (batch, seq, embed) after `layers` blocks, in a scan or one after the other."""
    block = Block if config.remat == "none" else rematerialized(Block, config.remat, config.scan)
    if not config.scan:
        for number in range(config.layers):
            x, _ = block(config, feed_forward, window_of(config, number), name=f"{name}_{number}")(x)
        return x
    # Layers of two kinds alternate inside of the scanned module.
    period = config.global_every if config.window else 0
    blocks = nn.scan(
        Period if period else block,
        length=config.layers // (period or 1),
        variable_axes={"params": 0, "losses": 0, "cache": 0, "intermediates": 0},
        split_rngs={"params": True},
        check_constancy_invariants=False,  # would trace the block a second time
        metadata_params={nn.PARTITION_NAME: "layers"},
    )
    x, _ = blocks(config, feed_forward, *((block,) if period else (config.window,)), name=f"{name}s")(x)
    return x


class Stage(Layer):
    """The blocks of one stage of a pipeline, one after the other."""

    feed_forward: FeedForward = MLP

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return repeated(x, self.config, self.feed_forward, "block")


class Transformer(Layer):
    """Tokens (batch, seq) → logits of the token after each (batch, seq, vocab)."""

    feed_forward: FeedForward = MLP

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        c = self.config
        # With variance 1/embed the logits of tied embeddings have variance 1.
        embedding = self.weight("embedding", (c.vocab, c.embed), ("vocab", "embed"), fan_in=c.embed)
        # Look up whole rows. If `embed` and `batch` share a mesh axis, the compiler would otherwise look up
        # parts of rows for the whole batch.
        table = self.constrained("table", embedding, ("vocab", None))
        if has_explicit_axes():
            x = table.at[tokens].get(out_sharding=self.sharding(("batch", "seq", "embed")))
        else:
            x = jnp.take(table, tokens, axis=0)
        if c.positions == "learned":
            # As GPT-2: one row for each position, added to the embedding of its token.
            shape = (c.cache or tokens.shape[1], c.embed)
            rows = self.weight("positions", shape, (None, "embed"), c.embed, used=(None, None))
            first = self.position() if c.program == "decode" else 0
            x = x + jax.lax.dynamic_slice_in_dim(rows, first, tokens.shape[1]) if c.cache else x + rows
        x = self.constrained("embedded", x, ("batch", "seq", "embed"))

        if c.dense_layers:
            dense = dataclasses.replace(c, layers=c.dense_layers, mlp=c.dense_mlp)
            x = repeated(x, dense, MLP, "dense_block")
        rest = dataclasses.replace(c, layers=c.layers - c.dense_layers)
        if c.stages == 1:
            x = repeated(x, rest, self.feed_forward, "block")
        else:
            stage = nn.vmap(
                Stage,
                variable_axes={"params": 0},
                split_rngs={"params": True},
                axis_size=c.stages,
                metadata_params={nn.PARTITION_NAME: "stages"},
            )
            of_one = dataclasses.replace(rest, layers=rest.layers // c.stages)
            stages = functools.partial(stage, of_one, self.feed_forward, name="stages")
            x = pipelined(x, stages, c.stages, c.microbatches)
        names: tuple[str | None, ...] = ("batch", "seq", "vocab")
        if c.program == "prefill":
            x, names = x[:, -1:], ("batch", None, "vocab")  # only the token after a prompt is needed
        x = self.norm("norm", x)
        by_token = self.sharding(names)
        if c.tied:
            logits = jnp.einsum("bsm,vm->bsv", x, embedding, out_sharding=by_token)
        else:
            output = self.weight("output", (c.embed, c.vocab), ("embed", "vocab"), fan_in=c.embed)
            logits = jnp.dot(x, output, out_sharding=by_token)
        return self.constrained("logits", logits, names)


def transformer(
    *,
    batch: int = 8,
    seq: int = 128,
    layers: int = 4,
    embed: int = 256,
    mlp: int = 512,
    heads: int = 8,
    kv_heads: int = 4,
    head_dim: int = 32,
    vocab: int = 1024,
    scan: bool = False,
    remat: str = "none",
    tied: bool = False,
    optimizer: str = "adam",
    learning_rate: float = 1e-3,
    dtype: str = "float32",
    unconstrained: Collection[str] = (),
    activation: str = "silu",
    gated: bool = True,
    positions: str = "rotary",
    attention: str = "plain",
    weight_dtype: str = "same",
    optimizer_dtype: str = "same",
    accumulate: int = 1,
    parallel: bool = False,
    window: int = 0,
    global_every: int = 0,
    quantization: str = "none",
    q_rank: int = 0,
    kv_rank: int = 0,
    rotary_dim: int = 64,
    dense_layers: int = 0,
    dense_mlp: int = 0,
    cache: int = 0,
    cache_dtype: str = "same",
    prefill_batch: int = 1,
    stages: int = 1,
    microbatches: int = 4,
    feed_forward: FeedForward = MLP,
) -> Model:
    """Build the model with its training, or with a cache its prefill and decode step.

    Trace it under a mesh and rules.

    Raises:
      InvalidInput: the sizes contradict each other.
    """
    if heads % kv_heads:
        raise InvalidInput(f"heads is {heads}, but must be a multiple of kv_heads, which is {kv_heads}")
    if kv_rank and kv_heads != heads:
        raise InvalidInput(
            f"kv_heads is {kv_heads}, but must be heads, which is {heads}, in latent attention"
        )
    if dense_layers >= layers:
        raise InvalidInput(f"dense_layers is {dense_layers}, but must be less than layers, which is {layers}")
    if layers % stages:
        raise InvalidInput(f"layers is {layers}, but must be a multiple of stages, which is {stages}")
    if stages > 1 and batch // accumulate % microbatches:
        raise InvalidInput(
            f"batch is {batch}, but must be a multiple of microbatches, which is {microbatches}"
            + (f", times accumulate, which is {accumulate}" if accumulate > 1 else "")
        )
    if stages > 1 and cache:
        raise InvalidInput(f"stages is {stages}, but must be 1 with a cache, which is {cache}")
    if stages > 1 and window and global_every and layers // stages % global_every:
        raise InvalidInput(
            f"layers is {layers}, but each of {stages} stages must have a multiple of global_every, which is "
            f"{global_every}"
        )
    if positions == "rotary" and head_dim % 2:
        raise InvalidInput(f"head_dim is {head_dim}, but must be even, because rotary positions rotate pairs")
    if kv_rank and rotary_dim % 2:
        raise InvalidInput(
            f"rotary_dim is {rotary_dim}, but must be even, because rotary positions rotate pairs"
        )
    if batch % accumulate:
        raise InvalidInput(f"batch is {batch}, but must be a multiple of accumulate, which is {accumulate}")
    if attention == "flash" and seq % LANES:
        raise InvalidInput(f"seq is {seq}, but must be a multiple of {LANES} for flash attention")
    if scan and window and global_every and layers % global_every:
        raise InvalidInput(
            f"layers is {layers}, but must be a multiple of global_every, which is {global_every}, in a scan"
        )
    if cache and kv_rank:
        raise InvalidInput(
            f"kv_rank is {kv_rank}, but must be 0 with a cache: latent attention has none here"
        )
    if cache and seq > cache:
        raise InvalidInput(f"seq is {seq}, but must be at most cache, which is {cache}")
    stored = weight_dtype if weight_dtype in STORED else "same"
    if (
        stored != "same"
        and quantization not in ("none", stored)
        and (stored, quantization) != ("int4", "int8")
    ):
        raise InvalidInput(
            f"quantization is {quantization}, but must be none or {stored} for weights of {stored}"
        )
    weights = dtype if weight_dtype in ("same", stored) else weight_dtype
    values: tuple[Any, ...] = (
        *(layers, embed, mlp, heads, kv_heads, head_dim, vocab, scan, remat, tied),
        *(jnp.dtype(dtype), jnp.dtype(weights), frozenset(unconstrained)),
        *(activation, gated, positions, attention, parallel, window, global_every),
        *(quantization, q_rank, kv_rank, rotary_dim, dense_layers, dense_mlp),
        *(stored, cache, cache_dtype),
    )
    config = dataclasses.replace(Config(*values), stages=stages, microbatches=microbatches)
    if cache:
        config = dataclasses.replace(config, remat="none")
        modules = (
            Transformer(dataclasses.replace(config, program=program), feed_forward)
            for program in ("prefill", "decode")
        )
        return served_model(*modules, prompts=(prefill_batch, seq), batch=batch, vocab=vocab)
    if stored != "same":
        return inference_model(Transformer(config, feed_forward), shape=(batch, seq), vocab=vocab)
    return next_token_model(
        Transformer(config, feed_forward),
        optimizer_named(optimizer, learning_rate, optimizer_dtype),
        shape=(batch, seq),
        vocab=vocab,
        accumulate=accumulate,
        routed=feed_forward is not MLP,
    )
