"""Update large arrays without donating them."""

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("data",))
adam = optax.adam(1e-3)


@jax.jit
def train_step(params, opt_state, batch):
    def loss(p):
        return jnp.mean((batch @ p["kernel"] + p["bias"]) ** 2)

    grads = jax.grad(loss)(params)
    updates, opt_state = adam.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state


params = jax.device_put({"kernel": jnp.ones((512, 512)), "bias": jnp.ones(512)}, NamedSharding(mesh, P()))
opt_state = adam.init(params)
batch = jax.device_put(jnp.ones((64, 512)), NamedSharding(mesh, P("data")))
for _ in range(2):
    params, opt_state = train_step(params, opt_state, batch)
