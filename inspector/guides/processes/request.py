"""Requests for host-local arrays of several processes, as `multihost_utils` handles them.

Each process has a *host-local* array. `host_local_array_to_global_array` makes one global array of them, and
`global_array_to_host_local_array` returns its part to each process. The shapes are computed without JAX.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from inspector import layout as layouts
from inspector.core import typed_json
from inspector.core.errors import InvalidInput, shown
from inspector.core.field_parser import FieldParser, Parsed
from inspector.core.snapshot import Spec
from inspector.core.typed_json import NonNegativeInt, Record
from inspector.guides.array_fields import (
    MeshRequest,
    parse_choice,
    parse_mesh,
    parse_shape,
    parse_spec,
    print_spec,
)

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
        """Return the host-local array of a process: different integers in each process, or the same."""
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
    data: Data = read("data", lambda text: parse_choice(text, "data", get_args(Data)), "own")
    convert = read("convert", lambda text: parse_choice(text, "convert", ("true", "false")), "true")
    if problems:
        return Parsed(None, problems)
    return Parsed(HostLocal(processes, shape, axes, spec, local, data, convert == "true"))


def from_json(value: Any) -> HostLocal:
    """Return the HostLocal in parsed JSON.

    Raises:
      InvalidInput: a field is missing or invalid.
    """
    request = typed_json.decode(HostLocal, value, "the request")
    # The parsers of the text fields also check the values in JSON.
    fields = {
        "processes": str(request.processes),
        "mesh": layouts.print_mesh(request.mesh_shape),
        "axes": ",".join(request.axis_names),
        "spec": print_spec(request.spec),
        "local": layouts.print_mesh(request.local_shape),
        "data": request.data,
        "convert": layouts.print_size(request.convert),
    }
    return parse(fields).unwrap()


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
