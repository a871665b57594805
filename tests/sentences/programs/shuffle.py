"""Permute the rows of a data set that is cut by rows."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("rows",))


@jax.jit
def shuffled(key, x):
    return x[jax.random.permutation(key, x.shape[0])]


x = jax.device_put(jnp.ones((512, 32)), NamedSharding(mesh, P("rows")))
for seed in range(2):
    x = shuffled(jax.random.key(seed), x)
