"""Run a step, then raise."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("data",))
x = jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, P("data")))
total = jax.jit(jnp.sum)(x)
if total > 0:
    raise ValueError("the data set has no labels")
