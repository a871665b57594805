"""Constrain a dimension of 9 to 8 devices: the last ones are padded."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("d",))


@jax.jit
def pool(x):
    h = jax.lax.with_sharding_constraint(x @ jnp.ones((64, 9)), NamedSharding(mesh, P(None, "d")))
    return jax.nn.relu(h).sum()


total = pool(jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, P("d"))))
