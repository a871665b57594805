"""Sweep an Ising lattice by Metropolis updates."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("sites",))
even = (jnp.indices((64, 64)).sum(0) % 2).astype(bool)


@jax.jit
def sweep(key, spins):
    for parity in (even, ~even):
        key, draw = jax.random.split(key)
        around = sum(jnp.roll(spins, shift, axis) for shift in (1, -1) for axis in (0, 1))
        accept = jax.random.uniform(draw, spins.shape) < jnp.exp(-0.8 * spins * around)
        spins = jnp.where(accept & parity, -spins, spins)
    return spins, spins.mean()


spins = jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, P("sites")))
for seed in range(3):
    spins, magnetization = sweep(jax.random.key(seed), spins)
