"""Spectral diffusion on pencils: an all-to-all between the transforms of a sharded and a whole dimension."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("rows", "cols"))
N = 64


@partial(jax.shard_map, mesh=mesh, in_specs=P("rows", "cols"), out_specs=P("rows", "cols"))
def transform(u):
    u = jax.lax.all_to_all(u, "cols", split_axis=0, concat_axis=1, tiled=True)
    u = jnp.fft.fft(u, axis=1)
    u = jax.lax.all_to_all(u, "cols", split_axis=1, concat_axis=0, tiled=True)
    u = jax.lax.all_to_all(u, "rows", split_axis=1, concat_axis=0, tiled=True)
    u = jnp.fft.fft(u, axis=0)
    return jax.lax.all_to_all(u, "rows", split_axis=0, concat_axis=1, tiled=True)


@jax.jit
def diffuse(u, steps):
    k = jnp.fft.fftfreq(N) * N
    decay = jnp.exp(-0.01 * (k[:, None] ** 2 + k[None] ** 2))

    def body(_, u):
        spectrum = transform(u.astype("complex64")) * decay
        return jnp.conj(transform(jnp.conj(spectrum))).real / N**2

    u = jax.lax.fori_loop(0, steps, body, u)
    return u, jnp.sum(u), jnp.max(jnp.abs(u))


u = jax.device_put(jax.random.normal(jax.random.key(0), (N, N)), NamedSharding(mesh, P("rows", "cols")))
u, mass, largest = diffuse(u, 3)
