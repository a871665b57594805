"""Convert JAX objects to Snapshot records. Imports only JAX, and never reads the data of an array."""

import functools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import jax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec, Sharding

from inspector.records import snapshot
from inspector.records.snapshot import ArrayFacts, Memory, Shard, Spec


def mesh_record(mesh: Mesh | AbstractMesh) -> snapshot.Mesh:
    """Return a mesh as a record. Devices of an abstract mesh are numbered in mesh order."""
    axes = tuple(
        snapshot.MeshAxis(name, size, kind.name.lower())
        for (name, size), kind in zip(mesh.shape.items(), mesh.axis_types, strict=True)
    )
    if isinstance(mesh, AbstractMesh):
        return snapshot.Mesh(axes, tuple(range(mesh.size)), abstract=True)
    devices = mesh.devices.flatten().tolist()
    slices = tuple(
        device.slice_index for device in devices if getattr(device, "slice_index", None) is not None
    )
    return snapshot.Mesh(
        axes=axes,
        devices=tuple(device.id for device in devices),
        processes=tuple(device.process_index for device in devices),
        device_kind=devices[0].device_kind,
        slice_index=slices if len(slices) == len(devices) and len(set(slices)) > 1 else None,
    )


def spec_of(partition_spec: PartitionSpec, rank: int) -> Spec:
    """Return a `PartitionSpec` as a Spec with `rank` entries. Missing entries are None, as in JAX."""
    entries = dimension_axes(entries_of(partition_spec))
    return entries + (None,) * (rank - len(entries))


def entries_of(partition_spec: PartitionSpec) -> tuple[Any, ...]:
    """Return the entries of a `PartitionSpec`. One with unreduced axes cannot be iterated over."""
    return tuple(partition_spec.partitions)


def dimension_axes(names: Iterable[Any]) -> tuple[tuple[str, ...] | None, ...]:
    """Return a tuple of names, or None, for each of JAX's entries: a name, several names, or None."""
    return tuple((name,) if isinstance(name, str) else tuple(name) if name else None for name in names)


def whole_names(names: Sequence[Any] | None, rank: int) -> tuple[Any, ...] | None:
    """Return one entry per dimension. As in JAX, missing entries at the end are None."""
    return None if names is None else (*names, *(None,) * (rank - len(names)))


def named_spec(sharding: object, rank: int) -> Spec | None:
    """Return the Spec of a `NamedSharding`, None for another sharding."""
    return spec_of(sharding.spec, rank) if isinstance(sharding, NamedSharding) else None


def shards_of(sharding: Sharding, shape: tuple[int, ...]) -> tuple[Shard, ...]:
    """Return the shard of each device, in the order of the sharding's devices.

    Raises:
      ValueError: the mesh axes do not divide a dimension.
    """
    counts: Counter[Any] = Counter()
    shards = []
    device: jax.Device
    for device, index in sharding.devices_indices_map(shape).items():
        bounds = index_bounds(index, shape)
        shards.append(Shard(device.id, bounds, counts[bounds], device.process_index))
        counts[bounds] += 1
    return tuple(shards)


def index_bounds(index: tuple[slice, ...], shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Return (start, stop) of each dimension for the index of a `jax.Shard`."""
    return tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))


def largest_shape(shards: Iterable[Shard]) -> tuple[int, ...]:
    """Return the shape of the largest shard."""
    shapes = (tuple(stop - start for start, stop in shard.index) for shard in shards)
    return max(shapes, key=math.prod)


def array_facts(array: jax.Array) -> ArrayFacts:
    """Return the facts that a live `jax.Array` reports about its devices."""
    return ArrayFacts(committed=bool(array.committed), **_sharding_facts(array.sharding))


@functools.lru_cache(maxsize=256)
def _sharding_facts(sharding: Sharding) -> dict[str, Any]:
    devices: set[Any] = sharding.device_set
    if len(devices) == 1:
        placement = "single device"
    elif len({device.process_index for device in devices}) == 1:
        placement = "one process"
    else:
        placement = "several processes"
    return {
        "fully_addressable": sharding.is_fully_addressable,
        "fully_replicated": sharding.is_fully_replicated,
        "placement": placement,
        "devices": len(devices),
        "addressable_shards": len(sharding.addressable_devices),
        "global_shards": len(devices),
        "memory_kind": sharding.memory_kind,
    }


class Analyzed(Protocol):
    """A `jax.stages.Compiled`, or an object with its memory analysis."""

    def memory_analysis(self) -> Any: ...


def memory_of(compiled: Analyzed) -> Memory | None:
    """Return XLA's memory analysis of a compiled program for one device, None if there is none.

    Its peak for emulated devices leaves out temporaries (jaxlib 0.10.2 and 0.12), so it is unknown. For TPUs
    and GPUs it includes arguments and results in host memory, which are left out here.
    """
    analysis = compiled.memory_analysis()
    if analysis is None:
        return None
    arguments, outputs, aliased, temporaries = (
        getattr(analysis, f"host_{part}_size_in_bytes", 0) for part in ("argument", "output", "alias", "temp")
    )
    in_host = arguments + outputs - aliased
    return Memory(
        arguments=analysis.argument_size_in_bytes,
        outputs=analysis.output_size_in_bytes,
        aliased=analysis.alias_size_in_bytes,
        temporaries=analysis.temp_size_in_bytes,
        code=analysis.generated_code_size_in_bytes,
        peak=None if _emulated(compiled) else max(0, analysis.peak_memory_in_bytes - in_host),
        host=(in_host + temporaries) or None,
    )


def _emulated(compiled: object) -> bool:
    """Return whether a program was compiled for CPU devices."""
    shardings = jax.tree.leaves(
        (getattr(compiled, "input_shardings", ()), getattr(compiled, "output_shardings", ()))
    )
    return any(
        device.platform == "cpu"
        for sharding in shardings[:1]
        for device in getattr(sharding, "device_set", ())
    )


def bytes_per_device(compiled: jax.stages.Compiled) -> int:
    """Return the bytes that one run of a `jax.stages.Compiled` needs on one device, 0 if unknown."""
    memory = memory_of(compiled)
    if memory is None:
        return 0
    parts = (memory.arguments, memory.outputs, memory.temporaries)
    return sum(part or 0 for part in parts) - (memory.aliased or 0)
