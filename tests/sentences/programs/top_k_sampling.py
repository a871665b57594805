"""Sample one of the most probable tokens: top-k over a sharded vocabulary."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("vocab",))


@jax.jit
def choose(key, hidden, head):
    logits = hidden @ head
    values, indices = jax.lax.top_k(logits, 16)
    pick = jax.random.categorical(key, values)
    return jnp.take_along_axis(indices, pick[:, None], 1)[:, 0]


head = jax.device_put(
    jax.random.normal(jax.random.key(0), (128, 4096)), NamedSharding(mesh, P(None, "vocab"))
)
hidden = jax.device_put(jnp.ones((16, 128)), NamedSharding(mesh, P()))
token = choose(jax.random.key(1), hidden, head)
