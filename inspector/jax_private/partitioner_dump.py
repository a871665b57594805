"""Have a compile for CPUs write the module right after XLA's partitioner, and end there.

It depends on behavior of XLA: the name of the pass, the name of the file that `xla_dump_to` writes
after it, and the form of its text. The passes that follow for CPUs, and the machine code, take most of the
time of a compile and are not needed. So the program has one more result that the first of these passes cannot
expand. The partitioned module is the same without that result, which is removed again.

Public replacement: none. `jax.stages.Compiled.as_text` is the program after all passes.
Tried on JAX 0.10.2 and 0.12.0.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np
from jax._src import compiler
from jax._src.lib import xla_client
from jax.extend.mlir import ir

from inspector.text.errors import InvalidInput

# Compile a module that was lowered before, for given devices and with given options.
#
# Public replacement: none. `jax.stages.Lowered.compile` takes neither a module nor devices. The options are
# public: `jax.extend.backend.get_compile_options`. Tried on JAX 0.10.2 and 0.12.0.


LoadedExecutable: TypeAlias = xla_client.LoadedExecutable


def compile_module(
    module: ir.Module, devices: Sequence[Any], options: xla_client.CompileOptions
) -> LoadedExecutable:
    """Return XLA's executable of an `ir.Module`. It comes from JAX's compilation cache if it is there.

    Raises:
      jax.errors.JaxRuntimeError: the compiler fails.
    """
    used = tuple(devices)
    return compiler.compile_or_get_cached(
        used[0].client, module, np.array(used), options, (), xla_client.DeviceList(used), None
    )


def compile_uncached(
    module: ir.Module, devices: Sequence[Any], options: xla_client.CompileOptions
) -> LoadedExecutable:
    """Return XLA's executable of an `ir.Module`, without JAX's compilation cache and its callbacks.

    Raises:
      jax.errors.JaxRuntimeError, ValueError, NotImplementedError: the compiler fails.
    """
    used = tuple(devices)
    return used[0].client.compile_and_load(
        module, executable_devices=xla_client.DeviceList(used), compile_options=options
    )


_OPTIONS: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_dump_hlo_pass_re": "spmd-partitioning",
    "xla_dump_hlo_as_text": True,
    "xla_dump_large_constants": True,  # tables with a row for each device, which later passes read
}
if jax.__version_info__ >= (0, 12):
    _OPTIONS["xla_dump_compact_gte"] = False  # else elements of tuples are written as `%while#1`
_WRITTEN = "*.after_spmd-partitioning.*.txt"
# Layouts of the results, without one for the result that ends the compile.
_LAYOUTS = ("mhlo.xla_entry_computation_result_layout", "mhlo.xla_entry_computation_result_tiles")
# The last result, in the type and the operands of the root, and in the layout of the entry.
_LAST = r", (?:/\*index=\d+\*/)?"
_ROOT = re.compile(rf"^(  ROOT \S+ = )\((.*){_LAST}u32\[\]\) tuple\((.*){_LAST}%?([^\s,()]+)\)", re.M)
_LAYOUT = re.compile(rf"\A(HloModule [^\n]*->\(.*){_LAST}u32\[\]\)\}}")
_ENTRY = re.compile(r"^ENTRY ", re.M)
_LINE = re.compile(r"[^\n]*?\(%?([^\s,()]*)\)[^\n]*\n")


def options(folder: str) -> dict[str, Any]:
    """Return options of the compiler, with which it writes the module to a folder that exists."""
    return _OPTIONS | {"xla_dump_to": folder}


def add_end(module: ir.Module, main: ir.Operation) -> None:
    """Add a result to the main function that no pass for CPUs can expand, so the compile fails.

    It is random numbers from a key of the wrong length. The caller sets the context and a location.
    """
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
    kind: ir.FunctionType = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    longer = ir.FunctionType.get(list(kind.inputs), [*kind.results, number])
    main.attributes["function_type"] = ir.TypeAttr.get(longer)
    if "res_attrs" in main.attributes:
        attributes = [*ir.ArrayAttr(main.attributes["res_attrs"]), ir.DictAttr.get({})]
        main.attributes["res_attrs"] = ir.ArrayAttr.get(attributes)
    last = block.operations[len(block.operations) - 1].operation
    ir.Operation.create("func.return", operands=[*last.operands, end.results[1]], ip=ir.InsertionPoint(last))
    last.erase()
    for name in _LAYOUTS:
        if name in module.operation.attributes:
            del module.operation.attributes[name]


def text_in(folder: str) -> str | None:
    """Return the module that the compiler has written, without the added result; None if it has not.

    Raises:
      InvalidInput: the text has another form.
    """
    text = next((path.read_text() for path in Path(folder).glob(_WRITTEN)), None)
    return None if text is None else _without_end(text)


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
