"""Take a Jacobian column by column in forward mode: no backward pass."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("points",))


@jax.jit
def sensitivity(theta, points):
    return jax.jacfwd(lambda t: jnp.sum(jnp.sin(points @ t) ** 2, 0))(theta)


theta = jax.device_put(jnp.ones((4, 3)), NamedSharding(mesh, P()))
points = jax.device_put(jnp.ones((512, 4)), NamedSharding(mesh, P("points")))
jacobian = sensitivity(theta, points)
