"""The content of the picture of a whole model. Bytes are those of one device, and of one step for moves."""

import math
from dataclasses import dataclass, field

from inspector.records.snapshot import Mesh, Phase


@dataclass(frozen=True)
class Dimension:
    """One dimension of an array.

    Attributes:
      size: Elements of the whole array.
      parts: Number of parts.
      axes: The mesh axes that cut it, major first; empty if it is whole, or if no mesh axes cut it.
      held: The half-open range of elements on the selected device. None if it holds nothing.
      name: Its logical axis, None without one.
      sizes: The sizes of these axes.
      edges: The bounds of the parts. None if each begins at a multiple of `piece`.
    """

    size: int
    parts: int = 1
    axes: tuple[str, ...] = ()
    held: tuple[int, int] | None = None
    name: str | None = None
    edges: tuple[int, ...] | None = None
    sizes: tuple[int, ...] = ()

    @property
    def piece(self) -> int:
        """Elements of a part; the last ones can be smaller."""
        return max(-(-self.size // self.parts), 1)

    @property
    def cuts(self) -> tuple[int, ...]:
        """The borders between two parts, in elements."""
        if self.edges is not None:
            return self.edges[1:-1]
        return tuple(range(self.piece, self.size, self.piece))


@dataclass(frozen=True)
class Move:
    """Collectives of one kind that move something for one reason.

    Attributes:
      op: The operation, such as all-gather.
      axes: The mesh axes along which it sends; None if unknown.
      network: `dcn` between TPU slices. None for other networks.
      subject: The moved values, such as weights or gradients. Weights are moved along axes that cut them.
      phases: The phases of a step in which it runs.
      bytes: Bytes that a device sends because of it in one step. None if unknown.
      executions: How often it runs in one step. None if unknown.
      collectives: Names of the instructions, the largest first.
      because: The arrays whose products need it, such as `down` for partial sums; empty if there are none.
      reason: Why it is there, as a sentence. None if unknown.
      of_iteration: Bytes that a device sends in each iteration of loops whose trip counts are unknown.
      once: Paths of the arrays that are gathered for the forward pass only, while others of the tile are
        gathered again for the backward pass.
    """

    op: str
    axes: tuple[str, ...] | None
    network: str | None
    subject: str
    phases: tuple[Phase, ...]
    bytes: int | None
    executions: int | None
    collectives: tuple[str, ...]
    because: tuple[str, ...] = ()
    reason: str | None = None
    of_iteration: int | None = None
    once: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tile:
    """Arrays that are alike: one of each layer, and those of one layer that have the same shape and cuts.

    Attributes:
      label: Their names in the model.
      paths: Their paths, those of the first layer first.
      dimensions: Of one of them in one layer. A leading dimension of layers is left out.
      rows: The number of dimensions that are drawn as rows; the others are columns.
      copies: Devices that hold each element. None if unknown.
      copied_over: The mesh axes along which these are; empty if unknown.
      bytes: Bytes of all of them on one device. None if unknown or if devices differ.
      dtype: Their element type.
      section: The module that it shares with other tiles of its group; empty without one.
      place: Their place, if that is neither on the mesh of the picture nor in device memory.
      layers: Number of layers in one array, if they are its leading dimension. 1 without.
      experts: Number of experts if they are a leading dimension that is not cut. 1 without.
      state: Bytes per device of their optimizer state, and the devices that hold each element of it. None if
        the number equals that of the arrays, or without state.
    """

    label: str
    paths: tuple[str, ...]
    dimensions: tuple[Dimension, ...]
    rows: int
    copies: int | None
    copied_over: tuple[str, ...]
    bytes: int | None
    dtype: str
    shape: tuple[int, ...] | None
    section: str = ""
    place: str = ""
    layers: int = 1
    experts: int = 1
    state: tuple[int, int] | None = None
    moves: tuple[Move, ...] = ()

    @property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes that cut it."""
        return tuple(dict.fromkeys(axis for dimension in self.dimensions for axis in dimension.axes))

    def sides(self) -> tuple[tuple[Dimension, ...], tuple[Dimension, ...]]:
        """Return the dimensions of rows and those of columns."""
        return self.dimensions[: self.rows], self.dimensions[self.rows :]


@dataclass(frozen=True)
class TileGroup:
    """Arrays that are used one after the other: a block with its multiplicity, or single arrays.

    Attributes:
      title: Its name, empty for single arrays.
      count: Number of layers.
      layers: The layers as a dimension if one array has all of them. None otherwise.
      stages: Number of stages of a pipeline, if they are these layers. 1 otherwise.
      activation: The activations in it; None if they are unknown.
      moves: The moves of its activations.
    """

    title: str
    count: int
    tiles: tuple[Tile, ...]
    layers: Dimension | None = None
    stages: int = 1
    activation: Tile | None = None
    moves: tuple[Move, ...] = ()


@dataclass(frozen=True)
class WholeModel:
    """Everything in the picture.

    Attributes:
      title: Model and mesh.
      groups: In the order in which data flows, if the program is known, else in the order of paths.
      elsewhere: Moves that belong to no group.
      mesh: The mesh whose axes cut the arrays.
      device: Position in the mesh of the selected device.
      missing: Why it is unknown what moves, as a sentence; empty otherwise.
      partners: The positions of the devices with which the selected one exchanges data, by the mesh axis
        along which they differ from it. None if it is unknown what moves.
      rejected: That JAX rejects the layout, as a sentence; empty otherwise. Nothing moves then.
      facts: Lines about the whole layout: memory and step.
      step: The name of one step.
      held: Bytes of all tiles on one device, and with their optimizer state. Empty if they are unknown.
      lane: The values that the moves of groups move.
      more: The parts that are not drawn.
    """

    title: str
    groups: tuple[TileGroup, ...]
    elsewhere: tuple[Move, ...]
    mesh: Mesh
    device: int
    missing: str = ""
    partners: dict[str, list[int]] | None = field(default=None, hash=False)
    rejected: str = ""
    facts: tuple[str, ...] = ()
    step: str = "step"
    held: str = ""
    lane: str = "activations"
    more: str = ""

    @property
    def coordinates(self) -> dict[str, int]:
        """The place of the selected device along each mesh axis."""
        return coordinates(self.mesh, self.device)


def coordinates(mesh: Mesh, position: int) -> dict[str, int]:
    """Return the place of a device along each mesh axis."""
    places: dict[str, int] = {}
    for axis in reversed(mesh.axes):
        position, places[axis.name] = divmod(position, axis.size)
    return {axis.name: places[axis.name] for axis in mesh.axes}


def position_of(mesh: Mesh, places: dict[str, int]) -> int:
    """Return the position in mesh order of the device at these places."""
    position = 0
    for axis in mesh.axes:
        position = position * axis.size + places[axis.name]
    return position


def along_axes(mesh: Mesh, position: int) -> dict[str, list[int]]:
    """Return the positions of the devices that differ from a device along one mesh axis only, by the axis."""
    places = coordinates(mesh, position)
    return {
        axis.name: [
            position_of(mesh, places | {axis.name: at}) for at in range(axis.size) if at != places[axis.name]
        ]
        for axis in mesh.axes
        if axis.size > 1
    }


def telling_device(mesh: Mesh) -> int:
    """Return the position of a device whose places along the mesh axes differ, if sizes allow.

    A block that it holds then shows which axis selects it.
    """
    places: dict[str, int] = {}
    for axis in sorted(mesh.axes, key=lambda axis: axis.size):
        free = [at for at in (*range(1, axis.size), 0) if at not in places.values()]
        places[axis.name] = free[0] if free and axis.size > 1 else axis.size - 1
    return position_of(mesh, places)


def product(dimensions: tuple[Dimension, ...]) -> int:
    """Return the elements along a side."""
    return math.prod(dimension.size for dimension in dimensions)
