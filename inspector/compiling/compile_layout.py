"""Compile a layout for a target, or a program that names its devices."""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax import stages
from jax.experimental import mesh_utils, topologies
from jax.extend.sharding import GSPMDSharding
from jax.sharding import AxisType, Mesh, NamedSharding, Sharding

from inspector import layout as layouts
from inspector.compiling.compiled_program import CompiledProgram, compile_all, unsafe_findings, unsafe_text
from inspector.jax_private import moved_lowering
from inspector.layout import DEVICE_ORDERS, Layout
from inspector.layout.plan import INDIVISIBLE, now, partitioned_records, plan
from inspector.machines import out_of_memory, targets
from inspector.machines.out_of_memory import Shortage
from inspector.machines.slices import shape_text
from inspector.machines.targets import GPUS_PER_NODE, Target
from inspector.model import PyTree
from inspector.model.built_in.watching import Watched
from inspector.partition.partition_layout import partitioned_programs
from inspector.prediction.memory import capacity_of
from inspector.prediction.predicted import predicted_in
from inspector.records import snapshot, typed_json
from inspector.records.job_report import JobReport
from inspector.records.snapshot import Array, Finding, Memory, Program, Snapshot, Source, Spec
from inspector.sharding.abstract import AbstractState
from inspector.text.errors import InvalidInput, compiler_text, require_one_of
from inspector.tracing.leaves import mesh_record
from inspector.tracing.live_arrays import watched_arrays, with_spec
from inspector.tracing.model.abstract import abstract_mesh, abstract_state, versions
from inspector.tracing.model.build import Signature, axis_types, build_model, signatures, tracing
from inspector.tracing.model.placeholder_devices import TRACED_DEVICE


def devices_of(target: Target) -> list[Any]:
    """Return JAX's devices of a target in the order of `jax.devices()`. They only serve to compile.

    The variables of `targets.environment` must be set before JAX starts.

    Raises:
      InvalidInput: the compiler is not installed, or does not know the target.
    """
    if lacking := targets.missing_compiler(target):
        raise InvalidInput(lacking)
    try:
        if target.slice is None:
            return topologies.get_topology_desc(
                platform="cuda",
                # slices × hosts × GPUs per host
                topology=f"1x{target.hosts}x{min(target.devices, GPUS_PER_NODE)}",
                target_config=targets.gpu_description(target.chip_name),
            ).devices
        slice_ = target.slice
        return topologies.get_topology_desc(
            platform="tpu",
            topology_name=f"{slice_.generation}:{slice_.topology}",
            chips_per_host_bounds=slice_.host_shape,
            wrap=(*slice_.wraps, False)[:3],
            # v4 and v5p run the two cores of a chip as one device, which is not the default here.
            chip_config_name="megacore" if slice_.chip.devices < slice_.chip.cores else "default",
            num_slices=target.slices,
        ).devices
    except jax.errors.JaxRuntimeError as error:
        raise InvalidInput(
            f"the compiler does not know {target.text}: {str(error).splitlines()[0]}"
        ) from None


def mesh_on(
    target: Target,
    mesh_shape: tuple[int, ...],
    axis_names: tuple[str, ...],
    order: str,
    axis_types: tuple[AxisType, ...] | None = None,
) -> tuple[Mesh, snapshot.Mesh]:
    """Return the mesh of a target's devices, for JAX and as a record.

    Without `axis_types`, all axes are auto.

    Raises:
      InvalidInput: the mesh has another size, the order is unknown, or JAX cannot map the mesh to the torus.
    """
    targets.require_size(target, mesh_shape)
    require_one_of("device_order", order, DEVICE_ORDERS)
    devices = devices_of(target)
    split = False
    if order == "row-major" or target.slice is None:  # all GPUs of a host are equally close
        placed = np.array(devices).reshape(mesh_shape)
    else:
        placed, split = _on_torus(target, mesh_shape, devices)
    mesh = Mesh(placed, axis_names, axis_types=axis_types)
    return mesh, placed_record(target, mesh, order, split)


def _on_torus(target: Target, mesh_shape: tuple[int, ...], devices: list[Any]) -> tuple[np.ndarray, bool]:
    across = _slices_along(target, mesh_shape)
    inside = tuple(size // slices for size, slices in zip(mesh_shape, across, strict=True))

    def placed(split: bool) -> np.ndarray:
        if target.slices == 1:
            return mesh_utils.create_device_mesh(mesh_shape, devices, allow_split_physical_axes=split)
        return mesh_utils.create_hybrid_device_mesh(inside, across, devices, allow_split_physical_axes=split)

    try:
        return placed(False), False
    except NotImplementedError:
        pass  # only possible if an axis of the torus is split
    try:
        return placed(True), True
    except (NotImplementedError, ValueError, AssertionError) as error:
        raise InvalidInput(
            f"mesh {shape_text(mesh_shape)} does not fit the torus of {target.text} "
            f"({type(error).__name__}): choose device_order row-major or other axis sizes"
        ) from None


def _slices_along(target: Target, mesh_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the number of slices that each mesh axis crosses: the most along the first axes."""
    left, across = target.slices, []
    for size in mesh_shape:
        across.append(math.gcd(left, size))
        left //= across[-1]
    assert left == 1  # the mesh has all devices of the target
    return tuple(across)


def placed_record(target: Target, mesh: Mesh, order: str, split: bool) -> snapshot.Mesh:
    """Return a mesh of all devices of the target as a record, with the place of each on the torus."""
    record = replace(mesh_record(mesh), device_order=order)
    if target.slice is None:
        return record
    assert math.prod(mesh.devices.shape) == target.devices
    return replace(
        record,
        split=split,
        topology=target.slice.shape,
        wraps=target.slice.wraps,
        coordinates=tuple(tuple(device.coords[: len(target.slice.shape)]) for device in mesh.devices.flat),
        cores=tuple(device.core_on_chip for device in mesh.devices.flat),
    )


# Lower a program whose code names the devices of its own mesh, and move it to the devices of a target.
#
# JAX refuses a program with two sets of devices. Here the arguments have the layout's mesh without devices,
# so the code's own mesh gives the devices while the program is lowered. The module has numbers for devices
# and names for mesh axes, so it is the same for any devices in the same order.


# How JAX's error for two sets of devices begins.
MISMATCH = "Received incompatible devices"


def lower_for(signature: Signature, devices: Sequence[Any], platform: str) -> stages.Lowered:
    """Return the lowered program for devices, in the order of the layout's mesh.

    Args:
      platform: the platform of the target in JAX's words, such as tpu.
    Raises:
      ValueError: JAX cannot lower it, or its code names another number of devices.
    """
    lowered = (
        _without_devices(signature).jitted().trace(*signature.arguments).lower(lowering_platforms=(platform,))
    )
    named = moved_lowering.devices_of(lowered) or tuple(devices)
    if len(named) != len(devices):
        raise ValueError(
            f"the code of {signature.name} names {len(named)} devices, but the mesh has {len(devices)}"
        )
    new = dict(zip(named, devices, strict=True))
    return moved_lowering.moved(lowered, devices, lambda sharding: _moved(sharding, new))


def on_devices(tree: PyTree, devices: Sequence[Any]) -> PyTree:
    """Return a tree of shardings whose meshes have these devices, in the order of the mesh."""

    def placed(sharding: Sharding) -> Sharding:
        if not isinstance(sharding, NamedSharding):
            return sharding
        mesh = Mesh(
            np.array(devices, dtype=object).reshape(sharding.mesh.axis_sizes),
            sharding.mesh.axis_names,
            axis_types=sharding.mesh.axis_types,
        )
        return NamedSharding(mesh, sharding.spec, memory_kind=sharding.memory_kind)

    return jax.tree.map(placed, tree, is_leaf=lambda leaf: isinstance(leaf, Sharding))


def _without_devices(signature: Signature) -> Signature:
    def abstract(sharding: Sharding) -> Sharding:
        if not isinstance(sharding, NamedSharding):
            return sharding
        mesh = sharding.mesh.abstract_mesh.update(abstract_device=TRACED_DEVICE)
        return NamedSharding(mesh, sharding.spec, memory_kind=sharding.memory_kind)

    def bare(tree: PyTree) -> PyTree:
        return jax.tree.map(abstract, tree, is_leaf=lambda leaf: isinstance(leaf, Sharding))

    return replace(
        signature,
        inputs={name: (given, bare(tree)) for name, (given, tree) in signature.inputs.items()},
        outputs={name: bare(tree) for name, tree in signature.outputs.items()},
    )


def _moved(sharding: Sharding, new: dict[Any, Any]) -> Sharding:
    """Return a sharding on the new devices. One that names no devices is returned unchanged."""
    if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh):
        old = sharding.mesh
        placed = np.array([new[device] for device in old.devices.flat], dtype=object)
        mesh = Mesh(placed.reshape(old.devices.shape), old.axis_names, axis_types=old.axis_types)
        return NamedSharding(mesh, sharding.spec, memory_kind=sharding.memory_kind)
    if isinstance(sharding, GSPMDSharding):
        return moved_lowering.moved_gspmd(sharding, new)
    return sharding


# Packages of the compilers; their versions are recorded.
_COMPILERS = {"tpu": ("libtpu",), "gpu": ("jax-cuda13-plugin", "jax-cuda13-pjrt")}


def compile_job(payload: dict[str, Any], report: JobReport) -> dict[str, Any]:
    """Worker job: compile a layout in JSON and return a Snapshot of kind `tpu` or `gpu` as JSON.

    The payload can have the result of the job `abstract` as `state`, and the names of the `only` programs.
    """
    layout, known = layouts.from_json(payload["layout"]), payload.get("state")
    if known is not None:
        known = typed_json.decode(AbstractState, known, "the abstract arrays")
    target = targets.parse(layout.target)
    order, only = layout.device_order, tuple(payload.get("only", ()))
    return compile_layout(layout, target, report, order, known, only).to_json()


def compile_layout(
    layout: Layout,
    target: Target,
    report: JobReport,
    order: str = "row-major",
    known: AbstractState | None = None,
    only: Sequence[str] = (),
) -> Snapshot:
    """Compile init, train step and inference for a target. Nothing is allocated or run.

    A program that does not fit in the memory of a device has the figures of the compiler's message, and
    a finding.

    Args:
      known: the abstract arrays of the layout; None to trace them.
      only: the names of the programs to compile; all of them if there are none.
    Raises:
      InvalidInput: the mesh does not fit the target, a dimension is not divisible, or the compiler fails.
    """
    report("topology")
    mesh, mesh_of_record = mesh_on(target, layout.mesh_shape, layout.axis_names, order, axis_types(layout))
    report("build")
    planned = plan(layout, known or abstract_state(layout))
    for finding in planned.findings:
        if finding.code == INDIVISIBLE:
            raise InvalidInput(finding.message)
    compiled, inside = _compiled(layout, target, mesh, mesh_of_record, only, report)
    report("read")
    programs = tuple(program.record() for program in compiled)
    snapshot = Snapshot(
        source=Source(
            target.kind,
            target.text,
            now(),
            versions() | compiler_versions(target),
            processes=target.hosts,
            unsafe_compiler_options=unsafe_text(),
        ),
        layout=layout.to_json() | {"target": target.text},
        mesh=mesh_of_record,
        arrays=(*_with_compiled_specs(planned.arrays, programs, mesh_of_record), *inside),
        programs=programs,
        findings=(*(finding for program in compiled for finding in program.findings()), *unsafe_findings()),
        partitioned=_partitioned(layout, only),
    )
    return replace(
        snapshot,
        programs=tuple(
            replace(program, prediction=predicted_in(snapshot, program, target.chip).record())
            for program in programs
        ),
    )


def _compiled(
    layout: Layout, target: Target, mesh: Mesh, record: snapshot.Mesh, only: Sequence[str], report: JobReport
) -> tuple[tuple[AheadOfTimeProgram, ...], list[Array]]:
    """Return the programs, compiled for the devices of a mesh, and the arrays inside of them."""
    model = build_model(layout)
    watched: list[Watched] = []
    devices = tuple(mesh.devices.flat)
    # The devices of a target cannot compute the constants of a model. Under a mesh without devices, JAX
    # computes them on the CPU.
    # On explicit axes, types name the mesh, so code with its own mesh is traced without devices.
    moved = layout.entry.own and bool(layout.explicit_axes)
    traced = abstract_mesh(layout) if moved else mesh.abstract_mesh
    with tracing(layout, traced):
        wanted = signatures(model, layout, traced if moved else mesh)
        compiled = compile_all(
            [signature for signature in wanted if not only or signature.name in only],
            lambda name: AheadOfTimeProgram(name, report, target, devices, moved),
            record,
            watched,
        )
    return compiled, watched_arrays(watched, record, model.names == "logical", list_shards=False)


def _partitioned(layout: Layout, only: Sequence[str]) -> tuple[Program, ...] | None:
    """Return the programs before their compile, on which their predictions rest too; None if they fail."""
    with contextlib.suppress(InvalidInput):
        programs = partitioned_programs(layout, origins=False, only=only)
        return partitioned_records(programs.programs)
    return None


class AheadOfTimeProgram(CompiledProgram):
    """A program compiled for a target, or the figures of the compiler if it does not fit in memory."""

    def __init__(
        self, name: str, report: JobReport, target: Target, devices: Sequence[Any], moved: bool = False
    ) -> None:
        super().__init__(name, report)
        self._target = target
        self._devices = devices
        self._moved = moved
        self._short: Shortage | None = None

    def lower(self, signature: Signature) -> None:
        """Lower the function. If its code names devices of this machine, move them to the target."""
        if self._moved:
            self._signature = signature
            self._report("lower", program=self.name)
            self._lower_without_devices(signature)
            return
        try:
            super().lower(signature)
        except ValueError as error:
            if MISMATCH not in str(error):
                raise
            self._lower_without_devices(signature)

    def _lower_without_devices(self, signature: Signature) -> None:
        started = time.perf_counter()
        self._lowered = lower_for(signature, self._devices, targets.PLATFORMS[self._target.kind])
        self._seconds = replace(self._seconds, lower=time.perf_counter() - started)

    def _on_devices(self, requested: PyTree) -> PyTree:
        """Return the requested shardings on the devices of the target, to compare them with compiled ones."""
        return on_devices(requested, self._devices) if self._moved else requested

    def compile(self) -> None:
        """Compile the program, or raise InvalidInput. If it does not fit in memory, keep the shortage."""
        started = time.perf_counter()
        try:
            super().compile()
        except jax.errors.JaxRuntimeError as error:
            self._short = out_of_memory.shortage(str(error))
            if self._short is None:
                raise InvalidInput(
                    f"the compiler for {self._target.text} cannot compile {self.name}: {compiler_text(error)}"
                ) from None
            self._seconds = replace(self._seconds, compile=time.perf_counter() - started)

    def read_compiled(self, mesh: snapshot.Mesh) -> None:
        """Read the compiled text, unless there is none because the program does not fit."""
        if self._short is None:
            super().read_compiled(mesh)

    def record(self) -> Program:
        """Return the record. A program that does not fit has the memory figures of the compiler's message."""
        if self._short is not None:
            return Program(
                self.name,
                memory=Memory(
                    peak=self._short.needed, capacity=self._short.available, compiler=self._short.message
                ),
                seconds=self._seconds,
                ideal=self._ideal,
            )
        program = super().record()
        if program.memory is None:
            return program
        return replace(program, memory=replace(program.memory, capacity=self._capacity))

    def findings(self) -> tuple[Finding, ...]:
        """Return a finding if the program does not fit. The GPU compiler does not check this itself."""
        short = self._short
        if short is None and self._target.kind == "gpu":
            short = self._too_much()
        if short is None:
            return ()
        return (out_of_memory.finding(self.name, self._target.text, short),)

    @property
    def _capacity(self) -> int:
        return capacity_of(self._target.chip)

    def _too_much(self) -> Shortage | None:
        needed = self.bytes_per_device()
        if needed <= self._capacity:
            return None
        formula = "arguments + outputs + temporaries − aliased, from XLA's memory analysis"
        return Shortage(needed, self._capacity, "HBM", formula)


def _with_compiled_specs(
    planned: tuple[Array, ...], programs: tuple[Program, ...], mesh: snapshot.Mesh
) -> tuple[Array, ...]:
    """Return the planned arrays with their compiled shardings."""
    compiled: dict[str, Spec] = {}
    for program in programs:
        for sharding in program.shardings:
            # An input of init is an input of the train step too; the last program counts.
            if sharding.compiled is not None and not (program.name == "init" and sharding.role == "input"):
                compiled[sharding.path] = sharding.compiled
    return tuple(
        array
        if compiled.get(array.path, array.spec) == array.spec
        else with_spec(array, compiled[array.path], mesh)
        for array in planned
    )


def compiler_versions(target: Target) -> dict[str, str]:
    """Return the versions of the packages that compile for a target."""
    return {package: importlib.metadata.version(package) for package in _COMPILERS[target.kind]}
