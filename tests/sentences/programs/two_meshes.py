"""Roll out on one half of the devices, learn on the other."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

actors = Mesh(jax.devices()[:4], ("envs",))
learners = Mesh(jax.devices()[4:], ("data",))


@jax.jit
def act(w, state):
    return jnp.tanh(state @ w)


@jax.jit
def learn(w, state):
    return w - 0.1 * jax.grad(lambda w: jnp.mean((state @ w) ** 2))(w)


w = jax.device_put(jnp.ones((64, 64)) / 64, NamedSharding(learners, P()))
state = jax.device_put(jnp.ones((32, 64)), NamedSharding(actors, P("envs")))
for _ in range(2):
    state = act(jax.device_put(w, NamedSharding(actors, P())), state)
    w = learn(w, jax.device_put(state, NamedSharding(learners, P("data"))))
