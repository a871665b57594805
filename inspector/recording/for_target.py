"""Compile a function that a recorded program lowered, for a target, with the target's own compiler.

The program runs on emulated devices. Its lowered module has mesh axes by name and no devices, so it is
compiled for the target's devices in the same order, and its shardings are rebuilt on them.
"""

import base64
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
from jax.extend import backend
from jax.extend.mlir import ir
from jax.interpreters import mlir
from jax.sharding import AxisType, Mesh

from inspector.compiled import program_text
from inspector.compiled.donation import with_donation
from inspector.compiling.compile_layout import compiler_versions, devices_of, placed_record
from inspector.jax_private import hlo_conversion, partitioner_dump
from inspector.jax_private.custom_partitions import ANSWERS
from inspector.jax_private.partitioner_dump import LoadedExecutable
from inspector.machines import out_of_memory, targets
from inspector.machines.targets import Target
from inspector.prediction.memory import capacity_of
from inspector.records import snapshot
from inspector.records.job_report import JobReport
from inspector.records.snapshot import Array, Finding, Memory, Program, Seconds, Snapshot, Source, Spec
from inspector.sharding.array_groups import with_roles
from inspector.text.errors import InvalidInput, compiler_text
from inspector.tracing.leaves import memory_of, mesh_record, spec_of
from inspector.tracing.live_arrays import with_spec
from inspector.tracing.mlir.kernel_bodies import with_costs
from inspector.tracing.model.abstract import versions


def compile_lowered(payload: dict[str, Any], report: JobReport) -> dict[str, Any]:
    """Worker job: return the Snapshot of one program for a target, as JSON.

    The payload has the `target`, the `module` as base64 text of MLIR bytecode, the `snapshot` of the program
    on emulated devices, and the recorder's `settings`: devices, and the shardings that the compiler chooses.

    Raises:
      InvalidInput: the compiler is not installed or fails.
    """
    target = targets.parse(payload["target"])
    report("topology")
    ANSWERS.register()
    devices = devices_of(target)
    emulated = snapshot.from_json(payload["snapshot"], "the program")
    settings = payload["settings"]
    report("compile")
    ANSWERS.use(settings.get("partitions", ()))
    used = [devices[place] for place in settings["devices"]]
    started = time.perf_counter()
    try:
        executable = compile_module(base64.b64decode(payload["module"]), used, settings)
    except jax.errors.JaxRuntimeError as error:
        short = out_of_memory.shortage(str(error))
        if short is None:
            raise InvalidInput(f"the compiler for {target.text} fails: {compiler_text(error)}") from None
        return _too_large(emulated, target, devices, short).to_json()
    seconds = time.perf_counter() - started
    report("read")
    return _read(emulated, target, devices, executable, settings, seconds).to_json()


def compile_module(module: bytes, devices: list[Any], settings: dict[str, Any]) -> LoadedExecutable:
    """Return the executable, as JAX compiles its own modules."""
    with mlir.make_ir_context():
        parsed = ir.Module.parse(module)
        options = backend.get_compile_options(
            num_replicas=1,
            num_partitions=len(devices),
            device_assignment=np.array(devices).reshape(1, -1),
            backend=devices[0].client,
        )
        options.parameter_is_tupled_arguments = settings["tuple_args"]
        build = options.executable_build_options
        build.allow_spmd_sharding_propagation_to_parameters = settings["inputs_chosen"] or [False]
        build.allow_spmd_sharding_propagation_to_output = settings["outputs_chosen"] or [False]
        return partitioner_dump.compile_module(parsed, devices, options)


def _read(
    snapshot: Snapshot,
    target: Target,
    devices: list[Any],
    executable: LoadedExecutable,
    settings: dict[str, Any],
    seconds: float,
) -> Snapshot:
    mesh, record = _mesh(snapshot, target, devices)
    (program,) = snapshot.programs
    chosen = _chosen_specs(snapshot, executable, mesh, settings)
    arrays = tuple(_placed(array, record, devices, chosen) for array in snapshot.arrays)
    shardings = tuple(
        replace(sharding, compiled=chosen.get(sharding.path, sharding.compiled))
        for sharding in program.shardings
    )
    text = with_costs("\n\n".join(module.to_string() for module in executable.hlo_modules()))
    stats = executable.get_compiled_memory_stats()
    memory = memory_of(SimpleNamespace(memory_analysis=lambda: stats))
    facts = program_text.read(text, record, shardings, memory, local=True)
    program = Program(
        program.name,
        memory=None if memory is None else replace(memory, capacity=capacity_of(target.chip)),
        seconds=Seconds(compile=seconds),
        shardings=program_text.with_uses(shardings, facts.uses, facts.gradients, facts.reused),
        checkpoint_names=program.checkpoint_names,  # the code is the same
    )
    return _snapshot(snapshot, target, record, arrays, facts.added_to(program), ())


def _too_large(
    snapshot: Snapshot, target: Target, devices: list[Any], short: out_of_memory.Shortage
) -> Snapshot:
    _, record = _mesh(snapshot, target, devices)
    (program,) = snapshot.programs
    memory = Memory(peak=short.needed, capacity=short.available, compiler=short.message)
    arrays = tuple(_placed(array, record, devices, {}) for array in snapshot.arrays)
    findings = (out_of_memory.finding(program.name, target.text, short),)
    program = Program(program.name, memory=memory, shardings=program.shardings)
    return _snapshot(snapshot, target, record, arrays, program, findings)


def _snapshot(
    snapshot: Snapshot,
    target: Target,
    mesh: snapshot.Mesh | None,
    arrays: tuple[Array, ...],
    program: Program,
    findings: tuple[Finding, ...],
) -> Snapshot:
    source = Source(
        target.kind,
        target.text,
        snapshot.source.created,
        versions() | compiler_versions(target),
        processes=target.hosts,
    )
    return with_donation(with_roles(Snapshot(source, None, mesh, arrays, (program,), findings)))


def _mesh(snapshot: Snapshot, target: Target, devices: list[Any]) -> tuple[Mesh | None, snapshot.Mesh | None]:
    """Return the program's mesh on the devices of the target, for JAX and as a record."""
    if snapshot.mesh is None:
        return None, None
    types = tuple(AxisType[axis.type.capitalize()] for axis in snapshot.mesh.axes)
    placed = np.array([devices[place] for place in snapshot.mesh.devices], dtype=object)
    mesh = Mesh(placed.reshape(snapshot.mesh.shape), snapshot.mesh.axis_names, axis_types=types)
    if mesh.size == target.devices:
        return mesh, placed_record(target, mesh, "row-major", False)
    return mesh, mesh_record(mesh)


def _chosen_specs(
    snapshot: Snapshot, executable: LoadedExecutable, mesh: Mesh | None, settings: dict[str, Any]
) -> dict[str, Spec]:
    """Return the specs that the compiler of the target chose, by path."""
    if mesh is None or len(settings["devices"]) == 1:
        return {}
    (program,) = snapshot.programs
    shapes = {array.path: array.shape for array in snapshot.arrays}
    chosen: dict[str, Spec] = {}
    for role, shardings, free in (
        ("input", executable.get_parameter_shardings(), settings["inputs_chosen"]),
        ("output", executable.get_output_shardings(), settings["outputs_chosen"]),
    ):
        values = [argument for argument in program.shardings if argument.role == role and argument.used]
        # Each element of a tuple has a sharding; constants of the module come first.
        given = list(shardings or ())[-len(values) :] if values else []
        for value, sharding, is_free in zip(values, given, list(free)[-len(values) :], strict=False):
            if is_free and value.path in shapes:
                spec = hlo_conversion.spec_of(sharding, mesh)
                chosen[value.path] = spec_of(spec, len(shapes[value.path] or ()))
    return chosen


def _placed(array: Array, mesh: snapshot.Mesh | None, devices: list[Any], chosen: dict[str, Spec]) -> Array:
    """Return the array on the devices of the target."""
    if array.path in chosen and mesh is not None:
        return with_spec(replace(array, shards=None), chosen[array.path], mesh)
    if array.shards is None:
        return array
    shards = tuple(
        replace(shard, device=devices[shard.device].id, process=devices[shard.device].process_index)
        for shard in array.shards
    )
    return replace(array, shards=shards)
