"""Tensor parallelism in a shard_map, with the collectives in custom derivative rules."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("dp", "tp"))


@jax.custom_vjp
def enter(x):
    return x


enter.defvjp(lambda x: (x, None), lambda _, g: (jax.lax.psum(g, "tp"),))


@jax.custom_vjp
def leave(x):
    return jax.lax.psum(x, "tp")


leave.defvjp(lambda x: (jax.lax.psum(x, "tp"), None), lambda _, g: (g,))


def block(x, up, down):
    return x + leave(jax.nn.gelu(enter(x) @ up) @ down)


def loss(weights, x, y):
    for up, down in weights:
        x = block(x, up, down)
    return jnp.mean((x - y) ** 2)


specs = [(P(None, "tp"), P("tp", None))] * 2


@jax.jit
@partial(
    jax.shard_map, mesh=mesh, in_specs=(specs, P("dp"), P("dp")), out_specs=(specs, P()), check_vma=False
)
def step(weights, x, y):
    value, grads = jax.value_and_grad(loss)(weights, x, y)
    grads = jax.lax.pmean(grads, "dp")
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, grads), jax.lax.pmean(value, "dp")


key = jax.random.key(0)
weights = [
    (
        jax.device_put(jax.random.normal(key, (64, 256)) / 8, NamedSharding(mesh, P(None, "tp"))),
        jax.device_put(jax.random.normal(key, (256, 64)) / 16, NamedSharding(mesh, P("tp", None))),
    )
    for _ in range(2)
]
x = jax.device_put(jax.random.normal(key, (32, 64)), NamedSharding(mesh, P("dp")))
for _ in range(2):
    weights, value = step(weights, x, x)
