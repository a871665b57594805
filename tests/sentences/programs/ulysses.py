"""Exchange sequence for heads with two all-to-alls that the code calls."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("sp",))


@jax.jit
@jax.shard_map(mesh=mesh, in_specs=P("sp"), out_specs=P("sp"))
def attend(x):
    heads = jax.lax.all_to_all(x, "sp", 1, 0, tiled=True)
    scores = jax.nn.softmax(jnp.einsum("qhd,khd->hqk", heads, heads))
    out = jnp.einsum("hqk,khd->qhd", scores, heads)
    return jax.lax.all_to_all(out, "sp", 0, 1, tiled=True)


x = jax.device_put(jnp.ones((128, 8, 16)), NamedSharding(mesh, P("sp")))
for _ in range(2):
    x = attend(x)
