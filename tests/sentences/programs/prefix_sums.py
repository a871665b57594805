"""Add up along the sharded dimension."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("t",))
x = jax.device_put(jnp.ones((256, 32)), NamedSharding(mesh, P("t")))
total = jax.jit(lambda x: jnp.cumsum(x, 0))(x)
linear = jax.jit(lambda x: jax.lax.associative_scan(lambda a, b: a * b, x))(x)
