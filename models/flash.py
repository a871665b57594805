"""Flash attention: JAX's Pallas kernel splash attention on TPUs, which keeps no matrix of scores in memory.

Other devices have no such kernel that compiles without the device (cuDNN needs its library and a GPU), so
they compute `dot_product_attention`. So does a plan, which has no devices.
"""

import math
from collections.abc import Mapping
from typing import Any

import jax
from jax import numpy as jnp
from jax.sharding import PartitionSpec

from inspector.model.built_in.dot_product import dot_product_attention
from inspector.model.built_in.explicit import has_explicit_axes, mesh_spec, resharded
from inspector.text.errors import InvalidInput

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

    If the sequence is sharded, a device has the attention of its queries to all keys, which are gathered.
    Other mesh axes compute the same.

    Args:
      window: positions that a query sees, itself included; 0 for all.
      interpret: run the kernel as JAX operations, for a device that is not a TPU.
    """
    query, key, value, of_query, of_key = on_devices(query, key, value, key_seq=None, kind="flash")
    heads = query.shape[2] // ways(of_query[2])
    kernel = splash_kernel(query.shape[1], heads, ways(of_query[1]), window, interpret)
    # A device has the part of the mask of its queries.
    of_mask = jax.sharding.NamedSharding(jax.sharding.get_abstract_mesh(), PartitionSpec(None, of_query[1]))
    return jax.shard_map(
        _on_one_device,
        in_specs=(kernel.manual_sharding_spec(of_mask), of_query, of_key, of_key),
        out_specs=of_query,
        check_vma=False,  # the kernel does not say over which mesh axes its results vary
    )(kernel, query, key, value)


def on_devices(
    query: jax.Array, key: jax.Array, value: jax.Array, key_seq: str | None, kind: str
) -> tuple[jax.Array, jax.Array, jax.Array, PartitionSpec, PartitionSpec]:
    """Return queries, keys and values for `shard_map`, with the specs of queries, and of keys and values.

    Args:
      key_seq: the logical axis of the sequence of keys and values; None gathers it.
      kind: the name of the attention for errors.

    Raises:
      InvalidInput: the mesh axes do not divide a dimension.
    """
    by_query, by_key = ("batch", "seq", "heads", None), ("batch", key_seq, "kv_heads", None)
    if mesh_spec(by_query, logical=True)[2] != mesh_spec(by_key, logical=True)[2]:
        # A device has all heads of the keys but only some of the queries: give each query head its own key.
        groups = query.shape[2] // key.shape[2]
        key, value = jnp.repeat(key, groups, axis=2), jnp.repeat(value, groups, axis=2)
        by_key = ("batch", key_seq, "heads", None)
    if has_explicit_axes():
        query, key, value = (
            resharded(array, names) for array, names in ((query, by_query), (key, by_key), (value, by_key))
        )
    of_query = mesh_spec(by_query, logical=True)
    require_divisible(
        dict(zip(("batch", "seq", "heads"), of_query, strict=False)), query, f"{kind} attention"
    )
    return query, key, value, of_query, mesh_spec(by_key, logical=True)


def require_divisible(axes: Mapping[str, Any], array: jax.Array, what: str) -> None:
    """Check that devices can share the first dimensions of an array evenly, as `shard_map` needs.

    axes: the mesh axes of each dimension, by its name.

    Raises:
      InvalidInput: a dimension is not a multiple of the number of its devices.
    """
    for (name, sharding), size in zip(axes.items(), array.shape, strict=False):
        if size % ways(sharding):
            also = ", also in each microbatch" if name == "batch" else ""
            of_mesh = " × ".join((sharding,) if isinstance(sharding, str) else sharding)
            raise InvalidInput(
                f"{name} is {size}, but must be a multiple of {ways(sharding)} for {what}{also}: "
                f"{of_mesh} shards it"
            )


def ways(axes: Any) -> int:
    """Return over how many devices the mesh axes of one dimension shard it."""
    names = (axes,) if isinstance(axes, str) else axes or ()
    return math.prod(jax.sharding.get_abstract_mesh().shape[name] for name in names)


def splash_kernel(seq: int, heads: int, parts: int, window: int, interpret: bool) -> Any:
    """Return the kernel for queries that are sharded into this many parts of a sequence."""
    # Imported here, because Pallas takes half a second.
    from jax.experimental.pallas.ops.tpu.splash_attention import (
        splash_attention_kernel,
        splash_attention_mask,
    )

    causal, local = splash_attention_mask.CausalMask, splash_attention_mask.LocalMask
    mask = local((seq, seq), (window - 1, 0), offset=0) if window else causal((seq, seq))
    tile = math.gcd(seq // parts, BLOCK)
    blocks = ("q", "kv", "kv_compute", "q_dkv", "kv_dkv", "kv_dkv_compute", "q_dq", "kv_dq")
    sizes: dict[str, Any] = {f"block_{name}": tile for name in blocks}
    return splash_attention_kernel.make_splash_mha(
        splash_attention_mask.MultiHeadMask([mask] * heads),
        block_sizes=splash_attention_kernel.BlockSizes(**sizes),
        head_shards=1,
        q_seq_shards=parts,
        residual_checkpoint_name="context",
        interpret=interpret,
    )


def _on_one_device(kernel: Any, query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    by_head = (array.swapaxes(1, 2) for array in (query * query.shape[-1] ** -0.5, key, value))
    return jax.vmap(kernel)(*by_head).swapaxes(1, 2)
