"""Reduce and scatter in a custom gradient: the code asks for it."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("fsdp",))


@jax.custom_vjp
def gathered(w):
    return jax.lax.all_gather(w, "fsdp", tiled=True)


gathered.defvjp(
    lambda w: (gathered(w), None),
    lambda _, g: (jax.lax.psum_scatter(g, "fsdp", tiled=True),),
)


@jax.jit
@jax.shard_map(mesh=mesh, in_specs=(P("fsdp"), P("fsdp")), out_specs=P("fsdp"), check_vma=False)
def step(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.sum(jnp.tanh(x @ gathered(w))))(w)


w = jax.device_put(jnp.ones((128, 128)) / 128, NamedSharding(mesh, P("fsdp")))
x = jax.device_put(jnp.ones((64, 128)), NamedSharding(mesh, P("fsdp")))
for _ in range(2):
    w = step(w, x)
