"""Compile a layout ahead of time for a TPU or GPU target, with the compiler of that target."""

from __future__ import annotations

import contextlib
import importlib.metadata
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
from jax.sharding import Mesh

from inspector import layout as layouts
from inspector.core import snapshot, typed_json
from inspector.core.abstract import AbstractState
from inspector.core.errors import InvalidInput, compiler_text
from inspector.core.job_report import JobReport
from inspector.core.snapshot import Array, Finding, Memory, Program, Snapshot, Source, Spec
from inspector.layout import Layout
from inspector.layout.plan import INDIVISIBLE, now, partitioned_records, plan
from inspector.machines import out_of_memory, targets
from inspector.machines.out_of_memory import Shortage
from inspector.machines.prediction.memory import capacity_of
from inspector.machines.prediction.predicted import predicted_in
from inspector.machines.targets import Target
from inspector.model import PyTree
from inspector.model.built_in.watching import Watched
from inspector.producers.arrays.live_arrays import watched_arrays, with_spec
from inspector.producers.compile import moved_program
from inspector.producers.compile.compiled_program import (
    CompiledProgram,
    compile_all,
    unsafe_findings,
    unsafe_text,
)
from inspector.producers.compile.topology import mesh_on
from inspector.producers.model.abstract import abstract_mesh, abstract_state, versions
from inspector.producers.model.build import Signature, axis_types, build_model, signatures, tracing
from inspector.producers.partition.partition_layout import partitioned_programs

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
        findings=(
            *(finding for program in compiled for finding in program.findings()),
            *unsafe_findings(),
        ),
        propagated=_propagated(layout, only),
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


def _propagated(layout: Layout, only: Sequence[str]) -> tuple[Program, ...] | None:
    """Return the programs before their compile, on which their predictions rest too; None if they fail."""
    with contextlib.suppress(InvalidInput):
        programs = partitioned_programs(layout, origins=False, only=only)
        return partitioned_records(programs.programs)
    return None


class AheadOfTimeProgram(CompiledProgram):
    """A program compiled for a target, or the figures of the compiler if it does not fit in memory."""

    def __init__(
        self,
        name: str,
        report: JobReport,
        target: Target,
        devices: Sequence[Any],
        moved: bool = False,
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
            if moved_program.MISMATCH not in str(error):
                raise
            self._lower_without_devices(signature)

    def _lower_without_devices(self, signature: Signature) -> None:
        started = time.perf_counter()
        self._lowered = moved_program.lower_for(
            signature, self._devices, targets.PLATFORMS[self._target.kind]
        )
        self._seconds = replace(self._seconds, lower=time.perf_counter() - started)

    def _on_devices(self, requested: PyTree) -> PyTree:
        """Return the requested shardings on the devices of the target, to compare them with compiled ones."""
        return moved_program.on_devices(requested, self._devices) if self._moved else requested

    def compile(self) -> None:
        """Compile the program. If it does not fit in memory, keep the shortage."""
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
                    peak=self._short.needed,
                    capacity=self._short.available,
                    compiler=self._short.message,
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
