"""Pass microbatches through stages, one stage on each device."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices()[:4], ("stage",))


@jax.jit
@jax.shard_map(mesh=mesh, in_specs=(P("stage"), P()), out_specs=P("stage"))
def run(w, microbatches):
    me = jax.lax.axis_index("stage")

    def tick(carry, i):
        first = jax.lax.dynamic_index_in_dim(microbatches, jnp.minimum(i, 5), 0, False)
        y = jnp.tanh(jnp.where(me == 0, first, carry) @ w[0])
        return jax.lax.ppermute(y, "stage", [(s, s + 1) for s in range(3)]), y

    start = jax.lax.pcast(jnp.zeros((8, 64)), "stage", to="varying")
    return jax.lax.scan(tick, start, jnp.arange(9))[1][None, 3:]


w = jax.device_put(jnp.ones((4, 64, 64)) / 64, NamedSharding(mesh, P("stage")))
out = run(w, jax.device_put(jnp.ones((6, 8, 64)), NamedSharding(mesh, P())))
