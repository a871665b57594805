"""Keep named activations of a scan in the memory of the host until the backward pass."""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("data",))
policy = jax.checkpoint_policies.save_and_offload_only_these_names(
    names_which_can_be_saved=[],
    names_which_can_be_offloaded=["hidden"],
    offload_src="device",
    offload_dst="pinned_host",
)


def loss(params, x):
    def layer(x, w):
        return jnp.tanh(checkpoint_name(x @ w, "hidden")), None

    x, _ = jax.lax.scan(jax.checkpoint(layer, policy=policy, prevent_cse=False), x, params)
    return jnp.mean(x**2)


@jax.jit
def step(params, x):
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, x))


params = jax.device_put(jnp.ones((4, 128, 128)) / 128, NamedSharding(mesh, P()))
x = jax.device_put(jnp.ones((256, 128)), NamedSharding(mesh, P("data")))
for _ in range(2):
    params = step(params, x)
