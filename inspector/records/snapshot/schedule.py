"""Records of the compiler's schedule: the instructions of a program in the order of their execution."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from inspector.records.typed_json import OMIT_NONE, Amount, NonNegativeInt, Record


@dataclass(frozen=True)
class ScheduledOperation(Record):
    """One instruction that takes time, waits, or runs other computations.

    Attributes:
      name: Name of the instruction in the compiled text.
      opcode: Its opcode, such as fusion, copy-start or while.
      cycles: The compiler's estimate for one execution, in clock cycles of the chip. None if it has none.
      flops: Floating-point operations of matrix products and convolutions in one execution. None if unknown.
      dtype: Operand type of these products, as HLO names it. None if there are none.
      bytes: Bytes that one execution reads and writes. None if unknown.
      kernel: Name of the custom kernel whose time does not follow from its FLOPs: they are unknown, or it
        solves step by step. None for other operations.
      head: Elements of a head, if it is a kernel of splash attention. None for other operations.
      collective: Position of its collective in the program's `collectives`.
      host: Whether it copies between HBM and the memory of the host.
      begins: Whether it only begins an asynchronous operation, which other instructions overlap.
      awaits: Position in its computation of the instruction that began what it waits for. A later position
        means that of the previous iteration of a loop.
      operands: Positions in its computation of the operations whose results it reads. None if unknown.
      carried: Positions of those whose results of the previous iteration of the loop it reads. None without
        one.
      runs: Names of the computations that it executes: the body of a loop, or the branches of a conditional.
      times: Number of executions of each of these computations. None if unknown.
      shares: Of a conditional, the share of its executions that take each branch, without a unit. None if
        unknown.
      op_name: The operation of the model, from the compiler's metadata.
      source: File and line of the operation, such as file.py:31.
    """

    name: str
    opcode: str
    cycles: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)
    flops: Amount | None = field(default=None, metadata=OMIT_NONE)
    dtype: str | None = field(default=None, metadata=OMIT_NONE)
    bytes: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)
    kernel: str | None = field(default=None, metadata=OMIT_NONE)
    head: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)
    collective: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)
    host: bool | None = field(default=None, metadata=OMIT_NONE)
    begins: bool | None = field(default=None, metadata=OMIT_NONE)
    awaits: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)
    operands: tuple[NonNegativeInt, ...] | None = field(default=None, metadata=OMIT_NONE)
    carried: tuple[NonNegativeInt, ...] | None = field(default=None, metadata=OMIT_NONE)
    runs: tuple[str, ...] | None = field(default=None, metadata=OMIT_NONE)
    times: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)
    shares: tuple[Amount, ...] | None = field(default=None, metadata=OMIT_NONE)
    op_name: str | None = field(default=None, metadata=OMIT_NONE)
    source: str | None = field(default=None, metadata=OMIT_NONE)

    @property
    def uncounted(self) -> str | None:
        """The custom kernel that counts with its bytes alone, also of a call without the name of one."""
        if self.kernel is not None or self.opcode != "custom-call" or self.flops is not None:
            return self.kernel
        return self.name.rstrip("0123456789").rstrip(".")


@dataclass(frozen=True)
class ScheduledComputation(Record):
    """One computation of the program.

    Attributes:
      name: Name of the computation in the compiled text.
      operations: Its instructions in the order of their execution, without those that take no time.
    """

    name: str
    operations: tuple[ScheduledOperation, ...]


@dataclass(frozen=True)
class Schedule(Record):
    """The schedule of a program.

    Attributes:
      entry: Name of the computation that a run begins with.
      computations: The entry and all computations that it runs.
    """

    entry: str
    computations: tuple[ScheduledComputation, ...]

    def operation(self, computation: str, position: int) -> ScheduledOperation:
        """Return the operation at a position of a computation."""
        return self.by_name[computation].operations[position]

    @functools.cached_property
    def by_name(self) -> Mapping[str, ScheduledComputation]:
        return {computation.name: computation for computation in self.computations}
