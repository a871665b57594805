"""Train a convolution with batch statistics over all devices."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("data",))


def model(params, x):
    h = jax.lax.conv_general_dilated(
        x, params["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    mean, var = h.mean((0, 1, 2)), h.var((0, 1, 2))
    h = jax.nn.relu((h - mean) * jax.lax.rsqrt(var + 1e-5) * params["scale"])
    return h.mean((1, 2)) @ params["head"]


@jax.jit
def step(params, x):
    g = jax.grad(lambda p: jnp.mean(model(p, x) ** 2))(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, g)


params = {"kernel": jnp.ones((3, 3, 3, 16)), "scale": jnp.ones(16), "head": jnp.ones((16, 10))}
params = jax.device_put(params, NamedSharding(mesh, P()))
x = jax.device_put(jax.random.normal(jax.random.key(0), (16, 16, 16, 3)), NamedSharding(mesh, P("data")))
for _ in range(2):
    params = step(params, x)
