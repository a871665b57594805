"""Find the largest eigenvalue of a matrix that is cut in two dimensions."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("r", "c"))


@jax.jit
def iterate(a, v):
    def step(_, v):
        w = a @ v
        return w / jnp.linalg.norm(w)

    v = jax.lax.fori_loop(0, 12, step, v)
    return v, v @ a @ v


a = jax.device_put(jax.random.uniform(jax.random.key(0), (512, 512)), NamedSharding(mesh, P("r", "c")))
v = jax.device_put(jnp.ones(512), NamedSharding(mesh, P("c")))
v, value = iterate(a, v)
