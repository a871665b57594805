"""Dispatch tokens to experts by einsum; experts and tokens share one axis."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("expert",))


@jax.jit
def layer(router, up, down, x):
    gates = jax.nn.softmax(x @ router)
    chosen = jax.nn.one_hot(jnp.argmax(gates, -1), 8)
    rank = jnp.cumsum(chosen, 0) * chosen
    slots = jax.nn.one_hot(rank.sum(-1).astype(int) - 1, 32)
    dispatch = jnp.einsum("te,tc->tec", chosen, slots)
    sent = jnp.einsum("tec,td->ecd", dispatch, x)
    done = jnp.einsum("ecf,efd->ecd", jax.nn.relu(jnp.einsum("ecd,edf->ecf", sent, up)), down)
    return jnp.einsum("tec,ecd->td", dispatch, done)


cut = NamedSharding(mesh, P("expert"))
router = jax.device_put(jnp.ones((64, 8)), NamedSharding(mesh, P()))
up = jax.device_put(jnp.ones((8, 64, 128)), cut)
down = jax.device_put(jnp.ones((8, 128, 64)), cut)
x = jax.device_put(jax.random.normal(jax.random.key(0), (256, 64)), cut)
y = layer(router, up, down, x)
