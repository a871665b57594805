"""Round with a gradient of its own; batch over the devices."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("batch",))


@jax.custom_jvp
def quantize(x):
    return jnp.round(x * 8) / 8


quantize.defjvp(lambda primals, tangents: (quantize(*primals), tangents[0]))


@jax.jit
def fit(w, x, y):
    return w - 0.05 * jax.grad(lambda w: jnp.mean((x @ quantize(w) - y) ** 2))(w)


w = jax.device_put(jnp.ones((64, 16)), NamedSharding(mesh, P()))
x = jax.device_put(jnp.ones((128, 64)), NamedSharding(mesh, P("batch")))
y = jax.device_put(jnp.zeros((128, 16)), NamedSharding(mesh, P("batch")))
for _ in range(2):
    w = fit(w, x, y)
