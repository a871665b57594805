"""Turn the counted moves of a program into plain JSON. Shardings become meshes and specs, or shards."""

from collections.abc import Mapping
from typing import Any

from jax.sharding import Mesh, NamedSharding, Sharding

from inspector.core import typed_json
from inspector.producers.arrays.records import mesh_record, shards_of, spec_of


def plain(counts: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the moves as JSON.

    Args:
      counts: the `counts` of a `Moves`.
    """
    meshes: dict[Mesh, int] = {}
    moves = [
        {
            "operation": operation,
            "place": place,
            "executions": count.value(),
            "arrays": [
                {
                    "count": number,
                    "shape": list(shape),
                    "dtype": str(dtype),
                    "itemsize": dtype.itemsize,
                    "source": _side(before, shape, meshes),
                    "target": _side(after, shape, meshes),
                }
                for (before, after, shape, dtype), number in arrays
            ],
        }
        for (operation, place, arrays), count in list(counts.items())
    ]
    return {"meshes": [typed_json.encode(mesh_record(mesh)) for mesh in meshes], "moves": moves}


def _side(sharding: Sharding, shape: tuple[int, ...], meshes: dict[Mesh, int]) -> dict[str, Any]:
    """Return the number of the mesh and the spec of a sharding, or its shards if it has none."""
    if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh):
        spec = sharding.spec
        # An array with partial sums is not described by the entries of the spec alone.
        partial = getattr(spec, "unreduced", None)
        if not sharding.mesh.empty and not partial:
            number = meshes.setdefault(sharding.mesh, len(meshes))
            return {"mesh": number, "spec": spec_of(spec, len(shape))}
    try:
        return {"shards": [[shard.device, shard.index] for shard in shards_of(sharding, shape)]}
    except Exception:  # sharding types raise different errors for shapes they cannot shard
        devices: set[Any] = sharding.device_set
        return {"devices": sorted(device.id for device in devices)}
