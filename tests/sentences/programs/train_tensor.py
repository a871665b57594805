"""Train an MLP whose hidden dimension is cut, with momentum."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "tensor"))
sgd = optax.sgd(0.1, momentum=0.9)


def loss(params, x, y):
    return jnp.mean((jax.nn.relu(x @ params["up"]) @ params["down"] - y) ** 2)


@jax.jit
def train_step(params, opt, x, y):
    grads = jax.grad(loss)(params, x, y)
    updates, opt = sgd.update(grads, opt)
    return optax.apply_updates(params, updates), opt


params = {
    "up": jax.device_put(jnp.ones((128, 512)), NamedSharding(mesh, P(None, "tensor"))),
    "down": jax.device_put(jnp.ones((512, 128)), NamedSharding(mesh, P("tensor"))),
}
opt = sgd.init(params)
x, y = jax.device_put((jnp.ones((32, 128)), jnp.ones((32, 128))), NamedSharding(mesh, P("data")))
for _ in range(3):
    params, opt = train_step(params, opt, x, y)
