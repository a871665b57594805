"""XLA's own SPMD partitioner, run in this process: the program of one device, before any pass for a platform.

A compile on emulated CPU devices writes the module right after the partitioner, as `xla_dump_to` asks it to.
The passes that follow for CPUs, and the machine code, take most of its time and are not needed. So the module
has one more result that the first of these passes cannot expand, and the compile ends there. The partitioned
module is the same without that result, which is removed again.

The emulated devices belong to a separate client, so this process can use any devices of JAX.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import resource
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.extend import backend
from jax.extend.mlir import ir

from inspector.core import host_memory
from inspector.core.errors import InvalidInput
from inspector.producers.jax_internals import compiler
from inspector.producers.jax_internals.cpu_clients import cpu_client
from inspector.producers.propagation.walk import (
    function_type,
    main_function,
    operations,
    set_signature_attributes,
    signature_attributes,
    symbols,
)

# Devices of a client. More than the last cannot be emulated: ids of other processes begin there.
_CLIENTS = (8, 64, 256, 1024, 2048)
MOST_DEVICES = _CLIENTS[-1]
_OPTIONS: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_dump_hlo_pass_re": "spmd-partitioning",
    "xla_dump_hlo_as_text": True,
    "xla_dump_large_constants": True,  # tables with a row for each device, which later passes read
}
if jax.__version_info__ >= (0, 12):
    _OPTIONS["xla_dump_compact_gte"] = False  # else elements of tuples are written as `%while#1`
_OLD = "mhlo.sharding"
# Layouts of the results, without one for the result that ends the compile.
_LAYOUTS = ("mhlo.xla_entry_computation_result_layout", "mhlo.xla_entry_computation_result_tiles")
_WRITTEN = "*.after_spmd-partitioning.*.txt"
_LOG = "log"
_MEMORY = Path("/dev/shm")  # of Linux: files in memory
# The last result, in the type and the operands of the root, and in the layout of the entry.
_LAST = r", (?:/\*index=\d+\*/)?"
_ROOT = re.compile(rf"^(  ROOT \S+ = )\((.*){_LAST}u32\[\]\) tuple\((.*){_LAST}%?([^\s,()]+)\)", re.M)
_LAYOUT = re.compile(rf"\A(HloModule [^\n]*->\(.*){_LAST}u32\[\]\)\}}")
_ENTRY = re.compile(r"^ENTRY ", re.M)
_LINE = re.compile(r"[^\n]*?\(%?([^\s,()]*)\)[^\n]*\n")


def partitioned(module: ir.Module, devices: int) -> str:
    """Change a module with `prepare`, and return the text of `partitioned_prepared`.

    Raises:
      InvalidInput: the size of a dimension is unknown, or XLA refuses the module.
    """
    return partitioned_prepared(prepare(module), devices)


def prepare(module: ir.Module) -> ir.Module:
    """Return the module itself after the changes that `partitioned_prepared` needs.

    Raises:
      InvalidInput: the size of a dimension of an argument or result is unknown.
    """
    with module.context, ir.Location.unknown():
        _refuse_unknown_sizes(module)
        _remove_old_shardings(module)
        _add_end(module)
    return module


def partitioned_prepared(module: ir.Module, devices: int, log: list[str] | None = None) -> str:
    """Return the HLO text of one device after the partitioner.

    Args:
      module: StableHLO with shardings on a mesh of `devices` devices, after `prepare`. It is not changed.
      devices: at most `MOST_DEVICES`.
      log: gets what the partitioner writes to standard error.

    Raises:
      InvalidInput: XLA refuses the module; the sentence has its words.
    """
    folder = tempfile.mkdtemp(prefix="xla", dir=_MEMORY if _MEMORY.is_dir() else None)
    reason = ""
    try:
        client = _client(next(count for count in _CLIENTS if count >= devices))
        used = client.devices()[:devices]
        options = backend.get_compile_options(
            num_replicas=1,
            num_partitions=devices,
            device_assignment=np.array([[device.id for device in used]]),
            env_options_overrides=_OPTIONS | {"xla_dump_to": folder},
        )
        try:
            with _standard_error_in(Path(folder) / _LOG):
                compiler.compile_uncached(module, used, options)
        except (jax.errors.JaxRuntimeError, ValueError, NotImplementedError) as error:
            reason = str(error).strip().partition("\n")[0][:300]
        if log is not None:
            log.append((Path(folder) / _LOG).read_text(errors="replace"))
        text = next((path.read_text() for path in Path(folder).glob(_WRITTEN)), None)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if text is None:
        raise InvalidInput(f"XLA cannot partition this program: {reason}")
    return _without_end(text)


@contextlib.contextmanager
def _standard_error_in(path: Path) -> Iterator[None]:
    """Write what this process writes to standard error to a file. XLA has no other way to its warnings."""
    saved = os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(file, 2)
    os.close(file)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def _refuse_unknown_sizes(module: ir.Module) -> None:
    """Refuse arguments and results with a dimension of unknown size. XLA ends the process for some of them.

    Shardy refuses operations with such values, but not a program that only returns them.
    """
    kind = function_type(main_function(module.operation))
    for value in (*kind.inputs, *kind.results):
        if isinstance(value, ir.ShapedType) and not value.has_static_shape:
            raise InvalidInput(f"XLA cannot partition {value}: the size of a dimension is unknown")


@functools.cache
def _client(devices: int) -> Any:
    """Return a client with this many emulated CPU devices: 4 MB for 8 of them, 200 MB for 2,048.

    A job that parses a file has a limit of its data, which counts the stacks of threads that are never used.
    So the limit grows by the size of the client. Another limit, on resident memory, does not change.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    before = host_memory.private_data_bytes()
    if soft == resource.RLIM_INFINITY or before is None:
        return cpu_client(devices)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    try:
        client = cpu_client(devices)
    finally:
        grown = (host_memory.private_data_bytes() or before) - before
        soft += max(0, grown)
        resource.setrlimit(
            resource.RLIMIT_DATA,
            (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard),
        )
    return client


def _remove_old_shardings(module: ir.Module) -> None:
    """Remove the shardings that a round trip through HLO leaves beside those of Shardy.

    With one of them, XLA would not use Shardy.
    """
    if not symbols(module.operation, "sdy.mesh"):
        return
    for operation in (module.operation, *operations(module.operation)):
        if _OLD in operation.attributes:
            del operation.attributes[_OLD]
        for key in ("arg_attrs", "res_attrs"):
            if key in operation.attributes:
                listed = signature_attributes(operation, key)
                for named in listed:
                    named.pop(_OLD, None)
                set_signature_attributes(operation, key, listed)


def _add_end(module: ir.Module) -> None:
    """Add a result that no pass for CPUs can expand: random numbers from a key of the wrong length."""
    main = main_function(module.operation)
    block = main.regions[0].blocks[0]
    key = ir.RankedTensorType.get([7], ir.IntegerType.get_unsigned(64))
    number = ir.RankedTensorType.get([], ir.IntegerType.get_unsigned(32))
    point = ir.InsertionPoint.at_block_begin(block)
    zeros = ir.Operation.create(
        "stablehlo.constant",
        results=[key],
        attributes={"value": ir.Attribute.parse("dense<0> : tensor<7xui64>")},
        ip=point,
    )
    end = ir.Operation.create(
        "stablehlo.rng_bit_generator",
        results=[key, number],
        operands=list(zeros.results),
        attributes={"rng_algorithm": ir.Attribute.parse("#stablehlo<rng_algorithm DEFAULT>")},
        ip=point,
    )
    kind = function_type(main)
    longer = ir.FunctionType.get(list(kind.inputs), [*kind.results, number])
    main.attributes["function_type"] = ir.TypeAttr.get(longer)
    attributes = signature_attributes(main, "res_attrs", len(kind.results))
    set_signature_attributes(main, "res_attrs", [*attributes, {}])
    last = block.operations[len(block.operations) - 1].operation
    ir.Operation.create("func.return", operands=[*last.operands, end.results[1]], ip=ir.InsertionPoint(last))
    last.erase()
    for name in _LAYOUTS:
        if name in module.operation.attributes:
            del module.operation.attributes[name]


def _without_end(text: str) -> str:
    """Return the text without the last result of the program, and without the operation that makes it."""
    entry = _ENTRY.search(text)
    root = None if entry is None else _ROOT.search(text, entry.start())
    if root is None:
        raise InvalidInput("XLA wrote the partitioned program in a form that is not known here")
    text = f"{text[: root.start()]}{root[1]}({root[2]}) tuple({root[3]}){text[root.end() :]}"
    name: str | None = root[4]
    for _ in range(2):  # the element of a tuple, and the operation
        at = max(text.rfind(f"\n  {mark}{name} = ") for mark in ("%", ""))
        line = _LINE.match(text, at + 1)
        if at < 0 or line is None:
            break
        name = line[1]
        text = text[: line.start()] + text[line.end() :]
    return _LAYOUT.sub(r"\1)}", text, count=1)
