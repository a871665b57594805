"""Compute in bfloat16 with float32 weights, cut over two axes."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("replica", "shard"))


@jax.jit
def step(w, x):
    def loss(w):
        h = x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)
        return jnp.mean(h.astype(jnp.float32) ** 2)

    return w - 0.1 * jax.grad(loss)(w)


w = jax.device_put(jnp.ones((256, 256)), NamedSharding(mesh, P("shard")))
x = jax.device_put(jnp.ones((64, 256)), NamedSharding(mesh, P(("replica", "shard"))))
for _ in range(2):
    w = step(w, x)
