"""Sharding constraints between the matrix products, and results whose sharding the code asks for."""

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


def on(*spec):
    return NamedSharding(mesh, P(*spec))


def forward(weights, x):
    for wide, narrow in weights:
        x = jax.lax.with_sharding_constraint(x, on("data", None))
        hidden = jax.nn.silu(x @ wide)
        hidden = jax.lax.with_sharding_constraint(hidden, on("data", "model"))
        x = x + hidden @ narrow
        x = jax.lax.with_sharding_constraint(x, on("data", "model"))
    return x


def loss(weights, x, labels):
    logits = forward(weights, x)
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)
    return -picked.mean()


def step(weights, x, labels):
    grads = jax.grad(loss)(weights, x, labels)
    return jax.tree.map(lambda w, g: w - 0.01 * g, weights, grads)


weights = [
    (
        jax.device_put(jnp.full((256, 1024), 0.01), on("data", "model")),
        jax.device_put(jnp.full((1024, 256), 0.01), on("model", "data")),
    )
    for _ in range(3)
]
x = jax.device_put(jnp.ones((128, 256)), on("data"))
labels = jax.device_put(jnp.zeros(128, "int32"), on("data"))
whole = jax.tree.map(lambda _: on(), weights)
weights = jax.jit(step, out_shardings=jax.tree.map(lambda w: w.sharding, weights))(weights, x, labels)
gathered = jax.jit(lambda weights: weights, out_shardings=whole)(weights)
