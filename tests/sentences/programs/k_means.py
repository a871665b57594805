"""Move centers to the mean of their points."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("points",))


@jax.jit
def iterate(centers, points):
    nearest = jnp.argmin(jnp.sum((points[:, None] - centers) ** 2, -1), -1)
    member = jax.nn.one_hot(nearest, len(centers))
    return (member.T @ points) / jnp.maximum(member.sum(0)[:, None], 1)


points = jax.device_put(jax.random.normal(jax.random.key(0), (1024, 8)), NamedSharding(mesh, P("points")))
centers = jax.device_put(jax.random.normal(jax.random.key(1), (16, 8)), NamedSharding(mesh, P()))
for _ in range(3):
    centers = iterate(centers, points)
