"""Multiply a vector with a Hessian: forward over reverse mode."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("data",))


@jax.jit
def product(w, v, x):
    def loss(w):
        return jnp.mean(jax.nn.softplus(x @ w))

    return jax.jvp(jax.grad(loss), (w,), (v,))[1]


w = jax.device_put(jnp.ones((128, 8)), NamedSharding(mesh, P()))
x = jax.device_put(jnp.ones((256, 128)), NamedSharding(mesh, P("data")))
v = product(w, w, x)
