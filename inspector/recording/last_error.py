"""Describe the error that ended a program, its arrays, and lost shardings."""

from __future__ import annotations

import ast
import contextlib
import linecache
import math
import re
import traceback
from types import FrameType
from typing import TYPE_CHECKING, Any

import jax

from inspector.files.source_files import is_library
from inspector.jax_private import programs
from inspector.tracing.leaves import spec_of

if TYPE_CHECKING:
    from inspector.jax_private.programs import MeshComputation, MeshExecutable


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


_LONGEST = 400  # characters of a message
_MOST_ARRAYS = 4
# JAX's words for a dimension that mesh axes do not divide.
_UNEVEN = re.compile(
    r"implies that array axis (?P<dimension>\d+) is partitioned (?P<parts>\d+) times, "
    r"but (?:does not evenly divide )?the dimension size (?:is )?(?P<size>\d+)"
)
_SPEC = re.compile(r"spec=P(\((?:[^()]|\([^()]*\))*\))")


def last_error(error: BaseException) -> dict[str, Any]:
    """Return the error as JSON, in the form of a `RunError`."""
    message = " ".join(str(error).split())
    plain: dict[str, Any] = {
        "kind": type(error).__name__,
        "message": message if len(message) <= _LONGEST else f"{message[: _LONGEST - 1]}…",
    }
    own = [
        (frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not is_library(frame.f_code.co_filename) and not frame.f_code.co_filename.startswith("<")
    ]
    if not own:
        return plain
    frame, line = own[-1]
    plain["line"] = f"{frame.f_code.co_filename.rpartition('/')[2]}:{line}"
    names, target = _names_at(frame, line)
    plain["arrays"] = _arrays(frame, names, message)
    if (match := _UNEVEN.search(message)) is not None:
        dimension, parts, size = map(int, match.groups())
        plain["uneven"] = {
            "array": target if target is not None else next(iter(plain["arrays"]), None),
            "dimension": dimension,
            "size": size,
            "parts": parts,
            "axes": _axes(message, dimension),
        }
    return plain


def _axes(message: str, dimension: int) -> list[str]:
    """Return the mesh axes of a dimension in the PartitionSpec that a message has."""
    match = _SPEC.search(message)
    try:
        entries = ast.literal_eval(match[1]) if match is not None else ()
        entry = (entries if isinstance(entries, tuple) else (entries,))[dimension]
    except (ValueError, SyntaxError, IndexError):
        return []
    return [entry] if isinstance(entry, str) else [*map(str, entry or ())]


def _names_at(frame: FrameType, line: int) -> tuple[set[str], str | None]:
    """Return the names in a line, and the variable that it assigns."""
    text = linecache.getline(frame.f_code.co_filename, line).strip()
    names, target = set(re.findall(r"[A-Za-z_]\w*", text)), None
    with contextlib.suppress(SyntaxError, ValueError):
        (statement,) = ast.parse(text).body
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            target = statement.targets[0].id
    return names, target


def _arrays(frame: FrameType, names: set[str], message: str) -> dict[str, str]:
    """Return the types of the arrays in a line, by their names. Those that the message names come first."""
    known: dict[str, str] = {}
    for name, value in {**frame.f_globals, **frame.f_locals}.items():
        if name in names and isinstance(value, (jax.Array, jax.core.Tracer)):
            with contextlib.suppress(TypeError):
                known[name] = str(jax.typeof(value))
    ranked = sorted(known, key=lambda name: known[name] not in message)
    return {name: known[name] for name in ranked[:_MOST_ARRAYS]}
