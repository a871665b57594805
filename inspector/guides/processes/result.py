"""The global array that JAX made of host-local arrays, or its error, with an explanation."""

from dataclasses import dataclass, field
from typing import Any

from inspector import layout as layouts
from inspector.core.formatting import mesh_axes_text
from inspector.core.snapshot import Array, Mesh
from inspector.core.typed_json import NonNegativeInt, Record
from inspector.guides.array_fields import JaxError
from inspector.guides.processes.request import HostLocal, global_shape, local_mesh, ways


@dataclass(frozen=True)
class Held(Record):
    """One addressable shard: its device, its index ranges, and its numbers in row-major order."""

    device: NonNegativeInt
    index: tuple[tuple[NonNegativeInt, NonNegativeInt], ...]
    values: tuple[NonNegativeInt, ...]


@dataclass(frozen=True)
class View(Record):
    """The arrays as one process sees them.

    Attributes:
      local_mesh: The shape of the process's part of the mesh. None if it is not a block of the mesh.
      given: The numbers of the host-local array, in row-major order.
      addressable: The shards of the global array that this process holds.
      global_shards: The number of entries of `global_shards` in JAX.
      without_data: The number of these shards whose data is on other processes.
      reading: The error that JAX raised when the process read the whole array. None if it could.
      returned, returned_shape: The host-local array after the round trip. None if JAX raised an error.
    """

    process: NonNegativeInt
    processes: NonNegativeInt
    devices: tuple[NonNegativeInt, ...]
    all_devices: NonNegativeInt
    local_mesh: tuple[NonNegativeInt, ...] | None
    given: tuple[NonNegativeInt, ...]
    addressable: tuple[Held, ...] = ()
    global_shards: NonNegativeInt = 0
    without_data: NonNegativeInt = 0
    fully_addressable: bool | None = None
    fully_replicated: bool | None = None
    reading: str | None = None
    returned_shape: tuple[NonNegativeInt, ...] | None = None
    returned: tuple[NonNegativeInt, ...] | None = None


@dataclass(frozen=True)
class Exchanged(Record):
    """The result of a HostLocal. `array` is the global array, None if JAX raised an error."""

    mesh: Mesh
    array: Array | None
    sharding: str | None
    views: tuple[View, ...]
    refusal: JaxError | None
    versions: dict[str, str] = field(default_factory=dict)


def differing_copies(exchanged: Exchanged) -> tuple[tuple[int, int], ...]:
    """Return pairs of devices whose copies of the same block differ."""
    first: dict[Any, Held] = {}
    pairs = []
    for view in exchanged.views:
        for held in view.addressable:
            other = first.setdefault(held.index, held)
            if other.values != held.values:
                pairs.append((other.device, held.device))
    return tuple(pairs)


def verdict(request: HostLocal, exchanged: Exchanged) -> str:
    """Return one or two sentences that explain the result."""
    local = str(request.local_shape)
    if exchanged.refusal is not None:
        return _explanation(request, local)
    assert exchanged.array is not None  # JAX raised no error
    whole = str(exchanged.array.shape)
    if not request.convert:
        return (
            f"JAX took each process's {local} for the whole array, which no mesh axis splits. That is "
            "right only if every process gives the same numbers, which JAX does not check."
        )
    pairs = differing_copies(exchanged)
    if pairs:
        one, other = pairs[0]
        return (
            "The PartitionSpec says that processes hold copies of each other, but they gave different "
            f"numbers: devices {one} and {other} should hold the same and do not. JAX does not check "
            "it, and the results of computations are undefined."
        )
    if whole == local:
        return (
            f"{request.processes} processes with {local} each make one global array of {whole}. No mesh "
            "axis shards it across processes, so each process holds all of it."
        )
    return (
        f"{request.processes} processes with {local} each make one global array of {whole}; jit takes "
        f"that, and each process gets its {local} back."
    )


def _explanation(request: HostLocal, local: str) -> str:
    """Return the reason for the error."""
    part = local_mesh(request)
    if not request.convert:
        given = f"jit takes global shapes, and was given each process's own {local}"
        convert = "Convert it first with host_local_array_to_global_array"
        for dimension, (size, axes) in enumerate(zip(request.local_shape, request.spec, strict=True)):
            count = ways(axes, request, request.mesh_shape)
            if size % count:
                makes = global_shape(request)
                return (
                    f"{given}: dimension {dimension} should be divisible by {count}, the devices along "
                    f"{mesh_axes_text(axes or ())}, but it is equal to {size}. {convert}"
                    + (f", which makes {makes}." if makes else ".")
                )
        return (
            f"{given}. It divides, so that JAX cannot see the mistake in the shape; it refuses a NumPy "
            f"array here because processes may hold different ones. {convert}."
        )
    if part is None:
        return (
            f"The devices of a process must be a block of the mesh, but the "
            f"{request.devices // request.processes} of each process here are not one of "
            f"{layouts.print_mesh(request.mesh_shape)}. Choose mesh sizes that the processes divide, or "
            "use make_array_from_callback, which takes any mesh."
        )
    for dimension, (size, axes) in enumerate(zip(request.local_shape, request.spec, strict=True)):
        here = ways(axes, request, part)
        if size % here:
            return (
                f"A process has {here} of the devices along {mesh_axes_text(axes or ())}, and they cannot "
                f"share the {size} rows of dimension {dimension} of its {local}."
            )
    return "JAX refused for a reason that the shapes do not show: see its message."
