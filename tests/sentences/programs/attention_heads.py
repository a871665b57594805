"""Train attention with heads over one axis and the batch over another."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))


def attend(w, x):
    q, k, v = (jnp.einsum("btd,dhk->bthk", x, w[n]) for n in "qkv")
    scores = jax.nn.softmax(jnp.einsum("bqhk,bthk->bhqt", q, k))
    out = jnp.einsum("bhqt,bthk->bqhk", scores, v)
    return jnp.einsum("bqhk,hkd->bqd", out, w["o"])


@jax.jit
def train_step(w, x):
    value, g = jax.value_and_grad(lambda w: jnp.mean((attend(w, x) - x) ** 2))(w)
    return jax.tree.map(lambda a, b: a - 0.1 * b, w, g), value


w = {n: jax.device_put(jnp.ones((64, 8, 8)) * 0.1, NamedSharding(mesh, P(None, "model"))) for n in "qkv"}
w["o"] = jax.device_put(jnp.ones((8, 8, 64)) * 0.1, NamedSharding(mesh, P("model")))
x = jax.device_put(jnp.ones((4, 32, 64)), NamedSharding(mesh, P("data")))
for _ in range(2):
    w, value = train_step(w, x)
