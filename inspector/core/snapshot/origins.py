"""Records of where the sharding of a value comes from, as Shardy's propagation notes it."""

from dataclasses import dataclass, field
from typing import Literal

from inspector.core.typed_json import OMIT_NONE, Record

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
    from_: str
    rule: str | None = field(default=None, metadata=OMIT_NONE)
    steps: tuple[PropagationStep, ...] | None = field(default=None, metadata=OMIT_NONE)
