"""Train a generator and a critic in turn."""

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("data",))
opt = optax.adam(1e-3)


def judge(critic, generator, z):
    return jnp.mean(jnp.tanh(z @ generator) @ critic)


@jax.jit
def generator_step(generator, state, critic, z):
    g = jax.grad(judge, 1)(critic, generator, z)
    updates, state = opt.update(g, state)
    return generator + updates, state


@jax.jit
def critic_step(critic, state, generator, z):
    g = jax.grad(judge)(critic, generator, z)
    updates, state = opt.update(g, state)
    return critic - updates, state


generator = jax.device_put(jnp.ones((32, 64)), NamedSharding(mesh, P()))
critic = jax.device_put(jnp.ones((64, 1)), NamedSharding(mesh, P()))
gs, cs = opt.init(generator), opt.init(critic)
z = jax.device_put(jnp.ones((64, 32)), NamedSharding(mesh, P("data")))
for _ in range(2):
    generator, gs = generator_step(generator, gs, critic, z)
    critic, cs = critic_step(critic, cs, generator, z)
