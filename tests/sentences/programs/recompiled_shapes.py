"""Call one function with three batch sizes."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("data",))


@jax.jit
def evaluate(w, x):
    return jnp.mean(jax.nn.relu(x @ w), 0)


w = jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, P()))
for rows in (64, 32, 16):
    out = evaluate(w, jax.device_put(jnp.ones((rows, 64)), NamedSharding(mesh, P("data"))))
