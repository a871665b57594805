"""Sums over devices in both of two branches, one of them larger."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("data",))


@jax.jit
def maybe(flag, x):
    return jax.lax.cond(flag, lambda x: x - jnp.mean(x), lambda x: x - jnp.mean(x, 0), x)


x = jax.device_put(jnp.ones((128, 64)), NamedSharding(mesh, P("data")))
for flag in (True, False):
    x = maybe(flag, x)
