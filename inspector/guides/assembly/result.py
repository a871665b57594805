"""What JAX made of an Assembly: the pieces that it was given, the arrays, or its error."""

from dataclasses import dataclass, field

from inspector.core.snapshot import Array
from inspector.core.typed_json import NonNegativeInt, Record
from inspector.guides.array_fields import JaxError


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
