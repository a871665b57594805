"""Records of a mesh, of the arrays on it and of their origins. None means unknown unless said otherwise."""

import functools
import math
from dataclasses import dataclass, field
from typing import Literal

from inspector.records.typed_json import OMIT_DEFAULT, OMIT_NONE, NonNegativeInt, PositiveInt, Record

Direction = Literal["forward", "backward", "across"]


@dataclass(frozen=True)
class PropagationStep(Record):
    """One operation through which propagation carried a mesh axis.

    Attributes:
      operation: The operation as StableHLO names it, such as dot_general or while.
      direction: forward from an operand to a result, backward from a result to an operand, across between
        two operands or two results.
      op_name: The operation of the model, from JAX's name stack. None if unknown.
      source: File and line of the operation, such as file.py:31. None if unknown.
    """

    operation: str
    direction: Direction
    op_name: str | None = field(default=None, metadata=OMIT_NONE)
    source: str | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class Origin(Record):
    """The origin of the sharding of a value over a mesh axis.

    Attributes:
      mesh_axis: Name of the mesh axis.
      from_: Path of an array, or a sharding constraint with its file and line.
      rule: The rule that put the mesh axis there, such as `embed → fsdp`. None if unknown.
      steps: The operations that carried the mesh axis from there to the value, in this order. None if this
        was not recorded.
    """

    mesh_axis: str
    from_: str = field(metadata={"key": "from"})
    rule: str | None = field(default=None, metadata=OMIT_NONE)
    steps: tuple[PropagationStep, ...] | None = field(default=None, metadata=OMIT_NONE)


Group = Literal["params", "opt_state", "batch", "output", "activation", "gradient", "cache", "other"]

# One entry per dimension: the mesh axes that shard it, major first, or None if it is not sharded.
Spec = tuple[tuple[str, ...] | None, ...]


@dataclass(frozen=True)
class MeshAxis(Record):
    """One named mesh axis.

    Attributes:
      name: Name of the mesh axis, unique in the mesh.
      size: Number of devices along the axis.
      type: JAX's AxisType in lower case: auto, explicit or manual. The default is auto.
    """

    name: str
    size: PositiveInt
    type: str = "auto"


@dataclass(frozen=True)
class Mesh(Record):
    """The named grid of devices that arrays are sharded over.

    Attributes:
      axes: Mesh axes, major first. The product of their sizes is the number of devices.
      devices: Device ids in row-major mesh order: the last axis varies fastest. Each id occurs once.
      processes: Process index of each device, in the order of `devices`.
      device_kind: The kind of device as JAX names it: cpu, TPU v5p, NVIDIA H100.
      abstract: Whether the devices are unknown, so that they are numbered in mesh order.
      slice_index: Number of the TPU slice of each device, in the order of `devices`. None for one slice.
      device_order: How the devices of a target were put in order: row-major or torus. None without a target.
      split: Whether several mesh axes share one axis of the torus. None without a torus.
      topology: Number of chips of one TPU slice along x, y and, on some chips, z. None without a torus.
      wraps: Whether the ends of each axis of the torus are linked. None without a torus.
      coordinates: Position of each device's chip along x, y and z of its slice, in the order of `devices`.
        None without a torus.
      cores: Number of each device on its chip, in the order of `devices`. None without a torus.
    """

    axes: tuple[MeshAxis, ...]
    devices: tuple[NonNegativeInt, ...] = field(hash=False)
    processes: tuple[NonNegativeInt, ...] | None = field(default=None, hash=False)
    device_kind: str | None = None
    abstract: bool = field(default=False, metadata=OMIT_DEFAULT)
    # Of thousands of devices. `devices` is enough for the hash.
    slice_index: tuple[NonNegativeInt, ...] | None = field(default=None, metadata=OMIT_NONE, hash=False)
    device_order: str | None = field(default=None, metadata=OMIT_NONE)
    split: bool | None = field(default=None, metadata=OMIT_NONE)
    topology: tuple[NonNegativeInt, ...] | None = field(default=None, metadata=OMIT_NONE)
    wraps: tuple[bool, ...] | None = field(default=None, metadata=OMIT_NONE)
    coordinates: tuple[tuple[NonNegativeInt, ...], ...] | None = field(
        default=None, metadata=OMIT_NONE, hash=False
    )
    cores: tuple[NonNegativeInt, ...] | None = field(default=None, metadata=OMIT_NONE, hash=False)

    @functools.cached_property
    def shape(self) -> tuple[int, ...]:
        return tuple(axis.size for axis in self.axes)

    @property
    def axis_names(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes)

    @functools.cached_property
    def size(self) -> int:
        return math.prod(self.shape)

    def ways(self, axes: tuple[str, ...] | None) -> int:
        """Return the number of parts of a dimension that is sharded over `axes` (1 for None)."""
        return math.prod([self.sizes[name] for name in axes]) if axes else 1

    @functools.cached_property
    def sizes(self) -> dict[str, int]:
        return {axis.name: axis.size for axis in self.axes}


@dataclass(frozen=True)
class Shard(Record):
    """The part of an array that one device holds.

    Attributes:
      device: Id of the device.
      index: A half-open range of element positions [start, stop] for each dimension of the array.
      replica: Which copy of its block this is, counted from 0 in mesh order.
      process: Index of the process that owns the device.
    """

    device: NonNegativeInt
    index: tuple[tuple[NonNegativeInt, NonNegativeInt], ...]
    replica: NonNegativeInt
    process: NonNegativeInt | None = None


@dataclass(frozen=True)
class Box(Record):
    """The Flax box around a value.

    Attributes:
      kind: Class of the box: Partitioned, LogicallyPartitioned.
      names: Axis names of each dimension. None for a dimension without a name.
    """

    kind: str
    names: tuple[tuple[str, ...] | None, ...]


@dataclass(frozen=True)
class ArrayFacts(Record):
    """Properties of a live jax.Array, as the process that inspected it sees them.

    Attributes:
      committed: Whether the array is committed to its devices.
      fully_addressable: Whether this process can address all devices of the array.
      fully_replicated: Whether each device of the array holds all of it.
      placement: One of: single device, one process, several processes.
      devices: Number of devices that hold the array.
      addressable_shards: Number of shards that this process can address.
      global_shards: Number of shards in all processes.
      memory_kind: Kind of memory that holds the array, as JAX names it: device, pinned_host.
    """

    committed: bool
    fully_addressable: bool
    fully_replicated: bool
    placement: str
    devices: NonNegativeInt
    addressable_shards: NonNegativeInt
    global_shards: NonNegativeInt
    memory_kind: str | None


@dataclass(frozen=True)
class ShardMap(Record):
    """The placement of a value inside a `shard_map`: each device has its own along some mesh axes.

    Attributes:
      manual_axes: Mesh axes along which each device has its own value.
      other_axes: For each dimension the other mesh axes that shard it, or None.
    """

    manual_axes: tuple[str, ...]
    other_axes: Spec = ()


@dataclass(frozen=True)
class Array(Record):
    """One array and its sharding.

    Attributes:
      path: Path of the array in its tree, keys joined by "/", unique in the Snapshot.
      group: Use of the array.
      shape: Global shape, elements in each dimension. None if unknown; `spec` may then be shorter.
      dtype: Element type as NumPy and JAX name it: float32, bfloat16, int32.
      memory_kind: Kind of memory that holds the array, as JAX names it: device, pinned_host.
      logical_axes: Logical axis of each dimension, or None. None as a whole if the model has no logical
        axes.
      spec: The PartitionSpec: for each dimension the mesh axes that shard it, major first, or None. None
        as a whole if the array has no NamedSharding.
      shard_shape: Shape of one device's shard, elements in each dimension. None if unknown or if devices
        differ.
      bytes: Bytes of the whole array, counted once.
      bytes_per_device: Bytes of the array on one device. None if unknown or if devices differ.
      replicas: Number of devices that hold each element.
      shards: The shard of each device. None if `spec` describes them.
      box: The Flax box around the array. None if it has no box, or if this is unknown.
      facts: Properties of the live array. None if it was not alive.
      program: Name of the program that contains this value. None outside programs.
      origins: Where the sharding over each mesh axis comes from. None if this was not recorded.
      pattern: The regular expression of the layout's `state_specs` that gives the path its PartitionSpec.
        None if names or code of the model give it.
      mesh: The mesh that `spec` refers to, as its position in the Snapshot's `other_meshes`, from 0. None for
        the Snapshot's `mesh`.
      unreduced: Mesh axes on which devices hold partial sums of the array, not copies.
      reduced: Mesh axes over which the array is reduced, so that its gradient is unreduced over them.
      sharding: The sharding if no spec can express it: JAX's type of it, its text, or why it is unknown.
      mesh_axes: Number of devices along each axis of a mesh that the Snapshot does not have. `shards` are on
        its devices. None for the Snapshot's meshes.
      shard_map: The placement of a value inside a `shard_map`. None for another array.
    """

    path: str
    group: Group
    shape: tuple[NonNegativeInt, ...] | None
    dtype: str
    logical_axes: tuple[str | None, ...] | None = None
    spec: Spec | None = None
    shard_shape: tuple[NonNegativeInt, ...] | None = None
    bytes: NonNegativeInt | None = None
    bytes_per_device: NonNegativeInt | None = None
    replicas: NonNegativeInt | None = None
    shards: tuple[Shard, ...] | None = None
    box: Box | None = None
    facts: ArrayFacts | None = None
    program: str | None = None
    memory_kind: str | None = None
    origins: tuple[Origin, ...] | None = field(default=None, metadata=OMIT_NONE)
    pattern: str | None = field(default=None, metadata=OMIT_NONE)
    mesh: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)
    unreduced: tuple[str, ...] = field(default=(), metadata=OMIT_DEFAULT)
    reduced: tuple[str, ...] = field(default=(), metadata=OMIT_DEFAULT)
    sharding: str | None = field(default=None, metadata=OMIT_NONE)
    mesh_axes: dict[str, NonNegativeInt] | None = field(default=None, metadata=OMIT_NONE, hash=False)
    shard_map: ShardMap | None = field(default=None, metadata=OMIT_NONE)

    @property
    def elements(self) -> int | None:
        """Number of elements; None if the shape is unknown."""
        return None if self.shape is None else math.prod(self.shape)
