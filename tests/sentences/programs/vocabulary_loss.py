"""Compute a cross entropy over a sharded vocabulary."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "vocab"))


def loss(head, x, labels):
    logits = jax.nn.log_softmax(x @ head)
    return -jnp.mean(jnp.take_along_axis(logits, labels[:, None], 1))


step = jax.jit(lambda head, x, labels: head - jax.grad(loss)(head, x, labels))
head = jax.device_put(jnp.ones((64, 1024)), NamedSharding(mesh, P(None, "vocab")))
x = jax.device_put(jnp.ones((32, 64)), NamedSharding(mesh, P("data")))
labels = jax.device_put(jnp.arange(32), NamedSharding(mesh, P("data")))
for _ in range(2):
    head = step(head, x, labels)
