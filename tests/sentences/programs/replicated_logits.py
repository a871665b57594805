"""Constrain the logits to a spec that leaves out the mesh axis of the head."""

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
AXIS = None


def put(value, *spec):
    return jax.device_put(value, NamedSharding(mesh, P(*spec)))


params = {
    "embedding": put(jnp.ones((1024, 256)), None, "model"),
    "head": put(jnp.ones((256, 1024)), None, "model"),
}
tokens = put(jnp.ones((16, 128), "int32"), "data")


def loss(params, tokens):
    logits = params["embedding"][tokens] @ params["head"]
    logits = jax.lax.with_sharding_constraint(logits, NamedSharding(mesh, P("data", None, AXIS)))
    return jax.nn.logsumexp(logits, -1).mean()


@jax.jit
def step(params, tokens):
    return jax.tree.map(lambda p, g: p - g, params, jax.grad(loss)(params, tokens))


step(params, tokens)
