"""Train with batch over two axes and weights over the third."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(2, 2, 2), ("replica", "fsdp", "tensor"))


@jax.jit
def step(w, x):
    def loss(w):
        return jnp.mean((jax.nn.relu(x @ w["a"]) @ w["b"]) ** 2)

    g = jax.grad(loss)(w)
    return jax.tree.map(lambda p, g: p - 0.1 * g, w, g)


w = {
    "a": jax.device_put(jnp.ones((128, 256)) / 128, NamedSharding(mesh, P("fsdp", "tensor"))),
    "b": jax.device_put(jnp.ones((256, 128)) / 256, NamedSharding(mesh, P("tensor", "fsdp"))),
}
x = jax.device_put(jnp.ones((32, 128)), NamedSharding(mesh, P(("replica", "fsdp"))))
for _ in range(2):
    w = step(w, x)
