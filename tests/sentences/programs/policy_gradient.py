"""Roll out environments in a scan, then improve the policy."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("envs",))


@jax.jit
def improve(w, key, state):
    def reward(w):
        def step(carry, key):
            state, total = carry
            action = jnp.tanh(state @ w) + 0.1 * jax.random.normal(key, (64, 4))
            state = 0.9 * state + jnp.pad(action, ((0, 0), (0, 12)))
            return (state, total - jnp.mean(state**2)), None

        return jax.lax.scan(step, (state, 0.0), jax.random.split(key, 8))[0][1]

    value, g = jax.value_and_grad(reward)(w)
    return w + 0.1 * g, value


w = jax.device_put(jnp.ones((16, 4)), NamedSharding(mesh, P()))
state = jax.device_put(jnp.ones((64, 16)), NamedSharding(mesh, P("envs")))
for seed in range(2):
    w, value = improve(w, jax.random.key(seed), state)
