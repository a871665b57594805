"""Sort along the sharded dimension, and along the other one."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("parts",))
values = jax.device_put(jax.random.normal(jax.random.key(0), (512, 64)), NamedSharding(mesh, P("parts")))
across = jax.jit(lambda v: jnp.sort(v, 0))(values)
within = jax.jit(lambda v: jnp.sort(v, 1))(values)
median = jax.jit(lambda v: jnp.median(v))(values)
