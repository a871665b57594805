"""Keep the state of an optimizer in the memory of the host."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("data",))
near = NamedSharding(mesh, P("data"))
far = near.with_memory_kind("pinned_host")


@jax.jit
def step(w, m, x):
    g = jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)
    m = 0.9 * jax.device_put(m, near) + g
    return w - 0.1 * m, jax.device_put(m, far)


w = jax.device_put(jnp.ones((128, 128)), near)
m = jax.device_put(jnp.zeros((128, 128)), far)
x = jax.device_put(jnp.ones((64, 128)), near)
for _ in range(2):
    w, m = step(w, m, x)
