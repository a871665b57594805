"""The base class of transformer layers: sizes, and weights and activations with logical axes."""

from __future__ import annotations

from dataclasses import dataclass

import jax
from flax import linen as nn
from jax import numpy as jnp

from inspector.model.built_in.explicit import has_explicit_axes, out_sharding, partitioned, resharded
from inspector.model.built_in.quantized import quantized_product
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
      attention: `flash` for a kernel where the devices have one, or `plain`.
      parallel: whether the MLP reads what attention reads, instead of the sum after it.
      q_rank, kv_rank: widths of the short vectors of latent attention; 0 for none.
      rotary_dim: rotated elements of its queries and keys.
      dense_layers, dense_mlp: first layers of a mixture of experts that have one MLP, and its width.
      quantization: the format of the operands of products with the weights of a block, a key of
        `quantized.FORMATS`, or `none`.
      window: tokens that a query of a layer with a sliding window sees, itself included; 0 for all.
      global_every: with a window, every so many layers one sees all tokens; 0 if none does.
      positions: how attention knows the order of tokens, one of `catalogue.POSITIONS`.
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
    ) -> jax.Array:
        """Return a parameter with variance 1 / `fan_in`, which keeps the variance of a product.

        On explicit axes, the layer uses it with the sharding of the names `used`.
        """
        init = partitioned(nn.initializers.normal(fan_in**-0.5), names, used=used)
        weight = self.param(name, init, shape, self.config.weight_dtype)
        return weight.astype(self.config.dtype)

    def product(
        self, subscripts: str, x: jax.Array, weight: jax.Array, names: tuple[str | None, ...]
    ) -> jax.Array:
        """Return `jnp.einsum` of x and a weight, of quantized operands if the layout says so.

        names: the logical axes of the result.
        """
        if self.config.quantization == "none":
            return jnp.einsum(subscripts, x, weight, out_sharding=out_sharding(names))
        return quantized_product(subscripts, self.config.quantization, out_sharding(names), x, weight)

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
        if name in self.config.unconstrained:
            watch("/".join(("activation", *self.path, name)), value)
            return value
        if has_explicit_axes():
            value = resharded(value, names)
        else:
            value = nn.with_logical_constraint(value, names)
        watch("/".join(("activation", *self.path, name)), value, names)
        return value
