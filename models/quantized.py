"""Matrix products of quantized operands, as Transformer Engine, AQT and qwix train with them.

Each operand is divided by a scale, so that its largest element becomes the largest number of a small type.
The product is rescaled. Both gradients are products of such operands, too: float8_e4m3fn for operands and
float8_e5m2 for incoming gradients (Micikevicius et al. 2022, arXiv:2209.05433), or int8 for both.

Weights can also be stored in a small type, with one scale for each output of their product, as in qwix's
quantization of weights alone and MaxText's checkpoints for inference.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax import numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from inspector.model.built_in.explicit import has_explicit_axes
from inspector.model.built_in.remat_names import QUANTIZED

# By name: the type of operands, and that of incoming gradients.
FORMATS = {
    "fp8": (jnp.float8_e4m3fn, jnp.float8_e5m2),
    "int8": (jnp.int8, jnp.int8),
}
# The types in which weights can be stored. Compiled programs have two elements of int4 in a byte; `nbytes` of
# an array of JAX counts one byte for each.
STORED = {name: operand for name, (operand, _) in FORMATS.items()} | {"int4": jnp.int4}

_CLIPPED = 4.0  # standard deviations of random weights that the largest number of a small type stands for


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2, 3))
def quantized_product(
    subscripts: str, name: str, out_sharding: Any, keeps: bool, x: jax.Array, weight: jax.Array
) -> jax.Array:
    """Return `jnp.einsum(subscripts, x, weight)` of operands in a format of `FORMATS`, with the type of both.

    keeps: whether the gradients use the quantized operands, named `quantization`, and not quantize again.
    """
    return _forward(subscripts, name, out_sharding, keeps, x, weight)[0]


def _forward(
    subscripts: str, name: str, out_sharding: Any, keeps: bool, x: jax.Array, weight: jax.Array
) -> Any:
    left, right = (_quantized(array, FORMATS[name][0]) for array in (x, weight))
    if keeps:
        left, right = jax.tree.map(_kept, (left, right))
    result = _product(subscripts, left, right, x.dtype, out_sharding)
    return result, ((left, right) if keeps else ((x, None), (weight, None)))


def _backward(
    subscripts: str, name: str, out_sharding: Any, keeps: bool, kept: Any, gradient: jax.Array
) -> Any:
    operand, incoming = FORMATS[name]
    x, weight = kept if keeps else [_quantized(array, operand) for array, _ in kept]
    operands, of_result = subscripts.split("->")
    of_x, of_weight = operands.split(",")
    to_x, to_weight = f"{of_result},{of_weight}->{of_x}", f"{of_x},{of_result}->{of_weight}"
    # On explicit mesh axes, a gradient is sharded as its operand.
    of_types = [jax.typeof(array).sharding.spec if has_explicit_axes() else None for array, _ in kept]
    small_gradient = _quantized(gradient, incoming)
    return (
        _product(to_x, small_gradient, weight, gradient.dtype, of_types[0]),
        _product(to_weight, x, small_gradient, gradient.dtype, of_types[1]),
    )


quantized_product.defvjp(_forward, _backward)


def _kept(part: jax.Array) -> jax.Array:
    """Return an operand or its scale with the name by which `jax.checkpoint` keeps it.

    Operands are kept as bits: JAX rounds floats that it keeps by IEEE's rules, which make the largest numbers
    of float8_e4m3fn infinite.
    """
    if part.dtype.itemsize > 1:
        return checkpoint_name(part, QUANTIZED)
    bits = jax.lax.bitcast_convert_type(part, jnp.int8)
    return jax.lax.bitcast_convert_type(checkpoint_name(bits, QUANTIZED), part.dtype)


def _quantized(x: jax.Array, dtype: Any, axis: int | None = None) -> tuple[jax.Array, jax.Array]:
    """Return x in a small type, and the scale by which it was divided: one for each slice along an axis."""
    scale = jnp.max(jnp.abs(x), axis=axis, keepdims=axis is not None).astype(jnp.float32)
    scale = jnp.maximum(scale, 1e-30) / _largest(dtype)
    return _rounded(x.astype(jnp.float32) / scale, dtype), scale


def _rounded(x: jax.Array, dtype: Any) -> jax.Array:
    return (jnp.round(x) if jnp.issubdtype(dtype, jnp.integer) else x).astype(dtype)


def _largest(dtype: Any) -> float:
    return float(jnp.iinfo(dtype).max if jnp.issubdtype(dtype, jnp.integer) else jnp.finfo(dtype).max)


class Stored(NamedTuple):
    """A weight in a small type, and its scales, which have size 1 in the dimensions of the sum."""

    values: jax.Array
    scale: jax.Array


def stored_values(name: str) -> Callable[..., jax.Array]:
    """Return an initializer of normal weights in a type of `STORED`, clipped to its range."""

    def init(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        largest = _largest(STORED[name])
        normal = jax.random.normal(key, shape) * (largest / _CLIPPED)
        return _rounded(jnp.clip(normal, -largest, largest), dtype)

    return init


def stored_scale(name: str, fan_in: int) -> Callable[..., jax.Array]:
    """Return an initializer of the scales with which stored weights have variance 1 / `fan_in`."""
    scale = fan_in**-0.5 * _CLIPPED / _largest(STORED[name])
    return lambda key, shape, dtype: jnp.full(shape, scale, dtype)


def stored_product(
    subscripts: str, quantization: str, out_sharding: Any, x: jax.Array, weight: Stored
) -> jax.Array:
    """Return `jnp.einsum` of x and a stored weight, with the type of x.

    The values are cast to the type of x, and the product is multiplied by their scales. With `quantization`,
    x is quantized instead, and the values are operands of this type.
    """
    operands, of_result = subscripts.split("->")
    of_weight = operands.split(",")[1]
    summed = [at for at, letter in enumerate(of_weight) if letter not in of_result]
    missing = [at for at, letter in enumerate(of_result) if letter not in of_weight]
    scale = jnp.expand_dims(jnp.squeeze(weight.scale, summed), missing)
    if quantization == "none":
        product = jnp.einsum(subscripts, x, weight.values.astype(x.dtype), out_sharding=out_sharding)
        return product * scale
    dtype, _ = FORMATS[quantization]
    small = weight.values.astype(dtype), scale
    return _product(subscripts, _quantized(x, dtype), small, x.dtype, out_sharding)


def quantized_cache(new: jax.Array, name: str) -> tuple[jax.Array, jax.Array]:
    """Return keys or values in a type of `STORED`, and one scale for each position and head."""
    small, scale = _quantized(new, STORED[name], axis=-1)
    return small, scale.astype(new.dtype)


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
