"""Records of arrays that move between meshes while a program runs, outside of its compiled programs."""

from dataclasses import dataclass
from typing import Literal

from inspector.core.snapshot.arrays import Mesh, Spec
from inspector.core.typed_json import NonNegativeInt, PositiveInt, Record

MoveOperation = Literal["device_put", "with_sharding_constraint", "reshard", "jit"]


@dataclass(frozen=True)
class ReshardedArrays(Record):
    """Arrays of one shape and type that move in the same way.

    Attributes:
      count: Number of arrays in one execution.
      shape: Global shape, elements in each dimension.
      dtype: Element type as NumPy and JAX name it.
      bytes: Bytes of one array, counted once.
      source_spec: The PartitionSpec on the source mesh. None if the array had no NamedSharding.
      target_spec: The PartitionSpec on the target mesh. None if the array has no NamedSharding.
    """

    count: PositiveInt
    shape: tuple[NonNegativeInt, ...]
    dtype: str
    bytes: NonNegativeInt
    source_spec: Spec | None
    target_spec: Spec | None


@dataclass(frozen=True)
class Reshard(Record):
    """Arrays that one line of a program moves from some devices to others, or to another sharding.

    Attributes:
      operation: The operation that moves them. jit: arguments of a jitted function on other devices.
      line: File and line of the program, such as train.py:31. None if unknown.
      executions: How often the line did exactly this.
      source_devices: Device ids before the move, in the order of the sharding.
      target_devices: Device ids after the move, in the order of the sharding.
      source_mesh: The mesh that `source_spec` refers to. None without a NamedSharding.
      target_mesh: The mesh that `target_spec` refers to. None without a NamedSharding.
      arrays: The arrays of one execution, by shape, type and sharding.
      routes: Bytes of one execution from one device to another, as [source device id, target device id,
        bytes]. Bytes that were on the target device before are not sent. Of several copies, the first in the
        order of the source devices sends. None if a sharding is unknown.
    """

    operation: MoveOperation
    line: str | None
    executions: PositiveInt
    source_devices: tuple[NonNegativeInt, ...]
    target_devices: tuple[NonNegativeInt, ...]
    source_mesh: Mesh | None
    target_mesh: Mesh | None
    arrays: tuple[ReshardedArrays, ...]
    routes: tuple[tuple[NonNegativeInt, NonNegativeInt, NonNegativeInt], ...] | None

    @property
    def count(self) -> int:
        """Number of arrays in one execution."""
        return sum(array.count for array in self.arrays)

    @property
    def bytes(self) -> int:
        """Bytes of the arrays of one execution, each counted once."""
        return sum(array.count * array.bytes for array in self.arrays)

    @property
    def moved(self) -> int | None:
        """Bytes that go from one device to another in one execution; None if unknown."""
        return None if self.routes is None else sum(size for _, _, size in self.routes)
