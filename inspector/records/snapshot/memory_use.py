"""Records of the memory of a program on one device, and of the values that its backward pass keeps."""

from dataclasses import dataclass, field
from typing import Literal

from inspector.records.typed_json import OMIT_DEFAULT, OMIT_NONE, Amount, NonNegativeInt, PositiveInt, Record

CheckpointPolicy = Literal["saved", "offloaded", "recomputed"]
CARRY = "carry"  # the primitive of a value that a loop passes on


@dataclass(frozen=True)
class CheckpointName(Record):
    """A name that the model gives a value with `checkpoint_name`, and what its policy does with it.

    Attributes:
      name: The name. Empty for a value on the host without one.
      module: Path of the module that computes the value, with * for the numbers of layers.
      primitive: The JAX primitive that computes it. `carry` for a value that a loop passes on.
      dtype: Element type as JAX names it.
      elements: Elements of one value on all devices.
      count: Number of values, such as one for each layer.
      policy: What `jax.checkpoint` does with it: keeps it on the device or on the host, or computes it again.
        None if it is in no `jax.checkpoint`, or if the backward pass does not need it.
      source: File and line that names it, such as file.py:31. None if unknown.
      computed: File and line that computes it. None if unknown.
    """

    name: str
    module: str
    primitive: str
    dtype: str
    elements: NonNegativeInt
    count: NonNegativeInt
    policy: CheckpointPolicy | None = None
    source: str | None = None
    computed: str | None = None


@dataclass(frozen=True)
class KeptActivation(Record):
    """Equal activations of the forward pass that stay in memory until the backward pass reads them.

    Attributes:
      module: Path of the module that computes them, with * for the numbers of layers.
      primitive: The JAX primitive that computes them. `carry` for a value that a loop passes on.
      shape: Element type and shape of one of them on one device as HLO writes them, such as bf16[8,1024].
      count: Number of them, such as one for each layer.
      bytes: Bytes of all of them on one device.
      host: Whether they are in the memory of the host.
      source: File and line of the operation, such as file.py:31. None if unknown.
    """

    module: str
    primitive: str
    shape: str
    count: PositiveInt
    bytes: NonNegativeInt
    host: bool = field(default=False, metadata=OMIT_DEFAULT)
    source: str | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class RecomputedOperation(Record):
    """Equal operations of the forward pass that the backward pass runs again.

    Attributes:
      module: Path of the module that runs them, with * for the numbers of layers.
      primitive: The JAX primitive that they run.
      shape: Element type and shape of one result on one device as HLO writes them, such as bf16[8,1024].
      count: How often one step runs them again.
      bytes: Bytes of their results on one device, if all were kept. None if unknown.
      flops: Their floating-point operations on one device in one step.
      source: File and line of the operation, such as file.py:31. None if unknown.
    """

    module: str
    primitive: str
    shape: str
    count: NonNegativeInt
    bytes: NonNegativeInt | None
    flops: Amount
    source: str | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class Residuals(Record):
    """What the backward pass of a program reads from the forward pass, and what it computes again.

    Attributes:
      kept: The activations that it reads, those with the most bytes first. Arguments are not among them.
      recomputed: The operations that it runs again, the most FLOPs first. Small ones can be missing.
      flops: Floating-point operations of all operations that it runs again. None if a trip count, or the name
        of a product, is unknown.
      matmul: Floating-point operations of the matrix products among them by operand type.
      fused_bytes: Bytes that are written and read in HBM of the values that they compute, as `fused_bytes` in
        `Work`. None if unknown.
      by_compiler: Number of instructions that the compiler itself computes again to save memory.
    """

    kept: tuple[KeptActivation, ...]
    recomputed: tuple[RecomputedOperation, ...] = ()
    flops: Amount | None = 0.0
    matmul: dict[str, Amount] = field(default_factory=dict)
    fused_bytes: Amount | None = None
    by_compiler: NonNegativeInt = field(default=0, metadata=OMIT_DEFAULT)


# The groups of arrays of a Snapshot, and the groups of values that only a program has.
UseGroup = Literal[
    "params",
    "opt_state",
    "other",
    "batch",
    "cache",
    "output",
    "activation",
    "gradient",
    "collective",
    "temporary",
    "constant",
]
Phase = Literal["init", "forward", "rematerialised", "backward", "optimizer", "unknown"]


@dataclass(frozen=True)
class LiveValue(Record):
    """A value that is in memory when the program uses the most.

    Attributes:
      name: Name of the instruction that writes it first.
      group: What it is: an argument's group, or how the program uses it.
      bytes: Bytes of its buffer, with padding.
      padding: Bytes of its buffer that hold no data.
      shape: Element type and shape on one device as HLO writes them, such as bf16[8,1024].
      path: Path of the array, for an argument or a result. None for other values.
      op_name: The operation of the model that writes it, from the compiler's metadata.
      source: File and line of the operation, such as file.py:31.
    """

    name: str
    group: UseGroup
    bytes: NonNegativeInt
    padding: NonNegativeInt
    shape: str
    path: str | None = field(default=None, metadata=OMIT_NONE)
    op_name: str | None = field(default=None, metadata=OMIT_NONE)
    source: str | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class GroupUse(Record):
    """Bytes of one group of values at each point of a program.

    Attributes:
      group: What the values are.
      bytes: Bytes with padding, one number for each point.
    """

    group: UseGroup
    bytes: tuple[NonNegativeInt, ...]


@dataclass(frozen=True)
class MemoryUse(Record):
    """Bytes in the memory of one device while a program runs.

    By the schedule of the compiler, a value is in memory from the instruction that writes it to
    the last one that reads it. Of a partitioned program it is an estimate in the order of the model. Memory
    inside of a chip, such as the VMEM of a TPU, and of the host does not count. A loop body occurs once.

    Attributes:
      instructions: Number of instructions in the order of execution.
      points: Positions of instructions. A long program has fewer points than instructions; each is then the
        one with the most bytes in its part of the program.
      phases: The phase of the model at each point: that of most instructions around it. The forward pass that
        is computed again counts as backward.
      groups: Bytes at each point by group.
      peak: Index of the point with the most bytes.
      values: Values at the peak, the largest first. Small ones can be missing.
      on_chip: The most bytes in use at one time in memory inside of the chip, such as VMEM. The compiler for
        TPUs counts them as its peak if they are more than the temporaries in HBM.
    """

    instructions: NonNegativeInt
    points: tuple[NonNegativeInt, ...]
    phases: tuple[Phase, ...]
    groups: tuple[GroupUse, ...]
    peak: NonNegativeInt
    values: tuple[LiveValue, ...]
    on_chip: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)

    @property
    def totals(self) -> tuple[int, ...]:
        """Bytes of all groups at each point."""
        return tuple(map(sum, zip(*(group.bytes for group in self.groups), strict=True)))

    @property
    def peak_bytes(self) -> int:
        """The most bytes in use at one time."""
        return sum(group.bytes[self.peak] for group in self.groups)
