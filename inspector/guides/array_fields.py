"""Parsers, records and the Snapshot that the guides share. Parsers raise InvalidInput for a wrong text."""

import datetime
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from inspector import layout as layouts
from inspector.layout.layout import DEVICE_NUMBERS_PER_PROCESS
from inspector.records import typed_json
from inspector.records.snapshot import Array, Finding, Mesh, MeshAxis, Snapshot, Source, Spec
from inspector.records.typed_json import OMIT_NONE, NonNegativeInt, Record
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import counted

MAX_MESH_AXES = 3
REFUSED = "refused-by-jax"  # the code of the finding if JAX raised an error


class MeshRequest:
    """A mixin for requests on a mesh of emulated devices in one or several processes."""

    mesh_shape: tuple[int, ...]
    axis_names: tuple[str, ...]
    processes: int = 1

    @property
    def devices(self) -> int:
        return math.prod(self.mesh_shape)

    def mesh(self) -> Mesh:
        """Return the mesh of the devices of all processes, in JAX's order."""
        share = self.devices // self.processes
        places = range(self.devices)
        return Mesh(
            axes=tuple(map(MeshAxis, self.axis_names, self.mesh_shape)),
            devices=tuple(p // share * DEVICE_NUMBERS_PER_PROCESS + p % share for p in places),
            processes=tuple(place // share for place in places),
            device_kind="cpu",
        )

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = typed_json.encode(self)
        return plain

    def key(self) -> str:
        """Return text that identifies the request."""
        return json.dumps(self.to_json(), sort_keys=True)


@dataclass(frozen=True)
class JaxError(Record):
    """An error that JAX raised.

    Attributes:
      step: The step that raised it.
      kind: The class of the exception.
      text: The message.
      processes: The processes that raised it. None if there is one process.
    """

    step: str
    kind: str
    text: str
    processes: tuple[NonNegativeInt, ...] | None = field(default=None, metadata=OMIT_NONE)


def result_snapshot(
    mesh: Mesh,
    arrays: Sequence[Array],
    error: tuple[str, str] | None,
    versions: dict[str, str],
    processes: int = 1,
) -> Snapshot:
    """Return the arrays that JAX made as a Snapshot. `error` is the code and the message of a finding."""
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Snapshot(
        source=Source("cpu", "cpu", created, versions, processes=processes),
        layout=None,
        mesh=mesh,
        arrays=tuple(arrays),
        findings=() if error is None else (Finding("error", *error),),
    )


def parse_mesh(text: str, max_devices: int) -> tuple[int, ...]:
    """Parse the sizes of at most three mesh axes, joined by `x`; raise InvalidInput for another text."""
    shape = layouts.parse_mesh(text)
    mesh = f"mesh {layouts.print_mesh(shape)}"
    for count, most, noun in (
        (len(shape), MAX_MESH_AXES, "axes"),
        (math.prod(shape), max_devices, "devices"),
    ):
        if count > most:
            raise InvalidInput(f"{mesh} has {count} {noun}, but may have at most {most}")
    return shape


def parse_shape(text: str, name: str, max_dimensions: int, max_size: int) -> tuple[int, ...]:
    """Parse sizes to `max_size`, joined by `x` or commas, also in parentheses, or raise InvalidInput."""
    parts = [part.strip() for part in re.split(r"[x×*,]", text.strip().strip("()").rstrip(","))]
    if not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts):
        raise InvalidInput(f"{name} is {shown(text)}, but must be sizes joined by x, such as 8x4")
    shape = tuple(map(int, parts))
    if len(shape) > max_dimensions:
        raise InvalidInput(f"{name} has {len(shape)} dimensions, but may have at most {max_dimensions}")
    if not all(1 <= size <= max_size for size in shape):
        raise InvalidInput(f"{name} is {shown(text)}, but each size must be from 1 to {max_size:,}")
    return shape


def parse_spec(text: str, name: str, rank: int, axis_names: Sequence[str]) -> Spec:
    """Parse a PartitionSpec: for each dimension a mesh axis, several joined by `+`, or None.

    Dimensions without an entry are replicated. Raise InvalidInput for another text.
    """
    entries = text.split(",") if text.strip() else []
    if len(entries) > rank:
        raise InvalidInput(
            f"{name} is {shown(text)}, which has {len(entries)} entries, "
            f"but the array has {counted(rank, 'dimension')}"
        )
    spec = tuple(layouts.parse_axes_of_dimension(entry, axis_names, name) or None for entry in entries)
    used = [axis for axes in spec for axis in axes or ()]
    if len(set(used)) != len(used):
        raise InvalidInput(f"{name} is {shown(text)}, but may use each mesh axis only once")
    return spec + (None,) * (rank - len(spec))


def parse_integer(text: str, name: str, least: int, most: int) -> int:
    """Parse an integer from `least` to `most`; raise InvalidInput for another text."""
    number = int(text) if re.fullmatch(r"[0-9]{1,9}", text.strip()) else None
    if number is None or not least <= number <= most:
        raise InvalidInput(f"{name} is {shown(text)}, but must be an integer from {least} to {most:,}")
    return number
