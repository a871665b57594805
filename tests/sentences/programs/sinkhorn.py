"""Optimal transport by Sinkhorn's iterations until the marginals fit, rows and columns both sharded."""

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh((4, 2), ("rows", "cols"), axis_types=(AxisType.Auto,) * 2)


@jax.jit
def transport(x, y):
    cost = jnp.sum(x**2, 1)[:, None] + jnp.sum(y**2, 1)[None] - 2 * x @ y.T
    kernel = -cost / 0.1
    size = jnp.log(1.0 / cost.shape[0])

    def gap(state):
        f, g, _ = state
        rows = jnp.exp(jax.nn.logsumexp(kernel + f[:, None] + g[None], 1))
        return jnp.sum(jnp.abs(rows - 1.0 / cost.shape[0])) > 1e-3

    def improve(state):
        f, g, count = state
        f = size - jax.nn.logsumexp(kernel + g[None], 1)
        g = size - jax.nn.logsumexp(kernel + f[:, None], 0)
        return f, g, count + 1

    f, g, count = jax.lax.while_loop(gap, improve, (jnp.zeros(len(x)), jnp.zeros(len(y)), 0))
    plan = jnp.exp(kernel + f[:, None] + g[None])
    return plan, jnp.sum(plan * cost), count


x = jax.device_put(jax.random.normal(jax.random.key(0), (256, 16)), NamedSharding(mesh, P("rows")))
y = jax.device_put(jax.random.normal(jax.random.key(1), (256, 16)), NamedSharding(mesh, P("cols")))
plan, distance, count = transport(x, y)
