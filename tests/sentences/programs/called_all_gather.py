"""Gather the weights of a layer by hand before their use."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("fsdp",))


@jax.jit
@jax.shard_map(mesh=mesh, in_specs=(P("fsdp"), P("fsdp")), out_specs=P("fsdp"))
def layer(w, x):
    full = jax.lax.all_gather(w, "fsdp", tiled=True)
    return jnp.tanh(x @ full)


w = jax.device_put(jnp.ones((256, 256)) / 256, NamedSharding(mesh, P("fsdp")))
x = jax.device_put(jnp.ones((64, 256)), NamedSharding(mesh, P("fsdp")))
for _ in range(2):
    x = layer(w, x)
