"""Train a scanned stack whose layers are computed again in the backward pass."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "tensor"))


@jax.checkpoint
def block(x, w):
    up, down = w
    return x + jnp.tanh(x @ up) @ down, None


@jax.jit
def train_step(w, x):
    def loss(w):
        return jnp.mean(jax.lax.scan(block, x, w)[0] ** 2)

    value, g = jax.value_and_grad(loss)(w)
    return jax.tree.map(lambda a, b: a - 0.01 * b, w, g), value


up = jax.device_put(jnp.ones((6, 128, 256)) / 128, NamedSharding(mesh, P(None, None, "tensor")))
down = jax.device_put(jnp.ones((6, 256, 128)) / 256, NamedSharding(mesh, P(None, "tensor")))
x = jax.device_put(jnp.ones((64, 128)), NamedSharding(mesh, P("data")))
w = (up, down)
for _ in range(3):
    w, value = train_step(w, x)
