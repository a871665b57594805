"""Train layers in a scan whose products are in bfloat16, with weights sharded over `data`."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("data",))


def loss(params, x):
    def layer(x, w):
        up, down = (one.astype(jnp.bfloat16) for one in w)
        return x + jax.nn.gelu(x @ up) @ down, None

    x, _ = jax.lax.scan(layer, x.astype(jnp.bfloat16), params)
    return jnp.mean(jnp.square(x.astype(jnp.float32)))


@jax.jit
def step(params, x):
    value, grads = jax.value_and_grad(loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


shape = (4, 128, 256)
params = (
    jax.device_put(jnp.ones(shape) / 128, NamedSharding(mesh, P(None, "data"))),
    jax.device_put(jnp.ones((4, 256, 128)) / 256, NamedSharding(mesh, P(None, None, "data"))),
)
x = jax.device_put(jnp.ones((256, 128)), NamedSharding(mesh, P("data")))
for _ in range(2):
    params, value = step(params, x)
