"""Sum gradients and keep a shard of them, by hand, in a loop over layers."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("dp",))


@jax.jit
@jax.shard_map(mesh=mesh, in_specs=(P("dp"), P()), out_specs=P(None, "dp"))
def gradients(x, w):
    def layer(x, w):
        y = jnp.tanh(x @ w)
        return y, jax.lax.psum_scatter(x.T @ y, "dp", tiled=True)

    return jax.lax.scan(layer, x, w)[1]


x = jax.device_put(jnp.ones((64, 128)), NamedSharding(mesh, P("dp")))
w = jax.device_put(jnp.ones((3, 128, 128)) / 128, NamedSharding(mesh, P()))
g = gradients(x, w)
