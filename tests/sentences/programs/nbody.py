"""Move bodies that attract each other; each device has an eighth of them."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("bodies",))


@jax.jit
def leapfrog(x, v):
    gap = x[None] - x[:, None]
    force = jnp.sum(gap / (jnp.sum(gap**2, -1, keepdims=True) + 0.1) ** 1.5, 1)
    v = v + 0.01 * force
    return x + 0.01 * v, v


cut = NamedSharding(mesh, P("bodies"))
x = jax.device_put(jax.random.normal(jax.random.key(0), (256, 3)), cut)
v = jax.device_put(jnp.zeros((256, 3)), cut)
for _ in range(3):
    x, v = leapfrog(x, v)
