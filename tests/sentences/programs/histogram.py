"""Count events in bins, events over the devices."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("events",))


@jax.jit
def count(x):
    return jnp.zeros(64).at[(x * 64).astype(int)].add(1)


x = jax.device_put(jax.random.uniform(jax.random.key(0), (4096,)), NamedSharding(mesh, P("events")))
bins = count(x)
