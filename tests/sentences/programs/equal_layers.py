"""Data parallelism of equal layers, whose gradients one all-reduce combines, with a clipped norm."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("batch",))


def apply(params, x):
    for layer in params["layers"]:
        y = x @ layer["kernel"] + layer["bias"]
        mean, variance = y.mean(-1, keepdims=True), y.var(-1, keepdims=True)
        x = x + jax.nn.relu((y - mean) * jax.lax.rsqrt(variance + 1e-5) * layer["scale"])
    return x @ params["out"]


def loss(params, batch):
    logits = apply(params, batch["x"])
    logp = jax.nn.log_softmax(logits)
    nll = -jnp.sum(jax.nn.one_hot(batch["y"], logits.shape[-1]) * logp, -1).mean()
    accuracy = (logits.argmax(-1) == batch["y"]).mean()
    return nll, accuracy


@jax.jit
def train(params, velocity, batch):
    (value, accuracy), grads = jax.value_and_grad(loss, has_aux=True)(params, batch)
    norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in jax.tree.leaves(grads)))
    grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / norm), grads)
    velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, grads)
    params = jax.tree.map(lambda p, v: p - 0.01 * v, params, velocity)
    return params, velocity, {"loss": value, "accuracy": accuracy, "norm": norm}


layer = {"kernel": jnp.eye(96), "bias": jnp.zeros(96), "scale": jnp.ones(96)}
params = {"layers": [layer] * 6, "out": jnp.ones((96, 10)) / 96}
params = jax.device_put(params, NamedSharding(mesh, P()))
velocity = jax.tree.map(jnp.zeros_like, params)
batch = {"x": jnp.ones((64, 96)), "y": jnp.zeros(64, "int32")}
batch = jax.device_put(batch, NamedSharding(mesh, P("batch")))
for _ in range(2):
    params, velocity, metrics = train(params, velocity, batch)
