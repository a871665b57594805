"""Solve A x = b until the residual is small: a loop without a count."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("rows",))


@jax.jit
def solve(a, b):
    def more(state):
        return state[3] > 1e-6

    def step(state):
        x, r, p, rr = state
        ap = a @ p
        alpha = rr / (p @ ap)
        x, r = x + alpha * p, r - alpha * ap
        new = r @ r
        return x, r, r + new / rr * p, new

    return jax.lax.while_loop(more, step, (jnp.zeros_like(b), b, b, b @ b))[0]


q = jax.random.normal(jax.random.key(0), (256, 256))
a = jax.device_put(q @ q.T + 256 * jnp.eye(256), NamedSharding(mesh, P("rows")))
b = jax.device_put(jnp.ones(256), NamedSharding(mesh, P("rows")))
x = solve(a, b)
