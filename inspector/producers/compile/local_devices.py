"""The devices that JAX found on this machine, for the target `local`."""

import jax

from inspector.core.errors import InvalidInput
from inspector.core.formatting import bytes_text, counted
from inspector.layout import Layout
from inspector.layout.fields import print_mesh


def require_usable(layout: Layout) -> None:
    """Refuse a layout that this machine cannot run.

    Raises:
      InvalidInput: JAX found fewer devices than the mesh has.
    """
    devices = jax.local_devices()
    if len(devices) < layout.devices:
        raise InvalidInput(
            f"mesh {print_mesh(layout.mesh_shape)} has {counted(layout.devices, 'device')}, but target "
            f"local has {len(devices):,} ({devices[0].device_kind})"
        )


def capacity() -> int | None:
    """Return the bytes that programs can use on the smallest local device; None if JAX does not know."""
    limits = [(device.memory_stats() or {}).get("bytes_limit") for device in jax.local_devices()]
    known = [int(limit) for limit in limits if limit]
    return min(known) if known and len(known) == len(limits) else None


def refuse_too_large(needed: int) -> None:
    """Refuse programs that do not fit on a device.

    Args:
      needed: bytes on each device, as the compiler counted them.

    Raises:
      InvalidInput: a device has less memory.
    """
    available = capacity()
    if available is not None and needed > available:
        raise InvalidInput(
            f"this layout as compiled needs {bytes_text(needed)} on each device, but a "
            f"{jax.local_devices()[0].device_kind} has {bytes_text(available)} for programs"
        )
