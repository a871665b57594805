"""Compile a layout for a machine that is not there, by that machine's own compiler."""

from __future__ import annotations

import importlib.metadata
import math
import time
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from inspector import layout as layouts
from inspector.compiled import out_of_memory
from inspector.compiled.out_of_memory import Shortage
from inspector.core import sharding, snapshot, typed_json
from inspector.core.abstract import AbstractState
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import (
    Array,
    Finding,
    Memory,
    Program,
    Seconds,
    Snapshot,
    Source,
    Spec,
)
from inspector.layout import Layout
from inspector.layout.plan import INDIVISIBLE, now, plan
from inspector.machines import targets
from inspector.machines.targets import Target
from inspector.models.watching import Watched
from inspector.producers.abstract import abstract_state, versions
from inspector.producers.build import build_model, signatures, tracing
from inspector.producers.compiled_program import CompiledProgram, Report, compile_all
from inspector.producers.records import spec_of
from inspector.producers.topology import DeviceOrder, mesh_on

# The packages of the compilers, whose versions decide what comes out.
_COMPILERS = {"tpu": ("libtpu",), "gpu": ("jax-cuda13-plugin", "jax-cuda13-pjrt")}


def compile_job(payload: dict[str, Any], report: Report) -> dict[str, Any]:
    """Worker job: a layout as JSON in, a Snapshot of kind `tpu` or `gpu` as JSON out.

    `target` in the payload takes the place of the layout's, `device_order` that of the default; `state` is
    what `abstract` found before, if it did.
    """
    layout = layouts.from_json(payload["layout"])
    target = targets.parse(payload.get("target", layout.target))
    order = payload.get("device_order", getattr(layout, "device_order", "row-major"))
    known = payload.get("state")
    state = (
        None if known is None else typed_json.decode(AbstractState, known, "the abstract arrays")
    )
    return compile_layout(layout, target, report, order, state).to_json()


def compile_layout(
    layout: Layout,
    target: Target,
    report: Report,
    order: DeviceOrder = "row-major",
    known: AbstractState | None = None,
) -> Snapshot:
    """Compile init, train step and inference for the target; nothing is allocated and nothing is run.

    A program that does not fit into a device's memory is an answer: it has the figures of the compiler's
    message, and a finding says so.

    Args:
      known: the layout's abstract arrays, which take a while to trace; None if they must be.
    Raises:
      InvalidInput: the mesh does not fit the target, a dimension does not divide, or the compiler refuses.
    """
    report("topology")
    mesh, mesh_as_kept = mesh_on(target, layout.mesh_shape, layout.axis_names, order)
    report("build")
    planned = plan(layout, known or abstract_state(layout))
    for finding in planned.findings:
        if finding.code == INDIVISIBLE:
            raise InvalidInput(finding.message)
    model = build_model(layout)
    watched: list[Watched] = []
    with tracing(layout, mesh):
        compiled = compile_all(
            signatures(model, layout, mesh),
            lambda name: AheadOfTimeProgram(name, report, target),
            mesh_as_kept,
            watched,
        )
    report("read")
    programs = tuple(program.record() for program in compiled)
    kept = _with_compiled_specs(planned.arrays, programs, mesh_as_kept)
    logical = model.names == "logical"
    inside = {
        value.path: _watched_array(value, mesh_as_kept, logical, "train_step")
        for value in reversed(watched)  # one that was traced twice is told once, as it was at first
    }
    return Snapshot(
        source=Source(
            target.kind,
            target.text,
            now(),
            versions() | _compiler_versions(target),
            processes=target.hosts,
        ),
        layout=layout.to_json() | {"target": target.text},
        mesh=mesh_as_kept,
        arrays=(*kept, *reversed(inside.values())),
        programs=programs,
        findings=tuple(finding for one in compiled for finding in one.findings()),
    )


class AheadOfTimeProgram(CompiledProgram):
    """A program compiled for an absent machine, or what the compiler said when it did not fit there."""

    def __init__(self, name: str, report: Report, target: Target) -> None:
        super().__init__(name, report)
        self._target = target
        self._short: Shortage | None = None

    def compile(self) -> None:
        """As for a machine that is there; not to fit is remembered, not raised.

        Raises:
          InvalidInput: the compiler refuses it for another reason; its first sentence.
        """
        started = time.perf_counter()
        try:
            super().compile()
        except jax.errors.JaxRuntimeError as error:
            self._short = out_of_memory.shortage(str(error))
            if self._short is None:
                raise InvalidInput(
                    f"the compiler for {self._target.text} refuses {self.name}: "
                    f"{str(error).strip().splitlines()[0]}"
                ) from None
            self._seconds["compile"] = time.perf_counter() - started

    def read_compiled(self, mesh: snapshot.Mesh) -> None:
        """As for a machine that is there; what does not fit was not compiled."""
        if self._short is None:
            super().read_compiled(mesh)

    def record(self) -> Program:
        """What a Snapshot keeps of it; of one that does not fit, what the compiler told."""
        if self._short is not None:
            return Program(
                self.name,
                memory=Memory(
                    peak=self._short.needed,
                    capacity=self._short.available,
                    extra={"compiler": self._short.message},
                ),
                seconds=Seconds(**self._seconds),
                ideal=self._ideal,
            )
        made = super().record()
        if made.memory is None:
            return made
        return replace(made, memory=replace(made.memory, capacity=self._capacity))

    def findings(self) -> tuple[Finding, ...]:
        """That it does not fit. A TPU's compiler says so itself, that for GPUs compiles it all the same."""
        short = self._short
        if short is None and self._target.kind == "gpu":
            short = self._too_much()
        return () if short is None else (
            out_of_memory.finding(self.name, self._target.text, short),
        )  # fmt: skip

    @property
    def _capacity(self) -> int:
        chip = self._target.chip
        return chip.allocatable_bytes or chip.hbm_bytes_per_device

    def _too_much(self) -> Shortage | None:
        needed = self.bytes_per_device()
        if needed <= self._capacity:
            return None
        said = "arguments + outputs + temporaries − aliased, by the compiler's own count"
        return Shortage(needed, self._capacity, "HBM", said)


def _with_compiled_specs(
    planned: tuple[Array, ...], programs: tuple[Program, ...], mesh: snapshot.Mesh
) -> tuple[Array, ...]:
    """The planned arrays with the shardings that the compiled programs have for them."""
    got: dict[str, Spec] = {}
    for program in programs:
        for one in program.shardings:
            # What comes out of init is what goes into the train step; the last one to say so stands.
            if one.compiled is not None and not (program.name == "init" and one.role == "input"):
                got[one.path] = one.compiled
    return tuple(
        array
        if array.path not in got or got[array.path] == array.spec
        else _placed(array, got[array.path], mesh)
        for array in planned
    )


def _placed(array: Array, spec: Spec, mesh: snapshot.Mesh) -> Array:
    """The array under another spec; what one device holds is not known where the spec does not divide it."""
    if any(sharding.indivisible(array.shape, spec, mesh)):
        return replace(array, spec=spec, shard_shape=None, bytes_per_device=None, replicas=None)
    piece = sharding.shard_shape(array.shape, spec, mesh)
    elements = math.prod(array.shape)
    itemsize = (array.bytes or 0) // elements if elements else 0
    return replace(
        array,
        spec=spec,
        shard_shape=piece,
        bytes_per_device=math.prod(piece) * itemsize,
        replicas=sharding.replicas(spec, mesh),
    )


def _watched_array(value: Watched, mesh: snapshot.Mesh, logical: bool, program: str) -> Array:
    """The record of a value inside a program, from its spec alone: there may be thousands of devices."""
    dtype = np.dtype(value.dtype)
    group, _, _ = value.path.partition("/")
    array = Array(
        path=value.path,
        group=group,
        shape=value.shape,
        dtype=str(dtype),
        logical_axes=value.names if logical else None,
        bytes=math.prod(value.shape) * dtype.itemsize,
        program=program,
    )
    if not isinstance(value.sharding, NamedSharding):
        piece = tuple(value.sharding.shard_shape(value.shape))
        return replace(array, shard_shape=piece, bytes_per_device=math.prod(piece) * dtype.itemsize)
    return _placed(array, spec_of(value.sharding.spec, len(value.shape)), mesh)


def _compiler_versions(target: Target) -> dict[str, str]:
    return {package: importlib.metadata.version(package) for package in _COMPILERS[target.kind]}
