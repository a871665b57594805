"""The Snapshot of anything that `inspector.show` displays."""

import math
from collections.abc import Mapping

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Snapshot
from inspector.model import PyTree
from inspector.producers.arrays.records import entries_of
from inspector.producers.capture.capture import capture, capture_compiled


def snapshot_of(value: PyTree) -> Snapshot:
    """Return the Snapshot of an array, a pytree, a sharding, a mesh, or a compiled program.

    Raises:
      InvalidInput: the value contains no array.
    """
    if isinstance(value, Snapshot):
        return value
    if isinstance(value, Mesh):
        value = NamedSharding(value, PartitionSpec(value.axis_names))
    if isinstance(value, Sharding):
        return capture({"sharding": _smallest(value)})
    if _is_compiled(value):
        return capture_compiled(value)
    if isinstance(value, Mapping) and value and all(map(_is_compiled, value.values())):
        return capture_compiled(value)
    if isinstance(value, (jax.Array, jax.ShapeDtypeStruct)):
        return capture({"array": value})
    snapshot = capture(value)
    if not snapshot.arrays:
        kind = type(value).__name__
        raise InvalidInput(
            f"the value is a {kind} without arrays, but must be an array, a pytree, a sharding, a mesh, "
            "a compiled program or a Snapshot"
        )
    return snapshot


def _is_compiled(value: object) -> bool:
    # nnx and Equinox wrap `jax.stages.Compiled` in classes of this name.
    return isinstance(value, jax.stages.Compiled) or type(value).__name__ == "Compiled"


def _smallest(sharding: Sharding) -> jax.ShapeDtypeStruct:
    """Return the smallest array that the sharding divides: one element per shard."""
    if not isinstance(sharding, NamedSharding):
        return jax.ShapeDtypeStruct((len(sharding.device_set),), "int8", sharding=sharding)
    sizes = sharding.mesh.shape
    shape = []
    for entry in entries_of(sharding.spec):
        names = (entry,) if isinstance(entry, str) else entry or ()
        shape.append(math.prod(sizes[name] for name in names))
    return jax.ShapeDtypeStruct(tuple(shape), "int8", sharding=sharding)
