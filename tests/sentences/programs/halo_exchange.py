"""Exchange borders by hand, then apply a stencil."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("z",))
right = [(i, i + 1) for i in range(7)]
left = [(i + 1, i) for i in range(7)]


@jax.jit
@jax.shard_map(mesh=mesh, in_specs=P("z"), out_specs=P("z"))
def diffuse(u):
    below = jax.lax.ppermute(u[-1:], "z", right)
    above = jax.lax.ppermute(u[:1], "z", left)
    padded = jnp.concatenate([below, u, above])
    return 0.5 * u + 0.25 * (padded[:-2] + padded[2:])


u = jax.device_put(jnp.arange(64 * 16.0).reshape(64, 16), NamedSharding(mesh, P("z")))
for _ in range(2):
    u = diffuse(u)
