"""Multiply matrices that are cut into blocks in both dimensions."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("i", "j"))
blocks = NamedSharding(mesh, P("i", "j"))
a, b = jax.device_put((jnp.ones((256, 256)), jnp.ones((256, 256))), blocks)
product = jax.jit(lambda a, b: a @ b, out_shardings=blocks)
for _ in range(2):
    a = product(a, b) / 256
