"""Look up rows of a table that is cut by rows, and train them."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "rows"))


def loss(table, tokens, targets):
    return jnp.mean((table[tokens] - targets) ** 2)


@jax.jit
def train(table, tokens, targets):
    value, gradient = jax.value_and_grad(loss)(table, tokens, targets)
    return table - 0.1 * gradient, value


table = jax.device_put(jnp.ones((1024, 64)), NamedSharding(mesh, P("rows")))
tokens = jax.device_put(jnp.arange(128) % 1024, NamedSharding(mesh, P("data")))
targets = jax.device_put(jnp.zeros((128, 64)), NamedSharding(mesh, P("data")))
for _ in range(2):
    table, value = train(table, tokens, targets)
