"""JAX's meshes and PartitionSpecs as a Snapshot has them. Needs JAX alone, and never a device's memory."""

from __future__ import annotations

from typing import Any

from jax.sharding import Mesh, PartitionSpec

from inspector.core import snapshot
from inspector.core.snapshot import Memory, Spec


def mesh_record(mesh: Mesh) -> snapshot.Mesh:
    """A mesh of live devices as a Snapshot has it."""
    return snapshot.Mesh(
        axes=axis_records(mesh),
        devices=tuple(device.id for device in mesh.devices.flat),
        processes=tuple(device.process_index for device in mesh.devices.flat),
        device_kind=mesh.devices.flat[0].device_kind,
    )


def axis_records(mesh: Mesh) -> tuple[snapshot.MeshAxis, ...]:
    """The axes of a mesh, concrete or abstract."""
    return tuple(
        snapshot.MeshAxis(name, size, kind.name.lower())
        for (name, size), kind in zip(mesh.shape.items(), mesh.axis_types, strict=True)
    )


def spec_of(partition_spec: PartitionSpec, rank: int) -> Spec:
    """A PartitionSpec as a Snapshot has it: one entry a dimension, a tuple of names or None."""
    entries = tuple(
        (entry,) if isinstance(entry, str) else tuple(entry) if entry else None
        for entry in entries_of(partition_spec)
    )
    return entries + (None,) * (rank - len(entries))


def entries_of(partition_spec: PartitionSpec) -> tuple[Any, ...]:
    """Its entries as JAX has them. One with unreduced axes refuses to be iterated over, lest they be lost."""
    return tuple(partition_spec.partitions)


def memory_of(executable: Any) -> Memory | None:
    """The compiler's own analysis of one device's memory; None where it gives none."""
    analysis = executable.memory_analysis()
    if analysis is None:
        return None
    return Memory(
        arguments=analysis.argument_size_in_bytes,
        outputs=analysis.output_size_in_bytes,
        aliased=analysis.alias_size_in_bytes,
        temporaries=analysis.temp_size_in_bytes,
        code=analysis.generated_code_size_in_bytes,
        # Absent in some versions of jaxlib, and then not known.
        peak=getattr(analysis, "peak_memory_in_bytes", None),
    )
