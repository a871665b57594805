"""Sum many small numbers, each by itself."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("i",))


@jax.jit
@jax.shard_map(mesh=mesh, in_specs=P("i"), out_specs=P("i"))
def chain(x):
    for _ in range(24):
        x = x + jax.lax.psum(jnp.max(x), "i") / 1024
    return x


x = chain(jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, P("i"))))
