"""Draw samples by Langevin steps, chains over the devices: nothing is sent but the mean."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("chains",))


def energy(x):
    return jnp.sum((x**2 - 1) ** 2)


@jax.jit
def sample(keys, x):
    def step(x, key):
        noise = jax.random.normal(key, x.shape)
        return x - 0.01 * jax.grad(energy)(x) + 0.1 * noise, None

    x = jax.vmap(lambda key, x: jax.lax.scan(step, x, jax.random.split(key, 20))[0])(keys, x)
    return x, x.mean(0)


cut = NamedSharding(mesh, P("chains"))
keys = jax.device_put(jax.random.split(jax.random.key(1), 32), cut)
x = jax.device_put(jnp.zeros((32, 16)), cut)
for _ in range(2):
    x, mean = sample(keys, x)
