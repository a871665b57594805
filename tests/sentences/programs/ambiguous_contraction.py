"""Contract a dimension that both operands cut over an explicit axis."""

import jax
import jax.numpy as jnp
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

jax.set_mesh(jax.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,)))
a = jax.device_put(jnp.ones((64, 64)), P("x", None))
b = jax.device_put(jnp.ones((64, 64)), P(None, "x"))
product = jax.jit(jnp.matmul)(a, b)
