"""Train a small network, batch over all devices, plain SGD."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("data",))


def loss(params, x, y):
    return jnp.mean((jnp.tanh(x @ params["w1"]) @ params["w2"] - y) ** 2)


@jax.jit
def train_step(params, x, y):
    value, grads = jax.value_and_grad(loss)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


params = jax.device_put({"w1": jnp.ones((64, 128)), "w2": jnp.ones((128, 32))}, NamedSharding(mesh, P()))
x = jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, P("data")))
y = jax.device_put(jnp.ones((64, 32)), NamedSharding(mesh, P("data")))
for _ in range(3):
    params, value = train_step(params, x, y)
