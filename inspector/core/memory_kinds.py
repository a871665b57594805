"""The kind of memory that holds an array, and whether it is host memory."""

from inspector.core.snapshot import Array, Mesh

# JAX's names. `unpinned_host` was the default memory of emulated devices before JAX 0.5.
PINNED, UNPINNED = "pinned_host", "unpinned_host"


def memory_kind(array: Array) -> str | None:
    """Return the JAX memory kind of an array, such as `device` or `pinned_host`, or None if unknown."""
    if array.memory_kind is None and array.facts is not None:
        return array.facts.memory_kind
    return array.memory_kind


def in_host_memory(array: Array, mesh: Mesh | None = None) -> bool:
    """Return whether an array is in host memory, so that it takes no memory of a device."""
    kind = memory_kind(array)
    if kind == UNPINNED:
        return mesh is not None and mesh.device_kind not in (None, "cpu")
    return kind == PINNED
