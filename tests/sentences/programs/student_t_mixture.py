"""A mixture of Student t distributions by expectation maximization: mu and nu are no moments."""

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh((4, 2), ("data", "feature"), axis_types=(AxisType.Auto,) * 2)


@jax.jit
def iterate(state, points):
    mixture, count = state
    distance = (points[:, None] - mixture["mu"]) ** 2 / mixture["nu"]
    log_p = mixture["weight"] - 1.5 * jnp.log1p(distance.sum(-1))
    resp = jax.nn.softmax(log_p)
    scale = resp / (1 + distance.sum(-1))
    mu = jnp.einsum("nk,nd->kd", scale, points) / scale.sum(0)[:, None]
    nu = jnp.einsum("nk,nkd->kd", scale, (points[:, None] - mu) ** 2) / resp.sum(0)[:, None] + 1e-3
    weight = jnp.log(resp.mean(0))
    return ({"mu": mu, "nu": nu, "weight": weight}, count + 1), jax.nn.logsumexp(log_p, -1).mean()


def put(value, *spec):
    return jax.device_put(value, NamedSharding(mesh, P(*spec)))


points = put(jax.random.normal(jax.random.key(0), (4096, 32)), "data", "feature")
mixture = {
    "mu": put(jax.random.normal(jax.random.key(1), (16, 32)), None, "feature"),
    "nu": put(jnp.ones((16, 32)), None, "feature"),
    "weight": put(jnp.zeros(16)),
}
state = mixture, 0
for _ in range(3):
    state, likelihood = iterate(state, points)
