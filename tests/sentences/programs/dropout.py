"""Draw masks on all devices in a training step."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("data",))


@jax.jit
def step(key, w, x):
    def loss(w):
        h = jnp.tanh(x @ w)
        return jnp.mean(jnp.where(jax.random.bernoulli(key, 0.9, h.shape), h, 0) ** 2)

    return w - 0.1 * jax.grad(loss)(w)


w = jax.device_put(jnp.ones((128, 128)) / 128, NamedSharding(mesh, P()))
x = jax.device_put(jnp.ones((64, 128)), NamedSharding(mesh, P("data")))
for seed in range(2):
    w = step(jax.random.key(seed), w, x)
