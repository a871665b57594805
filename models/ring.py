"""Ring attention: devices that share a sequence pass keys and values around, one block after the other.

Each device holds a block of the queries, keys and values (Liu et al. 2023, arXiv:2310.01889). It computes the
attention of its queries to one block while the next one arrives, with the softmax of all blocks so far. No
device has all keys. All devices compute every block, also those after their queries, which are masked.
"""

import functools
from typing import Any

import jax
from jax import numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from inspector.model.built_in.dot_product import dot_product_attention
from inspector.model.built_in.flash import on_devices, ways


def ring_attention(query: jax.Array, key: jax.Array, value: jax.Array, window: int = 0) -> jax.Array:
    """Return what `dot_product_attention` returns, over the mesh axes that shard `seq`.

    With a window, only the blocks that a query sees are passed on. Without such axes, the attention is that
    of matrix products.

    Raises:
      InvalidInput: the mesh axes do not divide a dimension.
    """
    query, key, value, of_query, of_key = on_devices(query, key, value, key_seq="seq", kind="ring")
    axes, seq = of_query[1], query.shape[1]
    devices = ways(axes)
    if devices == 1:
        return dot_product_attention(query, key, value, window)
    block = seq // devices
    blocks = min(devices, 1 + -(-(window - 1) // block)) if window else devices
    on_one_device = functools.partial(_attention, axes, devices, blocks, window)
    return jax.shard_map(
        on_one_device, in_specs=(of_query, of_key, of_key), out_specs=of_query, check_vma=False
    )(query, key, value)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2, 3))
def _attention(
    axes: Any,
    devices: int,
    blocks: int,
    window: int,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
) -> jax.Array:
    """Return the attention of a block of queries to `blocks` blocks of keys: its own and those before it.

    The arrays are those of one device: (batch, block, heads, head_dim), and kv_heads for keys and values.
    """
    return _ring_forward(axes, devices, blocks, window, query, key, value)[0]


def _ring_forward(
    axes: Any,
    devices: int,
    blocks: int,
    window: int,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
) -> Any:
    grouped = _grouped(query, key)
    shape = *grouped.shape[:1], *grouped.shape[2:4], grouped.shape[1]  # batch, kv_heads, group, block
    largest = jnp.full(shape, -jnp.inf, jnp.float32)
    total = jnp.zeros(shape, jnp.float32)
    mixed = jnp.zeros((*grouped.shape[:4], value.shape[-1]), jnp.float32)

    def add(step: Any, state: Any, key: jax.Array, value: jax.Array) -> Any:
        largest, total, mixed = state
        scores = _scores(axes, devices, step, window, grouped, key)
        after = jnp.maximum(largest, scores.max(axis=-1))  # finite: the first block has the own position
        weights, kept = jnp.exp(scores - after[..., None]), jnp.exp(largest - after)
        part = jnp.einsum(
            "bkgst,btkh->bskgh", weights.astype(value.dtype), value, preferred_element_type=jnp.float32
        )
        return after, total * kept + weights.sum(axis=-1), mixed * _by_query(kept) + part

    def pass_on(carry: Any, step: jax.Array) -> tuple[Any, None]:
        state, key, value = carry
        # The transfer does not depend on the products, so both can run at once.
        following = [_shifted(array, axes, devices, 1) for array in (key, value)]
        return (add(step, state, key, value), *following), None

    carry = ((largest, total, mixed), key, value)
    (state, last_key, last_value), _ = jax.lax.scan(pass_on, carry, jnp.arange(blocks - 1))
    largest, total, mixed = add(blocks - 1, state, last_key, last_value)
    attended = (mixed / _by_query(total)).astype(query.dtype).reshape(*query.shape[:3], value.shape[-1])
    attended = checkpoint_name(attended, "context")
    logarithm = checkpoint_name(largest + jnp.log(total), "context")
    return attended, (query, key, value, attended, logarithm)


def _ring_backward(axes: Any, devices: int, blocks: int, window: int, kept: Any, gradient: jax.Array) -> Any:
    query, key, value, attended, logarithm = kept
    grouped, incoming = _grouped(query, key), _grouped(gradient, key)
    shared = jnp.einsum(
        "bskgh,bskgh->bkgs", incoming, _grouped(attended, key), preferred_element_type=jnp.float32
    )

    def add(step: Any, to_query: jax.Array, block: Any) -> Any:
        key, value, to_key, to_value = block
        weights = jnp.exp(_scores(axes, devices, step, window, grouped, key) - logarithm[..., None])
        of_weights = jnp.einsum("bskgh,btkh->bkgst", incoming, value, preferred_element_type=jnp.float32)
        of_scores = weights * (of_weights - shared[..., None]) * query.shape[-1] ** -0.5
        weights, of_scores = weights.astype(value.dtype), of_scores.astype(key.dtype)
        product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
        to_query = to_query + product("bkgst,btkh->bskgh", of_scores, key)
        to_key = (to_key + product("bkgst,bskgh->btkh", of_scores, grouped)).astype(key.dtype)
        to_value = (to_value + product("bkgst,bskgh->btkh", weights, incoming)).astype(value.dtype)
        return to_query, to_key, to_value

    def pass_on(carry: Any, step: jax.Array) -> tuple[Any, None]:
        to_query, block = carry
        following = [_shifted(array, axes, devices, 1) for array in block[:2]]
        to_query, *gradients = add(step, to_query, block)
        return (to_query, (*following, *(_shifted(array, axes, devices, 1) for array in gradients))), None

    start = (key, value, jnp.zeros_like(key), jnp.zeros_like(value))
    carry = (jnp.zeros(grouped.shape, jnp.float32), start)
    (to_query, block), _ = jax.lax.scan(pass_on, carry, jnp.arange(blocks - 1))
    to_query, *gradients = add(blocks - 1, to_query, block)
    # The gradients of a block return to the device that has it.
    to_key, to_value = (_shifted(array, axes, devices, 1 - blocks) for array in gradients)
    return to_query.astype(query.dtype).reshape(query.shape), to_key, to_value


_attention.defvjp(_ring_forward, _ring_backward)


def _grouped(array: jax.Array, key: jax.Array) -> jax.Array:
    """Return (batch, block, kv_heads, group, head_dim): each key head serves a group of query heads."""
    batch, block, heads, width = array.shape
    return array.reshape(batch, block, key.shape[2], heads // key.shape[2], width)


def _scores(axes: Any, devices: int, step: Any, window: int, grouped: jax.Array, key: jax.Array) -> jax.Array:
    """Return the scaled products with the keys of the block `step` devices before, -inf for unseen ones."""
    block, here = key.shape[1], jax.lax.axis_index(axes)
    of_query = here * block + jnp.arange(block)[:, None]
    of_key = (here - step) % devices * block + jnp.arange(block)
    seen = of_query >= of_key
    if window:
        seen &= of_query - of_key < window
    products = jnp.einsum("bskgh,btkh->bkgst", grouped, key, preferred_element_type=jnp.float32)
    return jnp.where(seen, products * grouped.shape[-1] ** -0.5, -jnp.inf)


def _by_query(values: jax.Array) -> jax.Array:
    """Return values of queries (batch, kv_heads, group, block) for arrays like the grouped queries."""
    return values.transpose(0, 3, 1, 2)[..., None]


def _shifted(array: jax.Array, axes: Any, devices: int, places: int) -> jax.Array:
    """Return the array of the device `places` before this one, around the ring."""
    return jax.lax.ppermute(array, axes, [(source, (source + places) % devices) for source in range(devices)])
