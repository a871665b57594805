"""The kind of memory that holds an array, and the element types that compilers pack into it."""

import math

from inspector.records.snapshot import Array, Mesh

# Bits per element, as XLA packs them. JAX and NumPy count one byte for each.
BITS = {"int1": 1, "uint1": 1, "int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4}


def is_packed(array: Array) -> bool:
    """Return whether compilers pack several elements of the array into one byte."""
    return array.dtype in BITS


def packed_bytes(dtype: str, elements: int, bytes: int) -> int:
    """Return the bytes of some elements as a compiler packs them, from those that JAX counts."""
    bits = BITS.get(dtype)
    return bytes if bits is None else math.ceil(elements * bits / 8)


def packed_per_device(array: Array) -> int | None:
    """Return the bytes of one device's shard as a compiler packs it; None if unknown."""
    if array.bytes_per_device is None or not is_packed(array):
        return array.bytes_per_device
    # JAX counts one byte per element of these types.
    return packed_bytes(array.dtype, array.bytes_per_device, array.bytes_per_device)


# JAX's names. `unpinned_host` was the default memory of emulated devices before JAX 0.5.
PINNED, UNPINNED = "pinned_host", "unpinned_host"


def memory_kind(array: Array) -> str | None:
    """Return the JAX memory kind of an array, such as `device` or `pinned_host`, or None if unknown."""
    if array.memory_kind is None and array.facts is not None:
        return array.facts.memory_kind
    return array.memory_kind


def in_host_memory(array: Array, mesh: Mesh | None = None) -> bool:
    """Return whether an array is in host memory, so that it takes no memory of a device."""
    return is_host_memory(memory_kind(array), mesh)


def is_host_memory(kind: str | None, mesh: Mesh | None) -> bool:
    """Return whether a JAX memory kind on the devices of a mesh is memory of the host."""
    if kind == UNPINNED:
        return mesh is not None and mesh.device_kind not in (None, "cpu")
    return kind == PINNED
