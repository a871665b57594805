"""See an operation outside of any jit whose result is replicated, although it reads a sharded array."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import jax

from inspector.producers.arrays.records import spec_of
from inspector.producers.jax_internals import programs

if TYPE_CHECKING:
    from inspector.producers.jax_internals.programs import MeshComputation, MeshExecutable


def lost_sharding(computation: MeshComputation, executable: MeshExecutable) -> dict[str, Any] | None:
    """Return the result and the sharded operand as plain JSON; None if no sharding was lost.

    A sharding is lost if nobody asked for a sharding of the result, every device holds all of it, and that
    is more than a device held of the operand: a slice, and not a sum.

    Args:
      computation: JAX's lowered computation.
      executable: JAX's `MeshExecutable`.
    """
    if len(programs.devices_of(computation)) < 2:
        return None
    asked = computation.compile_args["out_shardings"]
    results = [
        (_bytes(aval.shape, aval), aval)
        for aval, sharding, request in zip(
            executable.out_avals, programs.output_shardings(executable), asked, strict=True
        )
        if programs.is_chosen(request) and sharding.is_fully_replicated
    ]
    size, result = max(results, key=lambda row: row[0], default=(0, None))
    operands = [
        (_bytes(sharding.shard_shape(aval.shape), aval), aval, sharding)
        for aval, sharding in zip(executable.in_avals, programs.input_shardings(executable), strict=False)
        if isinstance(sharding, jax.sharding.NamedSharding) and not sharding.is_fully_replicated
    ]
    shard_bytes, operand, sharding = max(operands, key=lambda row: row[0], default=(0, None, None))
    if result is None or operand is None or sharding is None or size <= shard_bytes:
        return None
    return {
        "shape": list(result.shape),
        "dtype": str(result.dtype),
        "bytes": size,
        "operand_shape": list(operand.shape),
        "operand_spec": spec_of(sharding.spec, len(operand.shape)),
        "operand_bytes": shard_bytes,
        "parts": _bytes(operand.shape, operand) // shard_bytes if shard_bytes else 1,
    }


def _bytes(shape: tuple[int, ...], aval: jax.core.ShapedArray) -> int:
    return math.prod(shape) * int(aval.dtype.itemsize)
