"""Arrays of one process and arrays of all: what `multihost_utils` takes each of them for.

Each process has an array of its own, the *host-local* one. `host_local_array_to_global_array` makes one
global array of all of them, and `global_array_to_host_local_array` gives each process its part back. A
HostLocal says what each process has and how the whole lies on the mesh; what JAX makes of it in real
processes is an `Exchanged`. All shapes follow from each other by arithmetic, which is here, without JAX.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from inspector import layout as layouts
from inspector.core import typed_json
from inspector.core.errors import InvalidInput, shown
from inspector.core.field_parser import Parsed, Reader
from inspector.core.snapshot import Array, Mesh, MeshAxis, Spec
from inspector.core.typed_json import NonNegativeInt, Record
from inspector.layout.record import DEVICE_NUMBERS_PER_PROCESS

Data = Literal["own", "same"]
Step = Literal["to_global", "jit", "to_local"]

# Every number is drawn, in three pictures, and the rows of four processes stand under each other.
MOST_SIZE = 16
MOST_DEVICES = 32
MOST_MESH_AXES = 3
MOST_DIMENSIONS = 2
PROCESS_COUNTS = (2, 4)

# The migration guide's: eight devices in two processes, of which each has four rows.
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
class HostLocal(Record):
    """A valid request. `spec` has an entry a dimension; `data` says whether each process has its own.

    Without `convert` the host-local arrays are given to jit as they are, which is the mistake that the
    migration guide warns of.
    """

    processes: NonNegativeInt
    mesh_shape: tuple[NonNegativeInt, ...]
    axis_names: tuple[str, ...]
    spec: Spec
    local_shape: tuple[NonNegativeInt, ...]
    data: Data = "own"
    convert: bool = True

    @property
    def devices(self) -> int:
        return math.prod(self.mesh_shape)

    def mesh(self) -> Mesh:
        """The devices of all processes in JAX's order, row by row."""
        axes = zip(self.axis_names, self.mesh_shape, strict=True)
        share = self.devices // self.processes
        places = range(self.devices)
        return Mesh(
            axes=tuple(MeshAxis(name, size) for name, size in axes),
            devices=tuple(p // share * DEVICE_NUMBERS_PER_PROCESS + p % share for p in places),
            processes=tuple(place // share for place in places),
            device_kind="cpu",
        )

    def given(self, process: int) -> np.ndarray:
        """The host-local array of a process: whole numbers that no other process has, or the same."""
        count = math.prod(self.local_shape)
        first = process * count if self.data == "own" else 0
        return np.arange(first, first + count, dtype=np.int32).reshape(self.local_shape)

    def to_json(self) -> dict[str, Any]:
        return typed_json.encode(self)

    def key(self) -> str:
        """Text that two requests share only if they are equal."""
        return json.dumps(self.to_json(), sort_keys=True)


@dataclass(frozen=True)
class Held(Record):
    """One addressable shard: its device, the part of the global array, and its numbers, row by row."""

    device: NonNegativeInt
    index: tuple[tuple[NonNegativeInt, NonNegativeInt], ...]
    values: tuple[NonNegativeInt, ...]


@dataclass(frozen=True)
class View(Record):
    """What one process sees.

    given, returned: the numbers of its host-local array, row by row, before and after; `returned` and
      its shape are None where nothing came back.
    local_mesh: the shape of its part of the mesh; None where that is no block of the mesh.
    addressable: the shards of the global array that it holds; empty where there is none.
    global_shards, without_data: how many shards `global_shards` lists, and for how many of them this
      process has no data.
    reading: JAX's own words when this process read the whole array; None where it could.
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
class Refusal(Record):
    """JAX's own error: the step at which it came, its class, its text, and which processes had it."""

    step: Step
    kind: str
    text: str
    processes: tuple[NonNegativeInt, ...]


@dataclass(frozen=True)
class Exchanged(Record):
    """What came of a HostLocal. `array` is the global array; None where JAX made none."""

    mesh: Mesh
    array: Array | None
    sharding: str | None
    views: tuple[View, ...]
    refusal: Refusal | None
    versions: dict[str, str] = field(default_factory=dict)


def parse(fields: Mapping[str, str]) -> Parsed[HostLocal]:
    """Read a HostLocal from the text of its fields; one that is absent has its default."""
    texts = DEFAULTS | dict(fields)
    reader = Reader(texts)
    read, problems = reader.read, reader.problems

    shape = read("mesh", _parse_mesh, (8,))
    axes: tuple[str, ...] = ()
    processes = 2
    if "mesh" not in problems:
        axes = read("axes", lambda text: layouts.parse_axes(text, shape), ())
        processes = read("processes", lambda text: _parse_processes(text, shape), 2)
    local = read("local", _parse_local, (1,))
    spec: Spec = ()
    if not problems:
        spec = read("spec", lambda text: _parse_spec(text, len(local), axes), ())
    data = read("data", lambda text: _choice(text, "data", Data.__args__), "own")
    convert = read("convert", lambda text: _choice(text, "convert", ("true", "false")), "true")
    if problems:
        return Parsed(None, problems)
    found = HostLocal(processes, shape, axes, spec, local, data, convert == "true")
    return Parsed(found)


def from_json(value: Any) -> HostLocal:
    """Read a HostLocal from parsed JSON.

    Raises:
      InvalidInput: it is not one, or not a valid one.
    """
    found = typed_json.decode(HostLocal, value, "the request")
    # Through the same parsers as text, so that there is one rule for both.
    fields = {
        "processes": str(found.processes),
        "mesh": "x".join(map(str, found.mesh_shape)),
        "axes": ",".join(found.axis_names),
        "spec": ",".join("+".join(axes) if axes else "None" for axes in found.spec),
        "local": "x".join(map(str, found.local_shape)),
        "data": found.data,
        "convert": layouts.print_size(found.convert),
    }
    return parse(fields).unwrap()


def local_mesh(wanted: HostLocal, process: int = 0) -> tuple[int, ...] | None:
    """The shape of a process's part of the mesh; None where its devices are no block of the mesh."""
    mine = np.array(wanted.mesh().processes).reshape(wanted.mesh_shape) == process
    places = np.argwhere(mine)
    extent = tuple((places.max(axis=0) - places.min(axis=0) + 1).tolist())
    return extent if math.prod(extent) == len(places) else None


def global_shape(wanted: HostLocal) -> tuple[int, ...] | None:
    """The shape of the global array that the host-local ones make; None where they make none."""
    part = local_mesh(wanted)
    if part is None:
        return None
    shape = []
    for size, axes in zip(wanted.local_shape, wanted.spec, strict=True):
        here, everywhere = _ways(axes, wanted, part), _ways(axes, wanted, wanted.mesh_shape)
        if size % here:
            return None
        shape.append(size // here * everywhere)
    return tuple(shape)


def differing_copies(exchanged: Exchanged) -> tuple[tuple[int, int], ...]:
    """Pairs of devices that should hold the same part of the global array, and do not."""
    first: dict[Any, Held] = {}
    pairs = []
    for view in exchanged.views:
        for held in view.addressable:
            other = first.setdefault(held.index, held)
            if other.values != held.values:
                pairs.append((other.device, held.device))
    return tuple(pairs)


def verdict(wanted: HostLocal, exchanged: Exchanged) -> str:
    """What happened and why, in a sentence or two, by the shapes alone."""
    local = _tuple(wanted.local_shape)
    if exchanged.refusal is not None:
        return _explanation(wanted, local)
    assert exchanged.array is not None  # what was not refused was made
    whole = _tuple(exchanged.array.shape)
    if not wanted.convert:
        return (
            f"JAX took each process's {local} for the whole array, which no mesh axis splits. That is "
            "right only if every process gives the same numbers: nobody checks it."
        )
    pairs = differing_copies(exchanged)
    if pairs:
        one, other = pairs[0]
        return (
            f"The PartitionSpec says that processes hold copies of each other, but they gave different "
            f"numbers: devices {one} and {other} should hold the same and do not. JAX does not check "
            "it, and what a computation gives then is undefined."
        )
    if whole == local:
        return (
            f"{wanted.processes} processes with {local} each make one global array of {whole}: no mesh "
            "axis that splits it crosses a process, so that each process has a copy of all of it."
        )
    return (
        f"{wanted.processes} processes with {local} each make one global array of {whole}; jit takes "
        f"that, and each process gets its {local} back."
    )


def _explanation(wanted: HostLocal, local: str) -> str:
    """Why JAX refused."""
    part = local_mesh(wanted)
    if not wanted.convert:
        for dimension, (size, axes) in enumerate(zip(wanted.local_shape, wanted.spec, strict=True)):
            ways = _ways(axes, wanted, wanted.mesh_shape)
            if size % ways:
                makes = global_shape(wanted)
                cure = f", which makes {_tuple(makes)}" if makes else ""
                return (
                    f"jit takes global shapes, and was given each process's own {local}: dimension "
                    f"{dimension} should be divisible by {ways}, the devices along "
                    f"{' × '.join(axes or ())}, but it is equal to {size}. Convert it first with "
                    f"host_local_array_to_global_array{cure}."
                )
        return (
            f"jit takes global shapes, and was given each process's own {local}. It divides, so that "
            "JAX cannot see the mistake in the shape; it refuses a NumPy array here because "
            "processes may hold different ones. Convert it first with "
            "host_local_array_to_global_array."
        )
    if part is None:
        return (
            f"The devices of a process must be a block of the mesh, and the "
            f"{wanted.devices // wanted.processes} of each process here are not one of "
            f"{layouts.print_mesh(wanted.mesh_shape)}. Choose mesh sizes that the processes divide, or "
            "use make_array_from_callback, which takes any mesh."
        )
    for dimension, (size, axes) in enumerate(zip(wanted.local_shape, wanted.spec, strict=True)):
        here = _ways(axes, wanted, part)
        if size % here:
            return (
                f"A process has {here} of the devices along {' × '.join(axes or ())}, and they cannot "
                f"share the {size} rows of dimension {dimension} of its {local}."
            )
    return "JAX refused for a reason that the shapes do not show; its own words stand beside."


def _ways(axes: tuple[str, ...] | None, wanted: HostLocal, sizes: tuple[int, ...]) -> int:
    by_name = dict(zip(wanted.axis_names, sizes, strict=True))
    return math.prod(by_name[axis] for axis in axes or ())


def _parse_mesh(text: str) -> tuple[int, ...]:
    shape = layouts.parse_mesh(text)
    for count, most, what in (
        (len(shape), MOST_MESH_AXES, "axes"),
        (math.prod(shape), MOST_DEVICES, "devices"),
    ):
        if count > most:
            raise InvalidInput(
                f"mesh {layouts.print_mesh(shape)} has {count} {what}, "
                f"at most {most} are allowed here"
            )
    return shape


def _parse_processes(text: str, shape: tuple[int, ...]) -> int:
    if text.strip() not in map(str, PROCESS_COUNTS):
        raise InvalidInput(
            f"processes is {shown(text)}, but must be {' or '.join(map(str, PROCESS_COUNTS))}"
        )
    return layouts.parse_processes(text, shape)


def _parse_local(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in re.split(r"[x×*,]", text.strip().strip("()").rstrip(","))]
    if not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts):
        raise InvalidInput(
            f"local shape is {shown(text)}, but must be sizes joined by x, such as 4x2"
        )
    shape = tuple(map(int, parts))
    if len(shape) > MOST_DIMENSIONS:
        raise InvalidInput(
            f"local shape {_tuple(shape)} has {len(shape)} dimensions, "
            f"at most {MOST_DIMENSIONS} are allowed here"
        )
    if not all(1 <= size <= MOST_SIZE for size in shape):
        raise InvalidInput(
            f"local shape is {_tuple(shape)}, but each size must be from 1 to {MOST_SIZE}"
        )
    return shape


def _parse_spec(text: str, rank: int, axis_names: tuple[str, ...]) -> Spec:
    entries = text.split(",") if text.strip() else []
    if len(entries) > rank:
        raise InvalidInput(
            f"spec is {shown(text)}, which has {len(entries)} entries, "
            f"but the array has {rank} dimension{'s' * (rank != 1)}"
        )
    spec = []
    for entry in entries:
        if entry.strip() in ("", "None"):
            spec.append(None)
            continue
        axes = tuple(part.strip() for part in entry.split("+"))
        for axis in axes:
            if axis not in axis_names:
                raise InvalidInput(
                    f"spec names mesh axis {shown(axis)}, but the mesh has {', '.join(axis_names)}"
                )
        spec.append(axes)
    used = [axis for axes in spec for axis in axes or ()]
    if len(set(used)) != len(used):
        raise InvalidInput(f"spec is {shown(text)}, but may use each mesh axis only once")
    return (*spec, *(None,) * (rank - len(spec)))


def _choice(text: str, name: str, allowed: tuple[str, ...]) -> Any:
    if text not in allowed:
        raise InvalidInput(f"{name} is {shown(text)}, but must be one of {', '.join(allowed)}")
    return text


def _tuple(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"
