"""Records of the memory that a program uses on one device, from its first instruction to its last."""

from dataclasses import dataclass, field
from typing import Literal

from inspector.core.typed_json import OMIT_NONE, NonNegativeInt, Record

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
