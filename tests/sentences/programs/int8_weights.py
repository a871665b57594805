"""Serve int8 weights that are dequantized before a scan over the layers."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("data",))


@jax.jit
def serve(params, x):
    weights = params["q"].astype(jnp.bfloat16) * params["scale"]

    def layer(x, w):
        return jax.nn.gelu(x @ w), None

    return jax.lax.scan(layer, x, weights)[0]


params = {
    "q": jax.device_put(jnp.ones((4, 256, 256), jnp.int8), NamedSharding(mesh, P(None, "data"))),
    "scale": jax.device_put(jnp.ones((4, 1, 256), jnp.bfloat16) / 256, NamedSharding(mesh, P())),
}
x = jax.device_put(jnp.ones((64, 256), jnp.bfloat16), NamedSharding(mesh, P("data")))
for _ in range(2):
    serve(params, x).block_until_ready()
