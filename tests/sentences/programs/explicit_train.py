"""Train on explicit axes, weights cut over the axis of the batch."""

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, reshard
from jax.sharding import PartitionSpec as P

jax.set_mesh(jax.make_mesh((8,), ("fsdp",), axis_types=(AxisType.Explicit,)))


@jax.jit
def step(w, x):
    def loss(w):
        return jnp.mean(jnp.tanh(x @ reshard(w, P())) ** 2)

    return w - 0.1 * jax.grad(loss)(w)


w = jax.device_put(jnp.ones((128, 128)) / 128, P("fsdp"))
x = jax.device_put(jnp.ones((64, 128)), P("fsdp"))
for _ in range(2):
    w = step(w, x)
