"""Move data between explicit axes where the code says so."""

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, reshard
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
jax.set_mesh(mesh)


@jax.jit
def project(a, w):
    h = a @ reshard(w, P(None, "y"))
    return reshard(jnp.sin(h), P("x", None))


a = jax.device_put(jnp.ones((64, 128)), P("x", None))
w = jax.device_put(jnp.ones((128, 256)), P("y", None))
for _ in range(2):
    out = project(a, w)
