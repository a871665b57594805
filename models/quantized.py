"""Matrix products of quantized operands, as Transformer Engine, AQT and qwix train with them.

Each operand is divided by a scale, so that its largest element becomes the largest number of a small type.
The product is rescaled. Both gradients are products of such operands, too: float8_e4m3fn for operands and
float8_e5m2 for incoming gradients (Micikevicius et al. 2022, arXiv:2209.05433), or int8 for both.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
from jax import numpy as jnp

from inspector.model.built_in.explicit import has_explicit_axes

# By name: the type of operands, and that of incoming gradients.
FORMATS = {"fp8": (jnp.float8_e4m3fn, jnp.float8_e5m2), "int8": (jnp.int8, jnp.int8)}


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def quantized_product(
    subscripts: str, name: str, out_sharding: Any, x: jax.Array, weight: jax.Array
) -> jax.Array:
    """Return `jnp.einsum(subscripts, x, weight)` of operands in a format of `FORMATS`, with the type of x."""
    operand, _ = FORMATS[name]
    return _product(subscripts, _quantized(x, operand), _quantized(weight, operand), x.dtype, out_sharding)


def _forward(subscripts: str, name: str, out_sharding: Any, x: jax.Array, weight: jax.Array) -> Any:
    return quantized_product(subscripts, name, out_sharding, x, weight), (x, weight)


def _backward(subscripts: str, name: str, out_sharding: Any, kept: Any, gradient: jax.Array) -> Any:
    x, weight = kept
    operand, incoming = FORMATS[name]
    operands, of_result = subscripts.split("->")
    of_x, of_weight = operands.split(",")
    to_x, to_weight = f"{of_result},{of_weight}->{of_x}", f"{of_x},{of_result}->{of_weight}"
    # On explicit mesh axes, a gradient is sharded as its operand.
    of_types = [jax.typeof(array).sharding.spec if has_explicit_axes() else None for array in kept]
    small_gradient = _quantized(gradient, incoming)
    return (
        _product(to_x, small_gradient, _quantized(weight, operand), x.dtype, of_types[0]),
        _product(to_weight, _quantized(x, operand), small_gradient, weight.dtype, of_types[1]),
    )


quantized_product.defvjp(_forward, _backward)


def _quantized(x: jax.Array, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """Return x in a small type, and the scale by which it was divided."""
    is_integer = jnp.issubdtype(dtype, jnp.integer)
    largest = float(jnp.iinfo(dtype).max if is_integer else jnp.finfo(dtype).max)
    scale = jnp.maximum(jnp.max(jnp.abs(x)).astype(jnp.float32), 1e-30) / largest
    small = x.astype(jnp.float32) / scale
    return (jnp.round(small) if is_integer else small).astype(dtype), scale


def _product(
    subscripts: str,
    left: tuple[jax.Array, jax.Array],
    right: tuple[jax.Array, jax.Array],
    dtype: Any,
    out_sharding: Any,
) -> jax.Array:
    """Return the product of quantized operands with their scales. Integers are added in 32 bits."""
    is_integer = jnp.issubdtype(left[0].dtype, jnp.integer)
    total = jnp.einsum(
        *(subscripts, left[0], right[0]),
        preferred_element_type=jnp.int32 if is_integer else dtype,
        out_sharding=out_sharding,
    )
    return (total.astype(jnp.float32) * (left[1] * right[1])).astype(dtype)
