"""Attend from a sequence that is cut: the partitioner gathers keys and values."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("seq",))


@jax.jit
def attend(x, w):
    q, k, v = x @ w[0], x @ w[1], x @ w[2]
    k = jax.lax.with_sharding_constraint(k, NamedSharding(mesh, P()))
    return jax.nn.softmax(q @ k.T) @ v


x = jax.device_put(jnp.ones((256, 64)), NamedSharding(mesh, P("seq")))
w = jax.device_put(jnp.ones((3, 64, 64)), NamedSharding(mesh, P()))
for _ in range(2):
    y = attend(x, w)
