"""Train an MLP whose weights a jitted function makes, which has more FLOPs than a step."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("data",))


def create(key):
    return {"up": jax.random.normal(key, (128, 512)), "down": jax.random.normal(key, (512, 128))}


@jax.jit
def advance(params, x, y):
    def loss(params):
        return jnp.mean((jax.nn.relu(x @ params["up"]) @ params["down"] - y) ** 2)

    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))


params = jax.jit(create, out_shardings=NamedSharding(mesh, P()))(jax.random.key(0))
x, y = jax.device_put((jnp.ones((8, 128)), jnp.ones((8, 128))), NamedSharding(mesh, P("data")))
for _ in range(3):
    params = advance(params, x, y)
