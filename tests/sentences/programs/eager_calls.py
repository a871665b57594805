"""Compute without jit: each operation is a program of its own."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("d",))
x = jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, P("d")))
y = x @ x.T
z = jnp.sum(jnp.exp(y - y.max()))
