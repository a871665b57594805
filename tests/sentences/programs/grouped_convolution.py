"""Convolve each channel by itself, channels over the devices."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("channels",))


@jax.jit
def depthwise(x, kernel):
    return jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=64
    )


x = jax.device_put(jnp.ones((4, 16, 16, 64)), NamedSharding(mesh, P(None, None, None, "channels")))
kernel = jax.device_put(jnp.ones((3, 3, 1, 64)), NamedSharding(mesh, P(None, None, None, "channels")))
y = depthwise(x, kernel)
