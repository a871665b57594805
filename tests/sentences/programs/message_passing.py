"""Pass messages along edges; nodes and edges are cut."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("graph",))


@jax.jit
def layer(nodes, source, target, w):
    return jax.nn.relu(jax.ops.segment_sum(nodes[source] @ w, target, nodes.shape[0]))


cut = NamedSharding(mesh, P("graph"))
nodes = jax.device_put(jnp.ones((256, 32)), cut)
source, target = (jax.device_put(jnp.arange(1024) * k % 256, cut) for k in (3, 5))
w = jax.device_put(jnp.ones((32, 32)) / 128, NamedSharding(mesh, P()))
for _ in range(2):
    nodes = layer(nodes, source, target, w)
