"""Apply a linear operator and its adjoint: a transpose without a gradient."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("pixels",))


def blur(image):
    return image + 0.5 * (jnp.roll(image, 1, 0) + jnp.roll(image, -1, 0))


@jax.jit
def landweber(image, data):
    (back,) = jax.linear_transpose(blur, image)(data - blur(image))
    return image + 0.1 * back


cut = NamedSharding(mesh, P("pixels"))
image = jax.device_put(jnp.zeros((64, 64)), cut)
data = jax.device_put(jnp.ones((64, 64)), cut)
for _ in range(3):
    image = landweber(image, data)
