"""Requests to assemble a global array by hand: mesh, shape, spec, way of construction and a mistake.

The array contains its own element numbers 0, 1, 2, … in row-major order, so each number shows its position.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from inspector import layout as layouts
from inspector.guides.array_fields import (
    JaxError,
    MeshRequest,
    parse_integer,
    parse_mesh,
    parse_shape,
    parse_spec,
)
from inspector.records.snapshot import Array, Mesh, Spec
from inspector.records.typed_json import NonNegativeInt, Record
from inspector.sharding import placement as sharding
from inspector.text.errors import InvalidInput, require_one_of, shown
from inspector.text.field_parser import FieldParser, Parsed


@dataclass(frozen=True)
class Piece(Record):
    """A piece that JAX was given, in the order of the list.

    Attributes:
      meant_for: The device whose part of the array it is. None if JAX itself cuts the array.
      on: The device that held it when JAX joined the pieces. None if JAX moves it.
      shape: None if the callback returned nothing.
      values: Its numbers in row-major order.
    """

    meant_for: NonNegativeInt | None
    on: NonNegativeInt | None
    shape: tuple[NonNegativeInt, ...] | None
    dtype: str
    values: tuple[NonNegativeInt, ...]


@dataclass(frozen=True)
class Contents(Record):
    """The numbers in one device's shard, in row-major order."""

    device: NonNegativeInt
    shape: tuple[NonNegativeInt, ...]
    values: tuple[NonNegativeInt, ...]


@dataclass(frozen=True)
class Stage(Record):
    """A global array, its sharding as JAX prints it, and the contents of each shard in mesh order."""

    array: Array
    sharding: str
    contents: tuple[Contents, ...]


@dataclass(frozen=True)
class Assembled(Record):
    """The result of an Assembly.

    Attributes:
      shape: The global shape that JAX was given.
      joined: The assembled array. None if JAX raised an error.
      resharded: The resharded array. None if JAX raised an error or the request has no target.
      collectives: The operations of the collectives in the compiled reshard.
      refusal: The error that JAX raised.
    """

    shape: tuple[NonNegativeInt, ...]
    pieces: tuple[Piece, ...]
    joined: Stage | None
    resharded: Stage | None
    collectives: tuple[str, ...]
    refusal: JaxError | None
    versions: dict[str, str] = field(default_factory=dict)


Way = Literal["callback", "pieces", "device_put"]
Loading = Literal["array", "batch", "reshard"]
Step = Literal["cut", "move", "join", "reshard"]

# The page shows every number of every device, which must stay below a megabyte.
MOST_ELEMENTS = 4096
MOST_HELD = 65_536  # numbers on all devices together
MOST_DEVICES = 64
MOST_DIMENSIONS = 3

# The mesh and the arrays of JAX's reference page on `make_array_from_single_device_arrays`.
DEFAULTS = {
    "way": "pieces",
    "loading": "array",
    "mesh": "2x4",
    "axes": "x, y",
    "shape": "8x8",
    "spec": "x, y",
    "rows": "2",
    "features": "32",
    "batch_axes": "x + y",
    "target": "x, y",
    "mistake": "nothing",
    "device": "3",
}

WAYS: Mapping[Way, str] = {
    "callback": "make_array_from_callback",
    "pieces": "make_array_from_single_device_arrays",
    "device_put": "device_put",
}


@dataclass(frozen=True)
class Mistake:
    """A mistake, and the ways of construction in which it is possible."""

    title: str
    ways: tuple[Way, ...] = ("pieces",)


NO_MISTAKE = "nothing"
MISTAKES: Mapping[str, Mistake] = {
    NO_MISTAKE: Mistake("Nothing", ("callback", "pieces", "device_put")),
    "shape": Mistake("A piece of the wrong shape", ("callback", "pieces")),
    "missing": Mistake("A device without a piece", ("callback", "pieces")),
    "swapped": Mistake("Two pieces swapped", ("callback", "pieces", "device_put")),
    "same_device": Mistake("Two pieces on one device"),
    "unmoved": Mistake("Pieces not moved to their devices"),
    "list_order": Mistake("The list of pieces in reverse"),
    "dtype": Mistake("A wrong dtype", ("callback", "pieces", "device_put")),
    "copies": Mistake("Copies that differ", ("callback", "pieces")),
    "global_shape": Mistake("A global shape that the pieces do not make"),
    "indivisible": Mistake("A shape that the mesh does not divide", ("callback", "pieces", "device_put")),
}


@dataclass(frozen=True)
class Assembly(MeshRequest, Record):
    """A valid request. `spec` and `target` have one entry per dimension.

    Without `target`, the array is not resharded. `device` is the position, in mesh order, of the device
    whose piece has the mistake.
    """

    way: Way
    mesh_shape: tuple[NonNegativeInt, ...]
    axis_names: tuple[str, ...]
    shape: tuple[NonNegativeInt, ...]
    spec: Spec
    target: Spec | None = None
    mistake: str = NO_MISTAKE
    device: NonNegativeInt = 0

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    def with_mistake(self, mistake: str, device: int) -> Assembly:
        """Return the request with a mistake.

        Raises:
          InvalidInput: the mistake is not possible with this request.
        """
        return _checked(replace(self, mistake=mistake, device=device))


def parse(fields: Mapping[str, str]) -> Parsed[Assembly]:
    """Parse an Assembly from the text of its fields. Absent fields have their default.

    The field `loading` selects the fields that are read. `array` reads `shape` and `spec`. `batch` reads
    `rows` per device, `features` and `batch_axes`. `reshard` reads these and `target`, the final spec.
    """
    texts = DEFAULTS | dict(fields)
    parser = FieldParser(texts)
    read, problems = parser.parse, parser.problems

    loadings = get_args(Loading)
    loading = read("loading", lambda text: require_one_of("loading", text, loadings), "array")
    way: Any = read("way", lambda text: require_one_of("way", text, tuple(WAYS)), "pieces")
    mesh_shape: tuple[int, ...] = read("mesh", lambda text: parse_mesh(text, MOST_DEVICES), (1,))
    axes: tuple[str, ...] = ("x", "y", "z")[: len(mesh_shape)]
    if "mesh" not in problems:
        axes = read("axes", lambda text: layouts.parse_axes(text, mesh_shape), axes)
    if problems.keys() & {"mesh", "axes"}:
        # The other fields depend on these two.
        return Parsed(None, problems)
    shape: tuple[int, ...] = (1,)
    spec: Spec = ()
    if loading == "array":
        shape = read("shape", _parse_shape, shape)
        if not problems.keys() & {"shape"}:  # the spec depends on the rank
            spec = read("spec", lambda text: parse_spec(text, "spec", len(shape), axes), spec)
    else:
        shape, spec = _read_recipe(read, axes, mesh_shape)
    target = None
    if loading == "reshard":
        target = read("target", lambda text: parse_spec(text, "target", len(shape), axes), None)
    mistake = read("mistake", lambda text: require_one_of("mistake", text, tuple(MISTAKES)), NO_MISTAKE)
    last = math.prod(mesh_shape) - 1
    if "device" not in fields:
        texts["device"] = str(min(int(DEFAULTS["device"]), last))
    device = read("device", lambda text: parse_integer(text, "device", 0, last), 0)
    if not problems:
        try:
            return Parsed(_checked(Assembly(way, mesh_shape, axes, shape, spec, target, mistake, device)))
        except InvalidInput as refused:
            problems["mistake" if "mistake" in str(refused) else "shape"] = str(refused)
    return Parsed(None, problems)


def recipe(rows: int, features: int, batch_axes: tuple[str, ...], mesh: Mesh) -> tuple[tuple[int, ...], Spec]:
    """Return the global shape and the PartitionSpec of a data-parallel batch.

    Every device gets `rows` rows; devices along the batch axes get different rows.
    """
    return (rows * mesh.ways(batch_axes), features), (batch_axes or None, None)


def applicable(assembly: Assembly) -> Iterator[str]:
    """Yield the mistakes that are possible with this request, in the order of `MISTAKES`."""
    mesh = assembly.mesh()
    divides = not any(sharding.indivisible(assembly.shape, assembly.spec, mesh))
    ways = math.prod(sharding.ways_per_dimension(assembly.spec, mesh))
    possible = {
        "swapped": divides and ways > 1,
        "same_device": mesh.size > 1,
        "unmoved": mesh.size > 1,
        "list_order": mesh.size > 1,
        # JAX calls the callback once per distinct block.
        "copies": mesh.size > ways and (assembly.way == "pieces" or ways > 1),
        "indivisible": ways > 1,
    }
    for name in MISTAKES if divides else (NO_MISTAKE,):
        if assembly.way in MISTAKES[name].ways and possible.get(name, True):
            yield name


def swap_partner(assembly: Assembly) -> int:
    """Return the next device in mesh order that holds another block than `device`."""
    block = sharding.place(assembly.shape, assembly.spec, assembly.mesh()).block.tolist()
    after = [(assembly.device + step) % len(block) for step in range(1, len(block))]
    return next(other for other in after if block[other] != block[assembly.device])


def given_shape(assembly: Assembly) -> tuple[int, ...]:
    """Return the global shape that JAX is given. Some mistakes change it."""
    shape = list(assembly.shape)
    if assembly.mistake == "global_shape":
        shape[0] *= 2
    if assembly.mistake == "indivisible":
        ways = sharding.ways_per_dimension(assembly.spec, assembly.mesh())
        split = next(dimension for dimension, count in enumerate(ways) if count > 1)
        shape[split] += 1
    return tuple(shape)


def _read_recipe(read: Any, axes: tuple[str, ...], mesh_shape: tuple[int, ...]) -> Any:
    rows = read("rows", lambda text: parse_integer(text, "rows", 1, MOST_ELEMENTS), 1)
    features = read("features", lambda text: parse_integer(text, "features", 1, MOST_ELEMENTS), 1)
    batch_axes = read(
        "batch_axes", lambda text: layouts.parse_axes_of_dimension(text, axes, "batch_axes"), ()
    )
    mesh = Assembly("pieces", mesh_shape, axes, (1,), (None,)).mesh()
    shape, spec = recipe(rows, features, batch_axes, mesh)

    read("rows", lambda _: _refuse_too_many(shape), None)
    return shape, spec


def _checked(assembly: Assembly) -> Assembly:
    """Return the request, or raise InvalidInput if its fields contradict each other."""
    require_one_of("mistake", assembly.mistake, MISTAKES)
    for spec in (assembly.spec, assembly.target):
        if spec is not None:
            held = assembly.elements * sharding.replicas(spec, assembly.mesh())
            if held > MOST_HELD:
                raise InvalidInput(
                    f"shape {layouts.print_mesh(assembly.shape)} with its copies makes {held:,} numbers on "
                    f"{assembly.devices} devices, at most {MOST_HELD:,} are allowed"
                )
    possible = tuple(applicable(assembly))
    if assembly.mistake not in possible:
        raise InvalidInput(
            f"mistake is {shown(assembly.mistake)}, but with this array and {WAYS[assembly.way]} "
            f"only {', '.join(possible)} can be made"
        )
    if not 0 <= assembly.device < assembly.devices:
        raise InvalidInput(f"device is {assembly.device}, but must be from 0 to {assembly.devices - 1}")
    return assembly


def _parse_shape(text: str) -> tuple[int, ...]:
    shape = parse_shape(text, "shape", MOST_DIMENSIONS, MOST_ELEMENTS)
    _refuse_too_many(shape)
    return shape


def _refuse_too_many(shape: tuple[int, ...]) -> None:
    count = math.prod(shape)
    if count > MOST_ELEMENTS:
        text = layouts.print_mesh(shape)
        raise InvalidInput(f"shape {text} has {count:,} elements, but may have at most {MOST_ELEMENTS:,}")
