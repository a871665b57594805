"""Run a pipeline whose stages hand over their results by a roll along a sharded dimension."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

STAGES, MICROBATCHES, ROWS, WIDTH = 4, 8, 16, 64
mesh = Mesh(np.array(jax.devices()).reshape(STAGES, 2), ("stage", "data"))
on_stages = NamedSharding(mesh, P("stage", "data", None))
layers = jax.device_put(jnp.ones((STAGES, WIDTH, WIDTH)) / WIDTH, NamedSharding(mesh, P("stage")))
x = jax.device_put(jnp.ones((MICROBATCHES, ROWS, WIDTH)), NamedSharding(mesh, P(None, "data")))


@jax.jit
def run(layers, x):
    def iteration(carry, number):
        state, outputs = carry
        first = jax.lax.dynamic_index_in_dim(x, jnp.minimum(number, MICROBATCHES - 1), keepdims=False)
        state = state.at[0].set(jnp.where(number < MICROBATCHES, first, state[0]))
        state = jax.vmap(lambda state, w: jnp.tanh(state @ w))(state, layers)
        state = jax.lax.with_sharding_constraint(state, on_stages)
        place = jnp.maximum(number - STAGES + 1, 0)
        outputs = jax.lax.dynamic_update_index_in_dim(outputs, state[-1], place, 0)
        return (jnp.roll(state, 1, 0), outputs), None

    state = jax.lax.with_sharding_constraint(jnp.zeros((STAGES, ROWS, WIDTH)), on_stages)
    steps = jnp.arange(MICROBATCHES + STAGES - 1)
    return jax.lax.scan(iteration, (state, jnp.zeros_like(x)), steps)[0][1]


print(run(layers, x).sum())
