"""The partitioned program of a module that JAX lowered, of a function that is not a model of this project."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from jax.extend.mlir import ir
from jax.interpreters import mlir as jax_mlir

from inspector.compiled import program_text
from inspector.jax_private import hlo_conversion
from inspector.machines.hardware import Kind
from inspector.partition import shardy
from inspector.partition.one_mesh import meshes_of, on_first_mesh
from inspector.partition.partition_layout import Setting, partitioned_program, with_causes
from inspector.partition.shardings import MANUAL
from inspector.partition.shardy import refusals
from inspector.partition.template import Lowered
from inspector.partition.xla_form import remove_dead_code, xla_form
from inspector.records import typed_json
from inspector.records.job_report import JobReport
from inspector.records.snapshot import Array, Mesh, Program
from inspector.sharding.abstract import PartitionedPrograms
from inspector.sharding.memory_kinds import PINNED
from inspector.sharding.sharding_text import mesh_text
from inspector.text.errors import InvalidInput
from inspector.tracing.mlir.kernel_bodies import with_costs
from inspector.tracing.mlir.walk import (
    function_type,
    main_function,
    operations,
    signature_attributes,
    text_of,
)

# Shardy's record of origins ends the process for some programs that draw random numbers.
_OWN_PARTITIONING = "CustomSPMDPartitioning"  # a Python function, which another process lacks
_RANDOM = ("stablehlo.rng", "threefry")


@dataclass(frozen=True)
class PartitionedModule:
    """A module after propagation, its program after XLA's partitioner, and values in it."""

    module: ir.Module | ir.Operation
    program: Program
    arrays: tuple[Array, ...]
    on_platforms: tuple[Program, ...] = ()


def partition_lowered(payload: dict[str, Any], report: JobReport) -> dict[str, Any]:
    """Worker job: a lowered module in, its partitioned program as JSON out (`PartitionedPrograms`).

    The payload has the `module` as base64 text of MLIR bytecode, the `name` of the program, its `mesh`, and
    the paths of its `inputs` and `outputs`, in order. The program has the work of all devices, and is read
    for other `platforms`, too.

    Raises:
      InvalidInput: the module is on another mesh, or Shardy or XLA refuses it.
    """
    report("partition")
    mesh = typed_json.decode(Mesh, payload["mesh"], "the mesh")
    with (
        refusals("the program cannot be partitioned"),
        jax_mlir.make_ir_context() as context,
        ir.Location.unknown(),
    ):
        context.allow_unregistered_dialects = True
        module = ir.Module.parse(base64.b64decode(payload["module"]))
        meshes = meshes_of(module.operation)
        first = next((named_mesh for named_mesh in meshes.values() if named_mesh.axes), None)
        if first is None or dict(first.axes) != mesh.sizes:
            raise InvalidInput(f"the lowered program is not on the mesh {mesh_text(mesh)}")
        single = on_first_mesh(module, meshes)
        partitioned = partitioned_module(
            single, payload["name"], mesh, payload["inputs"], payload["outputs"], tuple(payload["platforms"])
        )
        program = replace(partitioned.program, ideal=program_text.ideal_work(hlo_text(single)))
    return typed_json.encode(PartitionedPrograms((program,), on_platforms=partitioned.on_platforms))


def partitioned_module(
    module: ir.Module,
    name: str,
    mesh: Mesh,
    inputs: Sequence[str],
    outputs: Sequence[str],
    platforms: tuple[Kind, ...] = (),
) -> PartitionedModule:
    """Partition a lowered module, with origins if Shardy can record them.

    Args:
      platforms: kinds of machines for which the program is read, too.

    Raises:
      InvalidInput: Shardy or XLA refuses it.
    """
    written = str(module)
    if _OWN_PARTITIONING in written:
        raise InvalidInput("it has operations with partitioning functions of the program's own")
    prepared = _prepared(module)
    far, donated = PINNED in written, _donated(module)
    lowered = Lowered(name, prepared, tuple(inputs), tuple(outputs), {}, offloads=far, donated=donated)
    setting = Setting(mesh, platforms=platforms)
    origins = not any(word in written for word in _RANDOM)
    try:
        propagated = shardy.propagate(lowered.numbered.module, origins, export=True)
    except InvalidInput:
        if not origins:
            raise
        origins = False
        propagated = shardy.propagate(lowered.numbered.module, origins, export=True)
    partitioned = partitioned_program(lowered, setting, logical=False)
    described = with_causes(partitioned, propagated, lowered, setting, origins, watched=True)
    return PartitionedModule(propagated.module, described.program, described.arrays, described.on_platforms)


def _donated(module: ir.Module) -> dict[int, int]:
    """Return the number of each result that XLA can write over a donated argument, with that of the argument.

    JAX names the result if it knows it. Otherwise it is the first one of the same type.
    """
    main = main_function(module.operation)
    types, donated = function_type(main), dict[int, int]()
    free: dict[ir.Type, list[int]] = {}  # the results of each type, the first one last
    for place in reversed(range(len(types.results))):
        free.setdefault(types.results[place], []).append(place)
    for number, attributes in enumerate(signature_attributes(main, "arg_attrs")):
        if "tf.aliasing_output" in attributes:
            donated.setdefault(ir.IntegerAttr(attributes["tf.aliasing_output"]).value, number)
        elif "jax.buffer_donor" in attributes:
            alike = free.get(types.inputs[number], [])
            while alike and alike[-1] in donated:
                alike.pop()
            if alike:
                donated[alike.pop()] = number
    return donated


def _prepared(module: ir.Module) -> ir.Module:
    """Return a copy in the form in which XLA propagates shardings. HLO has no `shard_map`."""
    if any(operation.name == MANUAL for operation in operations(module.operation)):
        prepared = ir.Module.parse(text_of(module))
    else:
        prepared = xla_form(module)
    with prepared.context, ir.Location.unknown():
        shardy.inline_calls(prepared.operation)
        remove_dead_code(prepared.operation)
    return prepared


def hlo_text(module: ir.Module) -> str | None:
    """Return the text of the program before partitioning; None if it has no HLO form."""
    try:
        return with_costs(str(hlo_conversion.to_hlo(text_of(module, debug_info=False)).as_hlo_text()))
    except (ValueError, RuntimeError):
        return None
