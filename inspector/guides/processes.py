"""Host-local arrays of several processes, as `multihost_utils` handles them: request, result and script.

Each process has a *host-local* array. `host_local_array_to_global_array` makes one global array of them, and
`global_array_to_host_local_array` returns its part to each process. The shapes are computed without JAX.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from inspector import layout as layouts
from inspector.guides.array_fields import (
    REFUSED,
    JaxError,
    MeshRequest,
    parse_mesh,
    parse_shape,
    parse_spec,
    result_snapshot,
)
from inspector.records import typed_json
from inspector.records.snapshot import Array, Mesh, Snapshot, Spec
from inspector.records.typed_json import NonNegativeInt, Record
from inspector.sharding.sharding_text import spec_text
from inspector.text.errors import InvalidInput, require_one_of, shown
from inspector.text.field_parser import FieldParser, Parsed
from inspector.text.formatting import mesh_axes_text

Data = Literal["own", "same"]

# Every number is drawn, in three figures, with the rows of up to four processes below each other.
MOST_SIZE = 16
MOST_DEVICES = 32
MOST_DIMENSIONS = 2
PROCESS_COUNTS = (2, 4)

# The example of JAX's migration guide: eight devices in two processes with four rows each.
DEFAULTS = {
    "processes": "2",
    "mesh": "8",
    "axes": "x",
    "spec": "x",
    "local": "4x2",
    "data": "own",
    "convert": "true",
}


@dataclass(frozen=True)
class HostLocal(MeshRequest, Record):
    """A valid request, with one entry of `spec` per dimension.

    `data` is `own` if each process has different data. Without `convert`, jit gets the host-local arrays
    as they are: the mistake that JAX's migration guide warns of.
    """

    processes: NonNegativeInt = field()  # without the default of MeshRequest
    mesh_shape: tuple[NonNegativeInt, ...]
    axis_names: tuple[str, ...]
    spec: Spec
    local_shape: tuple[NonNegativeInt, ...]
    data: Data = "own"
    convert: bool = True

    def given(self, process: int) -> np.ndarray:
        """Return the array of a process, of `local_shape`: integers of its own, or those of all processes."""
        count = math.prod(self.local_shape)
        first = process * count if self.data == "own" else 0
        return np.arange(first, first + count, dtype=np.int32).reshape(self.local_shape)


def parse(fields: Mapping[str, str]) -> Parsed[HostLocal]:
    """Parse a HostLocal from the text of its fields. Absent fields have their default."""
    texts = DEFAULTS | dict(fields)
    parser = FieldParser(texts)
    read, problems = parser.parse, parser.problems

    shape: tuple[int, ...] = read("mesh", lambda text: parse_mesh(text, MOST_DEVICES), (8,))
    axes: tuple[str, ...] = ()
    processes = 2
    if "mesh" not in problems:
        axes = read("axes", lambda text: layouts.parse_axes(text, shape), ())
        processes = read("processes", lambda text: _parse_processes(text, shape), 2)
    local: tuple[int, ...] = read(
        "local", lambda text: parse_shape(text, "local shape", MOST_DIMENSIONS, MOST_SIZE), (1,)
    )
    spec: Spec = ()
    if not problems:
        spec = read("spec", lambda text: parse_spec(text, "spec", len(local), axes), ())
    data: Any = read("data", lambda text: require_one_of("data", text, get_args(Data)), "own")
    convert = read("convert", lambda text: require_one_of("convert", text, ("true", "false")), "true")
    if problems:
        return Parsed(None, problems)
    return Parsed(HostLocal(processes, shape, axes, spec, local, data, convert == "true"))


def local_mesh(request: HostLocal, process: int = 0) -> tuple[int, ...] | None:
    """Return the shape of a process's part of the mesh. None if its devices are not a block of the mesh."""
    mine = np.array(request.mesh().processes).reshape(request.mesh_shape) == process
    places = np.argwhere(mine)
    extent = tuple((places.max(axis=0) - places.min(axis=0) + 1).tolist())
    return extent if math.prod(extent) == len(places) else None


def global_shape(request: HostLocal) -> tuple[int, ...] | None:
    """Return the shape of the global array. None if the host-local arrays do not form one."""
    part = local_mesh(request)
    if part is None:
        return None
    shape = []
    for size, axes in zip(request.local_shape, request.spec, strict=True):
        here, everywhere = ways(axes, request, part), ways(axes, request, request.mesh_shape)
        if size % here:
            return None
        shape.append(size // here * everywhere)
    return tuple(shape)


def ways(axes: tuple[str, ...] | None, request: HostLocal, sizes: tuple[int, ...]) -> int:
    by_name = dict(zip(request.axis_names, sizes, strict=True))
    return math.prod(by_name[axis] for axis in axes or ())


def _parse_processes(text: str, shape: tuple[int, ...]) -> int:
    if text.strip() not in map(str, PROCESS_COUNTS):
        raise InvalidInput(f"processes is {shown(text)}, but must be {' or '.join(map(str, PROCESS_COUNTS))}")
    return layouts.parse_processes(text, shape)


@dataclass(frozen=True)
class Held(Record):
    """One addressable shard: its device, its index ranges, and its numbers in row-major order."""

    device: NonNegativeInt
    index: tuple[tuple[NonNegativeInt, NonNegativeInt], ...]
    values: tuple[NonNegativeInt, ...]


@dataclass(frozen=True)
class ProcessView(Record):
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
    views: tuple[ProcessView, ...]
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


_SCRIPT = """\
import os
import socket
import subprocess
import sys

PROCESSES = {processes}

if len(sys.argv) == 1:  # started by hand: start the processes, and wait for them
    environment = os.environ | {{"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "{share}"}}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = "127.0.0.1:" + str(probe.getsockname()[1])  # process 0 will listen there
    commands = [[sys.executable, __file__, str(index), address] for index in range(PROCESSES)]
    started = [subprocess.Popen(command, env=environment) for command in commands]
    sys.exit(max(one.wait() for one in started))

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

index, address = int(sys.argv[1]), sys.argv[2]
jax.distributed.initialize(address, PROCESSES, index, coordinator_bind_address=address)

mesh = Mesh(np.array(jax.devices()).reshape({mesh_shape}), {names})
spec = {spec}
local = np.arange({elements}, dtype=np.int32).reshape({local_shape}){offset}
{convert}
computed = jax.jit(lambda x: x, in_shardings=NamedSharding(mesh, spec))({argument})
back = multihost_utils.global_array_to_host_local_array(computed, mesh, spec)

held = [(shard.device.id, shard.index) for shard in computed.addressable_shards]
print(f"process {{index}}: {{local.shape}} -> {{computed.shape}} -> {{back.shape}}, addresses {{held}}")
"""

_CONVERT = """
whole = multihost_utils.host_local_array_to_global_array(local, mesh, spec)
"""


def script(request: HostLocal) -> str:
    """Return the script."""
    count = request.given(0).size
    return _SCRIPT.format(
        processes=request.processes,
        share=request.devices // request.processes,
        mesh_shape=request.mesh_shape,
        names=request.axis_names,
        spec=spec_text(request.spec),
        elements=count,
        local_shape=request.local_shape,
        offset=f" + {count} * index" if request.data == "own" else "",
        convert=_CONVERT if request.convert else "",
        argument="whole" if request.convert else "local",
    )


DIFFERENT_COPIES = "different-copies"


def snapshot(request: HostLocal, exchanged: Exchanged) -> Snapshot:
    """Return the global array. The key `host_local` has the request and the view of each process."""
    error = None
    if exchanged.refusal is not None or differing_copies(exchanged):
        code = DIFFERENT_COPIES if exchanged.refusal is None else REFUSED
        error = code, verdict(request, exchanged)
    result = result_snapshot(
        exchanged.mesh,
        () if exchanged.array is None else (exchanged.array,),
        error,
        exchanged.versions,
        request.processes,
    )
    return replace(result, host_local={"asked": request.to_json(), "made": typed_json.encode(exchanged)})
