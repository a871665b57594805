"""Clip the gradient of each sample."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("data",))


@jax.jit
def clipped(w, x, y):
    def loss(w, x, y):
        return jnp.sum((x @ w - y) ** 2)

    g = jax.vmap(jax.grad(loss), (None, 0, 0))(w, x, y)
    norm = jnp.sqrt(jnp.sum(g**2, (1, 2), keepdims=True))
    return jnp.mean(g / jnp.maximum(norm, 1), 0)


w = jax.device_put(jnp.ones((64, 32)), NamedSharding(mesh, P()))
x = jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, P("data")))
y = jax.device_put(jnp.ones((64, 32)), NamedSharding(mesh, P("data")))
g = clipped(w, x, y)
