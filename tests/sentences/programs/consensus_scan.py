"""Decentralized averaging: each device has agents, a psum in each step of a scan moves them to the mean."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("agents",))


@jax.jit
@partial(jax.shard_map, mesh=mesh, in_specs=(P("agents"), P("agents")), out_specs=(P("agents"), P()))
def consensus(x, target):
    def step(x, _):
        mean = jax.lax.pmean(x.mean(0), "agents")
        x = x + 0.3 * (mean - x) + 0.05 * (target - x)
        spread = jax.lax.pmax(jnp.abs(x - mean).max(), "agents")
        return x, spread

    return jax.lax.scan(step, x, None, length=20)


shard = NamedSharding(mesh, P("agents"))
x = jax.device_put(jax.random.normal(jax.random.key(0), (64, 128)), shard)
target = jax.device_put(jnp.ones((64, 128)), shard)
x, spread = consensus(x, target)
print(float(spread[-1]))
