"""Flash attention: JAX's Pallas kernel splash attention on TPUs, which keeps no matrix of scores in memory.

Other devices have no such kernel that compiles without the device (cuDNN needs its library and a GPU), so
they compute `dot_product_attention`. So does a plan, which has no devices.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
from jax import numpy as jnp

from inspector.model.built_in.dot_product import dot_product_attention
from inspector.model.built_in.explicit import has_explicit_axes, mesh_spec, resharded

# Queries and keys of a tile of the kernel: MaxText's defaults sa_block_q, sa_block_kv and so on.
BLOCK = 512
LANES = 128  # of a vector register, which the length of a sequence must be a multiple of


def flash_attention(query: jax.Array, key: jax.Array, value: jax.Array, window: int = 0) -> jax.Array:
    """Return what `dot_product_attention` returns, with the fastest algorithm of the mesh's devices."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    if device is not None and device.platform == "tpu":
        return splash_attention(query, key, value, window)
    else:
        return dot_product_attention(query, key, value, window)


def splash_attention(
    query: jax.Array, key: jax.Array, value: jax.Array, window: int = 0, interpret: bool = False
) -> jax.Array:
    """Return the attention as `dot_product_attention` does, on the mesh axes of `batch` and `heads`.

    Other mesh axes compute the same, so a sequence that is sharded is gathered.

    Args:
      window: positions that a query sees, itself included; 0 for all.
      interpret: run the kernel as JAX operations, for a device that is not a TPU.
    """
    by_query, by_key = ("batch", None, "heads", None), ("batch", None, "kv_heads", None)
    if mesh_spec(by_query, logical=True) != mesh_spec(by_key, logical=True):
        # A device has all heads of the keys but only some of the queries: give each query head its own key.
        groups = query.shape[2] // key.shape[2]
        key, value = jnp.repeat(key, groups, axis=2), jnp.repeat(value, groups, axis=2)
        by_key = by_query
    if has_explicit_axes():
        query, key, value = (
            resharded(array, names) for array, names in ((query, by_query), (key, by_key), (value, by_key))
        )
    specs = tuple(mesh_spec(names, logical=True) for names in (by_query, by_key, by_key))
    return jax.shard_map(
        functools.partial(_on_one_device, window=window, interpret=interpret),
        in_specs=specs,
        out_specs=specs[0],
        check_vma=False,  # the kernel does not say over which mesh axes its results vary
    )(query, key, value)


def _on_one_device(
    query: jax.Array, key: jax.Array, value: jax.Array, window: int, interpret: bool
) -> jax.Array:
    # Imported here, because Pallas takes half a second.
    from jax.experimental.pallas.ops.tpu.splash_attention import (
        splash_attention_kernel,
        splash_attention_mask,
    )

    seq, heads, head_dim = query.shape[1:]
    causal, local = splash_attention_mask.CausalMask, splash_attention_mask.LocalMask
    mask = local((seq, seq), (window - 1, 0), offset=0) if window else causal((seq, seq))
    tile = math.gcd(seq, BLOCK)
    blocks = ("q", "kv", "kv_compute", "q_dkv", "kv_dkv", "kv_dkv_compute", "q_dq", "kv_dq")
    sizes: dict[str, Any] = {f"block_{name}": tile for name in blocks}
    kernel = splash_attention_kernel.make_splash_mha(
        splash_attention_mask.MultiHeadMask([mask] * heads),
        block_sizes=splash_attention_kernel.BlockSizes(**sizes),
        head_shards=1,
        q_seq_shards=1,
        residual_checkpoint_name="context",
        interpret=interpret,
    )
    by_head = (array.swapaxes(1, 2) for array in (query * head_dim**-0.5, key, value))
    return jax.vmap(kernel)(*by_head).swapaxes(1, 2)
