"""Multiply with blocks that go around a ring."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("ring",))
around = [(i, (i + 1) % 8) for i in range(8)]


@jax.jit
@jax.shard_map(mesh=mesh, in_specs=(P("ring"), P("ring")), out_specs=P("ring"))
def multiply(a, b):
    me = jax.lax.axis_index("ring")

    def step(i, carry):
        total, block = carry
        start = (me - i) % 8 * 32
        part = jax.lax.dynamic_slice(a, (0, start), (32, 32))
        return total + part @ block, jax.lax.ppermute(block, "ring", around)

    zero = jax.lax.pcast(jnp.zeros((32, 64)), "ring", to="varying")
    return jax.lax.fori_loop(0, 8, step, (zero, b))[0]


a = jax.device_put(jnp.ones((256, 256)), NamedSharding(mesh, P("ring")))
b = jax.device_put(jnp.ones((256, 64)), NamedSharding(mesh, P("ring")))
c = multiply(a, b)
