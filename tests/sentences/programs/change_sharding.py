"""Ask for results in another sharding than that of the operands."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("m",))
rows, columns = NamedSharding(mesh, P("m")), NamedSharding(mesh, P(None, "m"))
x = jax.device_put(jnp.ones((256, 512)), rows)
exchange = jax.jit(lambda x: 2 * x, out_shardings=columns)
gather = jax.jit(lambda x: x + 1, out_shardings=NamedSharding(mesh, P()))
transpose = jax.jit(lambda x: x.T, out_shardings=rows)
y, z, t = exchange(x), gather(x), transpose(x)
