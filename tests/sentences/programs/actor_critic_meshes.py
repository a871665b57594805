"""An environment on two devices, a learner on six: several jitted functions on two meshes."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

rollout_mesh = Mesh(np.array(jax.devices()[:2]), ("env",))
learn_mesh = Mesh(np.array(jax.devices()[2:]).reshape(3, 2), ("batch", "width"))


def network(params, obs):
    hidden = jnp.tanh(obs @ params["torso"])
    return hidden @ params["actor"], (hidden @ params["critic"])[..., 0]


@jax.jit
def rollout(params, obs, key):
    def tick(obs, key):
        logits, value = network(params, obs)
        action = jax.random.categorical(key, logits)
        reward = -jnp.abs(obs).mean(-1)
        following = 0.9 * obs + 0.1 * jax.nn.one_hot(action, obs.shape[-1])
        return following, (obs, action, reward, value)

    return jax.lax.scan(tick, obs, jax.random.split(key, 6))


@jax.jit
def returns(reward, value):
    def back(carry, pair):
        carry = pair[0] + 0.99 * carry
        return carry, carry - pair[1]

    return jax.lax.scan(back, jnp.zeros(reward.shape[1]), (reward, value), reverse=True)[1]


@jax.jit
def update(params, obs, action, advantage):
    def loss(params):
        logits, value = network(params, obs)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], -1)[..., 0]
        return -(chosen * advantage).mean() + 0.5 * ((value - advantage) ** 2).mean()

    grads = jax.grad(loss)(params)
    norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(grads)))
    return jax.tree.map(lambda p, g: p - 0.1 * g / jnp.maximum(norm, 1.0), params, grads)


specs = {"torso": P(None, "width"), "actor": P("width"), "critic": P("width")}
params = {
    "torso": jnp.ones((16, 64)) / 16,
    "actor": jnp.ones((64, 16)) / 64,
    "critic": jnp.ones((64, 1)) / 64,
}
params = jax.tree.map(lambda p, s: jax.device_put(p, NamedSharding(learn_mesh, s)), params, specs)
obs = jax.device_put(jnp.ones((12, 16)), NamedSharding(rollout_mesh, P("env")))
for turn in range(2):
    copy = jax.device_put(params, NamedSharding(rollout_mesh, P()))
    obs, (seen, action, reward, value) = rollout(copy, obs, jax.random.key(turn))
    advantage = returns(reward, value)
    seen, action, advantage = (
        jax.device_put(x, NamedSharding(learn_mesh, P(None, "batch"))) for x in (seen, action, advantage)
    )
    params = update(params, seen, action, advantage)
