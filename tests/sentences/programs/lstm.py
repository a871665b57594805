"""Train a recurrent cell through time, batch over the devices."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("batch",))


def loss(w, x):
    def cell(h, x):
        gate, value = jnp.split(jnp.concatenate([x, h], -1) @ w, 2, -1)
        h = jax.nn.sigmoid(gate) * h + jnp.tanh(value)
        return h, None

    return jnp.mean(jax.lax.scan(cell, jnp.zeros(x.shape[1:]), x)[0] ** 2)


@jax.jit
def update(w, x):
    return w - 0.1 * jax.grad(loss)(w, x)


w = jax.device_put(jnp.ones((64, 64)) / 64, NamedSharding(mesh, P()))
x = jax.device_put(jnp.ones((12, 64, 32)), NamedSharding(mesh, P(None, "batch")))
for _ in range(2):
    w = update(w, x)
