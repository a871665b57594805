"""Choose the most probable token until all rows end: argmax over a sharded vocabulary."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("vocab",))


@jax.jit
def generate(table, tokens):
    def more(state):
        return jnp.logical_and(state[1] < 16, jnp.any(state[0] != 0))

    def step(state):
        tokens, count = state
        logits = table[tokens] @ table.T
        return jnp.argmax(logits, -1), count + 1

    return jax.lax.while_loop(more, step, (tokens, 0))


table = jax.device_put(jax.random.normal(jax.random.key(0), (512, 64)), NamedSharding(mesh, P("vocab")))
tokens, count = generate(table, jnp.arange(8))
