"""Call one function with several static arguments."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("data",))


@partial(jax.jit, static_argnums=1)
def power(x, n):
    return jnp.sum(x**n)


x = jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, P("data")))
for n in (2, 3, 4):
    power(x, n)
