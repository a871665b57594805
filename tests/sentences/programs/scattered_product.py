"""Contract a cut dimension and leave the result cut."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("k",))
a = jax.device_put(jnp.ones((256, 512)), NamedSharding(mesh, P(None, "k")))
b = jax.device_put(jnp.ones((512, 128)), NamedSharding(mesh, P("k")))
c = jax.jit(lambda a, b: a @ b, out_shardings=NamedSharding(mesh, P("k")))(a, b)
