"""The base class of transformer layers: sizes, and weights and activations with logical axes."""

from dataclasses import dataclass
from typing import Any

import jax
from flax import linen as nn
from jax import numpy as jnp
from jax.sharding import PartitionSpec

from inspector.model.built_in.explicit import has_explicit_axes, out_sharding, partitioned, resharded
from inspector.model.built_in.quantized import (
    STORED,
    Stored,
    quantized_cache,
    quantized_product,
    stored_product,
    stored_scale,
    stored_values,
)
from inspector.model.built_in.remat_names import QUANTIZED
from inspector.model.built_in.watching import watch

NORM_EPSILON = 1e-5  # as in Llama and Mixtral


@dataclass(frozen=True)
class Config:
    """Sizes of a transformer, named as its logical axes, and its options.

    Attributes:
      unconstrained: the activations whose sharding is left to the compiler.
      dtype: of activations and matrix products.
      weight_dtype: of parameters, which are cast to `dtype` before use.
      remat: what is kept for the backward pass, a value of `remat_names`.
      activation: the name of a function of `jax.nn`.
      gated: whether an MLP multiplies the activation by a second product.
      attention: `flash` for a kernel where the devices have one, `ring` for blocks of keys that devices pass
        around, or `plain`.
      parallel: whether the MLP reads what attention reads, instead of the sum after it.
      q_rank, kv_rank: widths of the short vectors of latent attention; 0 for none.
      rotary_dim: rotated elements of its queries and keys.
      dense_layers, dense_mlp: first layers of a mixture of experts that have one MLP, and its width.
      quantization: the format of the operands of products with the weights of a block, a key of
        `quantized.FORMATS`, or `none`.
      window: tokens that a query of a layer with a sliding window sees, itself included; 0 for all.
      global_every: with a window, every so many layers one sees all tokens; 0 if none does.
      stages, microbatches: those of a pipeline; a single stage is none.
      positions: how attention knows the order of tokens, one of `catalogue.POSITIONS`.
      stored: the type in which the weights of a block are held, a key of `quantized.STORED`; `same` for
        `weight_dtype`.
      cache: positions of the caches of keys and values; 0 without caches.
      cache_dtype: the type of the caches, a key of `quantized.STORED`; `same` for `dtype`.
      program: `prefill` to return the keys and values of prompts, `decode` to read one token for each
        sequence and the caches, or `forward`.
    """

    layers: int
    embed: int
    mlp: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    scan: bool
    remat: str
    tied: bool
    dtype: jnp.dtype
    weight_dtype: jnp.dtype
    unconstrained: frozenset[str]
    activation: str = "silu"
    gated: bool = True
    positions: str = "rotary"
    attention: str = "plain"
    parallel: bool = False
    window: int = 0
    global_every: int = 0
    quantization: str = "none"
    q_rank: int = 0
    kv_rank: int = 0
    rotary_dim: int = 64
    dense_layers: int = 0
    dense_mlp: int = 0
    stored: str = "same"
    cache: int = 0
    cache_dtype: str = "same"
    program: str = "forward"
    stages: int = 1
    microbatches: int = 4


class Layer(nn.Module):
    """A transformer layer that names the logical axes of its weights and activations."""

    config: Config

    def weight(
        self,
        name: str,
        shape: tuple[int, ...],
        names: tuple[str | None, ...],
        fan_in: int,
        used: tuple[str | None, ...] | None = None,
        contracted: tuple[int, ...] = (),
    ) -> Any:
        """Return a parameter with variance 1 / `fan_in`, which keeps the variance of a product.

        On explicit axes, the layer uses it with the sharding of the names `used`.

        contracted: the dimensions over which `product` sums. A weight that has them can be stored quantized.
        """
        c = self.config
        if c.stored != "same" and contracted:
            values_init = partitioned(stored_values(c.stored), names)
            values = self.param(name, values_init, shape, STORED[c.stored])
            of_scale = tuple(None if at in contracted else axis for at, axis in enumerate(names))
            scale_init = partitioned(stored_scale(c.stored, fan_in), of_scale)
            scale_shape = tuple(1 if at in contracted else size for at, size in enumerate(shape))
            return Stored(values, self.param(f"{name}_scale", scale_init, scale_shape, c.dtype))
        init = partitioned(nn.initializers.normal(fan_in**-0.5), names, used=used)
        weight = self.param(name, init, shape, c.weight_dtype)
        return weight.astype(c.dtype)

    def product(self, subscripts: str, x: jax.Array, weight: Any, names: tuple[str | None, ...]) -> jax.Array:
        """Return `jnp.einsum` of x and a weight, of quantized operands if the layout says so.

        names: the logical axes of the result.
        """
        quantization, sharding = self.config.quantization, self.sharding(names)
        if isinstance(weight, Stored):
            return stored_product(subscripts, quantization, sharding, x, weight)
        if quantization == "none":
            return jnp.einsum(subscripts, x, weight, out_sharding=sharding)
        keeps = QUANTIZED in self.config.remat
        return quantized_product(subscripts, quantization, sharding, keeps, x, weight)

    def sharding(self, names: tuple[str | None, ...]) -> PartitionSpec | None:
        """Return the argument `out_sharding` of an operation with a result of these names."""
        return out_sharding(self.named(names))

    def named(self, names: tuple[str | None, ...]) -> tuple[str | None, ...]:
        """Return the names of an activation, whose only token in a decode step is not sharded."""
        if self.config.program == "decode":
            return tuple(None if name == "seq" else name for name in names)
        return names

    def cached(self, name: str, new: jax.Array, first: jax.Array) -> jax.Array:
        """Write keys or values (batch, 1, kv_heads, head_dim) into a cache, and return all of it.

        The cache is (batch, kv_heads, seq, head_dim), the order in which matrix products read it.

        first: the position of the new ones.
        """
        c = self.config
        names = ("batch", "kv_heads", "seq", "head_dim")
        zeros = partitioned(lambda *arguments: jnp.zeros(*arguments), names)
        parts = self.in_cache(name, new)
        whole = []
        for label, part in parts.items():
            shape = (*part.shape[:2], c.cache, part.shape[3])
            cache = self.variable("cache", label, zeros, shape, part.dtype)
            cache.value = jax.lax.dynamic_update_slice(cache.value, part, (0, 0, first, 0))
            whole.append(cache.value)
        values, *scales = whole
        for scale in scales:
            values = values.astype(c.dtype) * scale
        return values.swapaxes(1, 2)

    def in_cache(self, name: str, new: jax.Array) -> dict[str, jax.Array]:
        """Return keys or values (batch, seq, kv_heads, head_dim) as a cache has them, with their scales."""
        dtype, by_head = self.config.cache_dtype, new.swapaxes(1, 2)
        if dtype == "same":
            return {name: by_head}
        values, scales = quantized_cache(by_head, dtype)
        return {name: values, f"{name}_scale": scales}

    def keep(self, name: str, new: jax.Array) -> None:
        """Return the keys or values of prompts (batch, seq, kv_heads, head_dim) in the collection `cache`."""
        for label, part in self.in_cache(name, new).items():
            self.sow("cache", label, part, reduce_fn=lambda _, last: last, init_fn=lambda: None)

    def position(self) -> jax.Array:
        """Return the position of the token of a decode step, and count it."""
        position = self.variable("cache", "position", lambda: jnp.zeros((), jnp.int32))
        now = position.value
        position.value = now + 1
        return now

    def norm(self, name: str, x: jax.Array, names: tuple[str | None] = ("embed",)) -> jax.Array:
        """Return the root mean square norm over the last dimension, computed in float32.

        names: the logical axis of the scale.
        """
        # On explicit axes, JAX multiplies by the scale only if it is gathered.
        scale_init = partitioned(nn.initializers.ones, names, used=(None,))
        dtypes = (self.config.dtype, self.config.weight_dtype)
        return nn.RMSNorm(NORM_EPSILON, *dtypes, scale_init=scale_init, name=name)(x)

    def constrained(self, name: str, value: jax.Array, names: tuple[str | None, ...]) -> jax.Array:
        """Return the value with its logical constraint, unless the layout leaves it to the compiler."""
        names = self.named(names)
        if name in self.config.unconstrained:
            watch("/".join(("activation", *self.path, name)), value)
            return value
        if has_explicit_axes():
            value = resharded(value, names)
        else:
            value = nn.with_logical_constraint(value, names)
        watch("/".join(("activation", *self.path, name)), value, names)
        return value
