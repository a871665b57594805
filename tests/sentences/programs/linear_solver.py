"""Factor matrices: one that is cut, and a batch of small ones."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("d",))
cut = NamedSharding(mesh, P("d"))
a = jax.device_put(jnp.eye(128) * 2 + 0.01, cut)
factor = jax.jit(jnp.linalg.cholesky)(a)
x = jax.jit(jnp.linalg.solve)(a, jax.device_put(jnp.ones(128), cut))
many = jax.device_put(jnp.stack([jnp.eye(8) * (i + 1) for i in range(64)]), cut)
inverse = jax.jit(jnp.linalg.inv)(many)
