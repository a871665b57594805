"""A bootstrap particle filter: weights are normalized over all devices, particles are resampled."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("particles",))
COUNT = 1024


@jax.jit
def run(particles, observations, key):
    def advance(state, inputs):
        particles, log_evidence = state
        observed, key = inputs
        move, pick = jax.random.split(key)
        particles = 0.9 * particles + 0.3 * jax.random.normal(move, particles.shape)
        log_weight = -0.5 * jnp.sum((particles - observed) ** 2, -1)
        log_evidence = log_evidence + jax.nn.logsumexp(log_weight) - jnp.log(COUNT)
        weight = jax.nn.softmax(log_weight)
        effective = 1.0 / jnp.sum(weight**2)
        positions = (jnp.arange(COUNT) + jax.random.uniform(pick)) / COUNT
        chosen = jnp.searchsorted(jnp.cumsum(weight), positions)
        return (particles[chosen], log_evidence), (effective, weight @ particles)

    keys = jax.random.split(key, observations.shape[0])
    return jax.lax.scan(advance, (particles, 0.0), (observations, keys))


particles = jax.device_put(
    jax.random.normal(jax.random.key(0), (COUNT, 8)), NamedSharding(mesh, P("particles"))
)
observations = jax.device_put(jnp.ones((12, 8)), NamedSharding(mesh, P()))
(particles, evidence), (effective, mean) = run(particles, observations, jax.random.key(1))
