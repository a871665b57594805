"""Write the sharding that XLA chose as a PartitionSpec.

Public replacement: none. `jax.extend.sharding` makes XLA's object from its bytes, not a PartitionSpec.
Tried on JAX 0.10.2 and 0.12.0.
"""

from jax._src import sharding_impls
from jax.sharding import Mesh, PartitionSpec, Sharding


def spec_of(sharding: Sharding, mesh: Mesh) -> PartitionSpec:
    """Return the spec of the sharding of one array on a mesh."""
    (spec,) = sharding_impls.parse_flatten_op_sharding(sharding, mesh)
    return spec
