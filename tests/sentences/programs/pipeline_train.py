"""Train a pipeline of four stages, with gradients through its permutes."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("stage", "data"))


@jax.shard_map(mesh=mesh, in_specs=(P("stage"), P(None, "data")), out_specs=P(None, "data"))
def forward(w, batches):
    me = jax.lax.axis_index("stage")

    def tick(carry, i):
        first = jax.lax.dynamic_index_in_dim(batches, jnp.minimum(i, 3), 0, False)
        y = jnp.tanh(jnp.where(me == 0, first, carry) @ w[0])
        return jax.lax.ppermute(y, "stage", [(s, s + 1) for s in range(3)]), y

    start = jax.lax.pcast(jnp.zeros(batches.shape[1:]), ("stage", "data"), to="varying")
    outputs = jax.lax.scan(tick, start, jnp.arange(7))[1][3:]
    return jax.lax.psum(jnp.where(me == 3, outputs, 0), "stage")


@jax.jit
def train(w, batches):
    value, g = jax.value_and_grad(lambda w: jnp.mean((forward(w, batches) - 1) ** 2))(w)
    return w - 0.1 * g, value


w = jax.device_put(jnp.ones((4, 64, 64)) / 64, NamedSharding(mesh, P("stage")))
batches = jax.device_put(jnp.ones((4, 16, 64)), NamedSharding(mesh, P(None, "data")))
for _ in range(2):
    w, value = train(w, batches)
