"""Prefill a cache that is sharded by sequence, then decode with it; the cache is donated."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh((2, 4), ("batch", "seq"), axis_types=(AxisType.Auto,) * 2)
LAYERS, WIDTH, LENGTH, VOCABULARY = 2, 64, 32, 128


def on(*spec):
    return NamedSharding(mesh, P(*spec))


CACHE = on(None, "batch", "seq")


def attend(q, k, v, mask):
    scores = jnp.einsum("btd,bsd->bts", q, k) / 8 + jnp.where(mask, 0.0, -1e9)
    return jnp.einsum("bts,bsd->btd", jax.nn.softmax(scores, -1), v)


def model(w, x, keys, values, position, mask):
    for layer in range(LAYERS):
        q, k, v = jnp.split(x @ w["qkv"][layer], 3, -1)
        keys = jax.lax.dynamic_update_slice(keys, k[None], (layer, 0, position, 0))
        values = jax.lax.dynamic_update_slice(values, v[None], (layer, 0, position, 0))
        x = x + attend(q, keys[layer], values[layer], mask) @ w["out"][layer]
    return x @ w["embedding"].T, keys, values


@partial(jax.jit, out_shardings=(on("batch"), CACHE, CACHE))
def prefill(w, tokens):
    x = w["embedding"][tokens]
    empty = jnp.zeros((LAYERS, tokens.shape[0], LENGTH, WIDTH))
    mask = jnp.arange(tokens.shape[1])[:, None] >= jnp.arange(LENGTH)
    logits, keys, values = model(w, x, empty, empty, 0, mask)
    return logits[:, -1], keys, values


@partial(jax.jit, donate_argnums=(1, 2), out_shardings=(on("batch"), CACHE, CACHE))
def decode(w, keys, values, token, position):
    x = w["embedding"][token][:, None]
    logits, keys, values = model(w, x, keys, values, position, jnp.arange(LENGTH)[None] <= position)
    return logits[:, 0], keys, values


w = {
    "embedding": jax.device_put(jnp.ones((VOCABULARY, WIDTH)), on("seq")),
    "qkv": jax.device_put(jnp.ones((LAYERS, WIDTH, 3 * WIDTH)), on(None, None, "seq")),
    "out": jax.device_put(jnp.ones((LAYERS, WIDTH, WIDTH)), on(None, "seq")),
}
tokens = jax.device_put(jnp.zeros((4, 8), "int32"), on("batch"))
logits, keys, values = prefill(w, tokens)
for position in range(8, 11):
    logits, keys, values = decode(w, keys, values, logits.argmax(-1), position)
