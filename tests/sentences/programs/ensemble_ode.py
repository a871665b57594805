"""Integrate independent trajectories with Runge-Kutta steps: no communication at all."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("members",))


def lorenz(y):
    a, b, c = y[..., 0], y[..., 1], y[..., 2]
    return jnp.stack([10 * (b - a), a * (28 - c) - b, a * b - 8 / 3 * c], -1)


@jax.jit
def integrate(y):
    def rk4(y, _):
        k1 = lorenz(y)
        k2 = lorenz(y + 0.005 * k1)
        k3 = lorenz(y + 0.005 * k2)
        k4 = lorenz(y + 0.01 * k3)
        return y + 0.01 / 6 * (k1 + 2 * k2 + 2 * k3 + k4), y

    return jax.lax.scan(rk4, y, None, 50)


y = jax.device_put(jnp.ones((64, 3)), NamedSharding(mesh, P("members")))
y, path = integrate(y)
