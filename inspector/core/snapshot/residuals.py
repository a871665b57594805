"""Records of what a program keeps from its forward pass for its backward pass, and what it computes again."""

from dataclasses import dataclass, field
from typing import Literal

from inspector.core.typed_json import OMIT_DEFAULT, OMIT_NONE, Amount, NonNegativeInt, PositiveInt, Record

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
      flops: Floating-point operations of all operations that it runs again. None if a trip count is unknown.
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
