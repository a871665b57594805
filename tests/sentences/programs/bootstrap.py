"""Resample a data set that all devices hold; replicas of the statistic are cut."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("draws",))


@jax.jit
def spread(keys, data):
    def statistic(key):
        return jnp.mean(data[jax.random.randint(key, (256,), 0, 256)])

    return jnp.std(jax.vmap(statistic)(keys))


keys = jax.device_put(jax.random.split(jax.random.key(0), 64), NamedSharding(mesh, P("draws")))
data = jax.device_put(jnp.arange(256.0), NamedSharding(mesh, P()))
result = spread(keys, data)
