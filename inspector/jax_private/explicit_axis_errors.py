"""Read the operation from the traceback of an error about shardings on explicit mesh axes.

The message of JAX has no operands. They are local variables of its frames, which JAX leaves out of
tracebacks unless it is asked to keep them.

Public replacement: none. `jax.config.update("jax_traceback_filtering", "off")` keeps the frames, but for all
threads. JAX does not export the class of the error. Tried on JAX 0.10.2 and 0.12.0.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import jax
from jax._src import config, core
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.sharding import PartitionSpec

ShardingTypeError: type[Exception] = core.ShardingTypeError
# A part of the path of each of JAX's own files.
FOLDER = "/jax/_src/"
_CONSTRAINT = "with_sharding_constraint"


@dataclass(frozen=True)
class TracedOperation:
    """The operation that JAX was tracing.

    Attributes:
      primitive: None for `with_sharding_constraint`.
      operands: the types of its operands, or the operands.
      parameters: the primitive's, by name.
      wanted: the PartitionSpec that `with_sharding_constraint` was given, None for primitives.
    """

    primitive: Primitive | None
    operands: Sequence[Any]
    parameters: dict[str, Any]
    wanted: PartitionSpec | None = None

    @property
    def name(self) -> str:
        """Return the name of the operation, such as dot_general."""
        return _CONSTRAINT if self.primitive is None else self.primitive.name


def with_all_frames() -> AbstractContextManager[None]:
    """Keep the frames of JAX in tracebacks of this thread."""
    return config.traceback_filtering("off")


def traced_operation(frames: Sequence[FrameType]) -> TracedOperation | None:
    """Return the innermost operation of a traceback, None without one."""
    for frame in reversed(frames):
        values = frame.f_locals
        if frame.f_code.co_name == _CONSTRAINT and "x_aval" in values:
            return TracedOperation(None, (values["x_aval"],), {}, getattr(values.get("s"), "spec", None))
        if isinstance(values.get("prim"), Primitive):  # in a function that JAX shares
            primitive, operands, parameters = values["prim"], values.get("avals"), "kwargs"
        elif isinstance(values.get("self"), Primitive):  # in `Primitive.bind`
            primitive, operands, parameters = values["self"], values.get("args"), "params"
        else:
            continue
        return TracedOperation(primitive, operands or (), dict(values.get(parameters) or {}))
    return None


def einsum_names(frames: Sequence[FrameType]) -> tuple[str, str] | None:
    """Return the axis names of the matrix product of an einsum and those of its result, in their orders.

    None without an einsum whose product and result have the same axes.
    """
    for frame in reversed(frames):
        if frame.f_code.co_name == "_einsum":
            names, result = (frame.f_locals.get(key) for key in ("names", "result_names"))
            if isinstance(names, str) and isinstance(result, str) and set(names) == set(result):
                return names, result
    return None


def type_of(operand: object) -> ShapedArray | None:
    """Return the type of an operand of a primitive; None for a function or another object."""
    if isinstance(operand, ShapedArray):
        return operand
    try:
        type_ = jax.typeof(operand)
    except TypeError:
        return None
    return type_ if isinstance(type_, ShapedArray) else None
