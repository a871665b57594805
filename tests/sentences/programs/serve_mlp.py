"""Serve an MLP with its hidden dimension cut: one sum in each forward pass, no gradient."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("batch", "model"))


@jax.jit
def predict(weights, x):
    return jax.nn.relu(x @ weights["up"]) @ weights["down"]


weights = {
    "up": jax.device_put(jnp.ones((256, 1024)), NamedSharding(mesh, P(None, "model"))),
    "down": jax.device_put(jnp.ones((1024, 256)), NamedSharding(mesh, P("model"))),
}
x = jax.device_put(jnp.ones((64, 256)), NamedSharding(mesh, P("batch")))
for _ in range(3):
    y = predict(weights, x)
