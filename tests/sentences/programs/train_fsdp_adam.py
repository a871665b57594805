"""Train with Adam, weights and their state cut over the axis of the batch."""

from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("fsdp",))
adam = optax.adam(1e-3)


def loss(params, x, y):
    for w in params["layers"]:
        x = jax.nn.gelu(x @ w)
    return jnp.mean((x - y) ** 2)


@partial(jax.jit, donate_argnums=0)
def train_step(state, x, y):
    params, opt = state
    value, grads = jax.value_and_grad(loss)(params, x, y)
    updates, opt = adam.update(grads, opt, params)
    return (optax.apply_updates(params, updates), opt), value


cut = NamedSharding(mesh, P("fsdp"))
params = jax.device_put({"layers": [jnp.ones((256, 256)) / 256 for _ in range(3)]}, cut)
state = (params, adam.init(params))
x, y = jax.device_put((jnp.ones((64, 256)), jnp.ones((64, 256))), cut)
for _ in range(3):
    state, value = train_step(state, x, y)
