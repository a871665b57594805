"""Worker job: the programs of a layout after XLA's partitioner, without a compile."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax.extend.mlir.dialects import sdy

from inspector import hlo
from inspector.compiled import program_text, residuals
from inspector.compiled.argument_uses import argument_uses
from inspector.compiled.assumed import with_costs_of_model
from inspector.compiled.matched_origins import with_lines
from inspector.compiled.memory_use import estimated_peak, estimated_use
from inspector.hlo import ragged_rows
from inspector.hlo.analysis import Analysis, open_choices
from inspector.hlo.attention_kernels import PlannedKernel
from inspector.hlo.fused_values import FusedTraffic, fused_traffic, fused_values
from inspector.hlo.later_passes import as_compiled_for
from inspector.hlo.live_values import LiveValues
from inspector.hlo.loop_invariants import simplified
from inspector.hlo.pipelines import pipelines
from inspector.hlo.shardings import NamedMesh, parse_sdy, shards_of
from inspector.hlo.text import rematerializations
from inspector.layout import Layout, from_json
from inspector.layout.plan import NOT_PARTITIONED
from inspector.machines.hardware import Kind
from inspector.partition import shardy
from inspector.partition.conflicts import CollectiveCauses, conflict, conflicts_of
from inspector.partition.history import History, intermediates
from inspector.partition.large_mesh import on_axes_of, on_large_mesh, smaller
from inspector.partition.numbers import purposes_of
from inspector.partition.one_mesh import OTHER_MESHES, manual_axes_around, meshes_of
from inspector.partition.origins import Sources, origins_of_value
from inspector.partition.planned_kernel import planned_kernel
from inspector.partition.rewritable import RewritableModule
from inspector.partition.shardings import (
    MANUAL,
    axes_of_dimensions,
    sharding_of,
    spec_of,
    unreduced_axes,
    whole_axes,
)
from inspector.partition.shardy import Propagated
from inspector.partition.template import Lowered, template_of
from inspector.prediction.step_program import ONCE
from inspector.records import typed_json
from inspector.records.job_report import JobReport
from inspector.records.snapshot import (
    Array,
    Finding,
    KernelWork,
    MemoryUse,
    Mesh,
    Program,
    ProgramArray,
    Residuals,
    ShardMap,
    Spec,
    Work,
)
from inspector.sharding import rules
from inspector.sharding.abstract import PartitionedPrograms
from inspector.sharding.array_groups import group_of_path
from inspector.sharding.meshes import slices_of
from inspector.sharding.placement import on_more_axes, with_unreduced
from inspector.sharding.rules import Rule
from inspector.sharding.sharding_text import mesh_text
from inspector.text.errors import InvalidInput
from inspector.text.formatting import mesh_sizes_text
from inspector.tracing.live_arrays import with_spec
from inspector.tracing.mlir.kernel_bodies import with_costs
from inspector.tracing.mlir.walk import operations
from inspector.tracing.mlir.xla_partitioner import MOST_DEVICES, partitioned_prepared

SCALED = "scaled-programs"
TRAIN_STEP = "train_step"

# Devices of a mesh on which the shards of a value over parts of axes are listed, half a kilobyte each.
MOST_LISTED = 512


@dataclass(frozen=True)
class Setting:
    """The input of a propagation: the mesh, and the rules if its arrays have logical axes.

    Attributes:
      watched: name of the program whose activations and gradients are listed.
      donate: whether results are written over the arguments with the same paths.
      kernel: the kernel that will compute attention; None without one.
      groups: whether a kernel will compute the products of experts.
      offloads: whether activations are kept in host memory, which the lowered program does not show. The
        memory of a program with values there is not estimated.
      optimizer_axes: mesh axes over which the optimizer state is sharded in addition to its parameters.
      kind: the kind of machine whose compiler follows; None for emulated devices, or if it is not known.
      local: whether the source files of the program are files of this machine.
      platforms: other kinds of machines for which programs of a step are read, too.
      torus: sides of a TPU slice in chips; None for other machines, or if it is not known.
    """

    mesh: Mesh
    rules: tuple[Rule, ...] = ()
    has_rules: bool = False
    watched: str | None = None
    donate: bool = False
    kernel: PlannedKernel | None = None
    groups: bool = False
    offloads: bool = False
    optimizer_axes: tuple[str, ...] = ()
    kind: Kind | None = None
    local: bool = False
    platforms: tuple[Kind, ...] = ()
    torus: tuple[int, ...] | None = None

    @classmethod
    def of(cls, layout: Layout, platforms: Collection[Kind] = ()) -> Setting:
        """Return the setting of a layout. Only one without a machine is read for `platforms`, too."""
        sizes = dict(layout.sizes)
        machine = layout.machine
        kind = machine.kind if machine else None
        return cls(
            layout.mesh(),
            tuple(layout.rules),
            layout.entry.has_rules,
            layout.step_program,
            donate=layout.donate,
            kernel=planned_kernel(layout),
            groups=sizes.get("routing") == "sorted",
            offloads="offload:" in str(sizes.get("remat")),
            optimizer_axes=layout.optimizer_axes,
            kind=kind,
            local=True,
            platforms=() if kind else tuple(sorted(platforms)),
            torus=machine.slice.shape if machine and machine.slice else None,
        )

    def written(
        self, module: RewritableModule, lowered: Lowered, logical: bool, mesh: Mesh | None = None
    ) -> Any:
        """Return a module of a program after its shardings were replaced by those of this setting.

        Args:
          module: `lowered.numbered`, or one of the copies for the partitioner.
          logical: whether the module has logical axes, to which the rules are applied.
          mesh: another mesh with the same axes; None for that of the setting.
        """
        if not logical:
            if mesh is None:
                return module.restore()
            return module.write(mesh.sizes, lambda spec: spec)
        sizes = self.mesh.sizes
        more = None
        if self.optimizer_axes:

            def changes(paths: Iterable[str], shapes: Iterable[tuple[int, ...]]) -> list[Any]:
                return [
                    functools.partial(on_more_axes, shape, axes=self.optimizer_axes, sizes=sizes)
                    if group_of_path(path) == "opt_state"
                    else None
                    for path, shape in zip(paths, shapes, strict=True)
                ]

            arguments, results = shardy.shapes_of_main(lowered.module)
            more = {
                "arg_attrs": changes(lowered.inputs, arguments),
                "res_attrs": changes(lowered.outputs, results),
            }
        mapping = functools.partial(partition_spec, self.rules)
        return module.write(sizes if mesh is None else mesh.sizes, mapping, more)

    def as_compiled(self, module: hlo.module.Module, mesh: Mesh) -> hlo.module.Module:
        """Return a partitioned program after the passes for this kind of machine that change the bytes sent.

        mesh: that for which it was partitioned.
        """
        slices = slices_of(mesh)
        numbers = None if slices is None else slices.tolist()
        compiled = as_compiled_for(module, self.kind, numbers, self.torus)
        return replace(compiled, local=self.local)

    def memory_use(self, analysis: Analysis, lowered: Lowered) -> MemoryUse | None:
        """Return an estimate of the memory of a program; None if it is unknown."""
        if self.offloads or lowered.offloads:
            return None
        uses = lowered.uses[0].by_path if lowered.uses else {}
        return estimated_use(
            analysis, lowered.inputs, lowered.outputs, self._donated(lowered), self.kernel, uses
        )

    def _donated(self, lowered: Lowered) -> Mapping[int, int]:
        """Return the number of each result that is written over an argument, with that of the argument."""
        numbers = {path: number for number, path in enumerate(lowered.inputs)} if self.donate else {}
        by_path = {place: numbers[path] for place, path in enumerate(lowered.outputs) if path in numbers}
        return lowered.donated or by_path

    def traffic(self, analysis: Analysis, sums: bool = False) -> FusedTraffic | None:
        """Return an estimate of the HBM traffic of a program; None if it is unknown. `sums`: as there."""
        return fused_traffic(analysis, self.kernel, self.kind != "gpu", self.groups, sums)

    def live_values(self, analysis: Analysis, lowered: Lowered) -> LiveValues | None:
        """Return the buffers that a program will probably need; None if they are unknown."""
        if self.offloads or lowered.offloads:
            return None
        return fused_values(analysis, self._donated(lowered), self.kernel)


def partition(payload: dict[str, Any], report: JobReport) -> dict[str, Any]:
    """Worker job: a layout as JSON in, its `PartitionedPrograms` as JSON out. Needs no particular devices.

    The payload has `origins`: whether to record where shardings come from, `only`: names of programs, and
    `platforms`: kinds of machines for which programs of a step are read, too.

    Progress has `totals`: the program that the page shows first as soon as its figures are known, as
    `PartitionedPrograms` without origins, conflicts and arrays. The answer follows later.
    """
    report("partition")
    layout = from_json(payload["layout"])

    def report_totals(totals: DescribedProgram) -> None:
        program = totals.program
        if program.name == layout.step_program:
            known = PartitionedPrograms(
                (program,), only=(program.name,), on_platforms=totals.on_platforms, complete=False
            )
            report("origins", totals=typed_json.encode(known))

    with shardy.paused():
        answer = partitioned_programs(
            layout, payload["origins"], payload.get("only", ()), payload.get("platforms", ()), report_totals
        )
        return typed_json.encode(answer)


def partitioned_programs(
    layout: Layout,
    origins: bool = True,
    only: Collection[str] = (),
    platforms: Collection[Kind] = (),
    report: Callable[[DescribedProgram], None] = lambda totals: None,
) -> PartitionedPrograms:
    """Return init, train step and inference after XLA's partitioner, with stage `partitioned`.

    Args:
      origins: record where shardings come from, for all programs but init.
      only: names of the programs that are wanted; all if it is empty, or if none of them can be propagated.
        Random numbers of init take longer than the other programs together.
      platforms: kinds of machines for which programs of a step are read, too, if the layout names none.
      report: is called with each program as soon as its totals are known, without causes and conflicts.

    Raises:
      InvalidInput: the model cannot be traced, or no program can be propagated.
    """
    # On explicit axes JAX may refuse any of them.
    template = template_of(layout, () if layout.explicit_axes else only)
    programs: list[Program] = []
    arrays: list[Array] = []
    on_platforms: list[Program] = []
    failed = list(template.failed)
    setting = Setting.of(layout, platforms)
    for lowered in template.programs:
        if only and lowered.name not in only:
            continue
        try:
            described = propagated_program(
                lowered, setting, template.logical, origins and lowered.name != "init", report
            )
        except InvalidInput as error:
            failed.append((lowered.name, str(error)))
            continue
        programs.append(described.program)
        arrays += described.arrays
        on_platforms += described.on_platforms
    if only and not programs:
        return partitioned_programs(layout, origins, platforms=platforms, report=report)
    if failed and not programs:
        raise InvalidInput(failed[0][1])
    findings = [Finding("note", NOT_PARTITIONED, f"{name}: {reason}") for name, reason in failed]
    if programs and layout.devices > MOST_DEVICES:
        note = (
            f"The mesh has {layout.devices:,} devices, so the programs were partitioned for at most "
            f"{MOST_DEVICES:,} on a mesh with the same axes, and scaled."
        )
        findings.append(Finding("note", SCALED, note))
    if not template.logical:
        findings += _about_meshes(template.programs, layout)
    programs += template.refused
    return PartitionedPrograms(
        tuple(programs), tuple(arrays), tuple(findings), tuple(only), tuple(on_platforms)
    )


def _about_meshes(programs: Iterable[Lowered], layout: Layout) -> Iterator[Finding]:
    """Yield a finding if the model's code makes a mesh with other axes than the layout's."""

    def sized(axes: Iterable[tuple[str, int]]) -> frozenset[tuple[str, int]]:
        return frozenset((name, size) for name, size in axes if size > 1)

    of_layout = sized(layout.mesh().sizes.items())
    for lowered in programs:
        for mesh in meshes_of(lowered.module.operation).values():
            if mesh.axes and sized(mesh.axes) != of_layout:
                names, sizes = zip(*mesh.axes, strict=True)
                message = (
                    f"The code of {layout.model} makes a mesh {mesh_sizes_text(names, sizes)}, but the "
                    f"layout has {mesh_text(layout.mesh())}. Values on its mesh can be sharded over "
                    "parts of the layout's axes."
                )
                yield Finding("warning", OTHER_MESHES, message)
                return


def partition_spec(given: tuple[Rule, ...], names: Spec) -> Spec:
    """Return the mesh axes of dimensions from their logical axes."""
    return rules.partition_spec([axes[0] if axes else None for axes in names], given)


def partitioned_totals(
    lowered: Lowered,
    setting: Setting,
    logical: bool,
    copy: RewritableModule | None = None,
    with_peak: bool = True,
) -> tuple[Program, int | None]:
    """Partition a program, and return the figures that rank it, with its estimated peak of memory.

    The program has no origins or conflicts. The peak is None if it is unknown or not wanted.

    Args:
      logical: whether the module has logical axes, to which the rules are applied.
      copy: a copy of the program for the partitioner without locations; that of `lowered` if None.

    Raises:
      InvalidInput: XLA refuses the program.
    """
    of_one_device, mesh = partitioned_module(lowered, setting, logical, copy or lowered.without_names)
    analysis, program = read_program(of_one_device, mesh, lowered, setting, named=False)
    live = setting.live_values(analysis, lowered) if with_peak else None
    return program, None if live is None else estimated_peak(live)


def read_program(
    of_one_device: hlo.module.Module,
    mesh: Mesh,
    lowered: Lowered,
    setting: Setting,
    named: bool = True,
    kept: Residuals | None = None,
) -> tuple[Analysis, Program]:
    """Return a program after the passes of the setting's platform, and its record with collectives and work.

    Args:
      mesh: that for which it was partitioned.
      named: whether the record has the memory by groups of arrays.
      kept: what its backward pass reads and computes again, without traffic. None if unknown.
    """
    analysis = Analysis(setting.as_compiled(of_one_device, mesh))
    module = analysis.module
    arrays = [
        *(ProgramArray("input", path, None, None, None) for path in lowered.inputs),
        *(ProgramArray("output", path, None, None, None) for path in lowered.outputs),
    ]
    if not lowered.uses:
        lowered.uses.append(argument_uses(analysis, lowered.inputs, lowered.outputs))
    updated = lowered.uses[0].updated
    collectives = program_text.collectives_of(module, mesh, arrays, analysis, updated=updated)
    collectives = simplified(collectives, analysis)
    if mesh is not setting.mesh:
        collectives = tuple(on_axes_of(collective, setting.mesh) for collective in collectives)
    work, traffic = hlo.work.work(module, analysis), setting.traffic(analysis)
    if kept is not None and traffic is not None:
        kept = residuals.with_traffic(kept, analysis, traffic)
    program = Program(
        lowered.name,
        stage="partitioned",
        platform=setting.kind,
        flops_per_device=work.flops,
        collectives=collectives,
        work=with_traffic(work, traffic, setting.kernel, lowered.name),
        memory_use=setting.memory_use(analysis, lowered) if named else None,
        open_choices=open_choices(analysis),
        # A larger mesh can have other stages than the one that was partitioned.
        pipelines=pipelines(analysis, collectives) if mesh is setting.mesh else None,
        assumptions=ragged_rows.assumptions(module),
        first_used=lowered.first_used or (lowered.uses[0].first_used if lowered.uses else ()) or None,
        residuals=kept,
        checkpoint_names=lowered.checkpoint_names if named else None,
    )
    return analysis, with_costs_of_model(program, lowered.kernel_costs)


@dataclass(frozen=True)
class DescribedProgram:
    """A partitioned program, the values in it that its model reports, and the program on other platforms."""

    program: Program
    arrays: tuple[Array, ...]
    on_platforms: tuple[Program, ...] = ()


def propagated_program(
    lowered: Lowered,
    setting: Setting,
    logical: bool,
    origins: bool = True,
    report: Callable[[DescribedProgram], None] = lambda totals: None,
) -> DescribedProgram:
    """Return one lowered program after XLA's partitioner, and the values in it that its model reports.

    Args:
      logical: whether the module has logical axes, to which the rules are applied.
      report: is called with the program as soon as its totals are known, without causes and conflicts.

    Raises:
      InvalidInput: XLA or Shardy refuses the program.
    """
    program = partitioned_program(lowered, setting, logical)
    report(program.totals)
    module = setting.written(lowered.numbered, lowered, logical)
    watched = lowered.name == setting.watched
    try:
        propagated = shardy.propagate(module, origins)
    except InvalidInput:
        if not origins:
            raise
        origins = False
        propagated = shardy.propagate(module, origins)
    return with_causes(program, propagated, lowered, setting, origins, watched)


@dataclass(frozen=True)
class PartitionedProgram:
    """A program of one device after XLA's partitioner, and its totals.

    Attributes:
      module: the program after the passes of its platform.
      totals: its record without origins and conflicts, without arrays, and the same on other platforms.
    """

    module: hlo.module.Module
    totals: DescribedProgram


def partitioned_program(lowered: Lowered, setting: Setting, logical: bool) -> PartitionedProgram:
    """Partition a program, and read its work, traffic and memory.

    Raises:
      InvalidInput: XLA refuses the program.
    """
    log: list[str] = []
    of_one_device, mesh = partitioned_module(lowered, setting, logical, log=log)
    kept = residuals.residuals(Analysis(of_one_device))
    analysis, program = read_program(of_one_device, mesh, lowered, setting, kept=kept)
    warnings = rematerializations(lowered.names.put_into("\n".join(log)))
    program = replace(program, rematerializations=warnings)
    on_platforms = tuple(
        read_program(of_one_device, mesh, lowered, replace(setting, kind=kind), kept=kept)[1]
        for kind in (() if lowered.name in ONCE else setting.platforms)
    )
    return PartitionedProgram(analysis.module, DescribedProgram(program, (), on_platforms))


def with_causes(
    partitioned: PartitionedProgram,
    propagated: Propagated,
    lowered: Lowered,
    setting: Setting,
    origins: bool,
    watched: bool,
) -> DescribedProgram:
    """Return the record of a program with the causes of its collectives, and the values in it.

    Args:
      propagated: the program after Shardy's propagation, with notes about `origins` or without.
      watched: whether the values are wanted.
    """
    program, history = partitioned.totals.program, propagated.history
    sources = Sources(
        lowered.inputs,
        lowered.outputs,
        propagated.constraints,
        lowered.logical_axes,
        setting.rules,
        any(axis.type == "explicit" for axis in setting.mesh.axes),
    )
    purposes = purposes_of(partitioned.module)
    with propagated.module.context:
        conflicting = conflicts_of(program.collectives or (), purposes, history, setting.mesh.sizes)
        causes = CollectiveCauses(history, purposes, conflicting, sources, origins)
        collectives = tuple(
            replace(collective, origins=causes.origins(collective))
            for collective in program.collectives or ()
        )
        conflicts = tuple(
            conflict(operation, origins, history, sources) for operation in conflicting.values()
        )
        values = _arrays(history, origins, sources, setting, lowered.name) if watched else []
    program = replace(
        program,
        collectives=None if program.collectives is None else with_lines(collectives, conflicts),
        conflicts=conflicts,
    )
    return replace(partitioned.totals, program=program, arrays=tuple(values))


def partitioned_module(
    lowered: Lowered,
    setting: Setting,
    logical: bool,
    copy: RewritableModule | None = None,
    log: list[str] | None = None,
) -> tuple[hlo.module.Module, Mesh]:
    """Return the program of one device of a mesh, and the mesh of the groups of its collectives.

    The mesh is another one with the same axes if it cannot be emulated.

    Args:
      logical: whether the module has logical axes, to which the rules are applied.
      copy: a copy of the program without locations. If None, the instructions have the names and source
        lines of the operations.
      log: gets the output of the partitioner to standard error.

    Raises:
      InvalidInput: XLA refuses the program, or it cannot be scaled to a mesh that cannot be emulated.
    """
    mesh = setting.mesh

    def on(emulated: Mesh) -> hlo.module.Module:
        other = None if emulated is mesh else emulated
        written = setting.written(copy or lowered.for_partitioner, lowered, logical, other)
        text = with_costs(partitioned_prepared(written, emulated.size, log))
        module = program_text.parsed(lowered.names.put_into(text) if copy is None else text)
        if module is None:
            raise InvalidInput("the partitioned program cannot be read")
        return module

    *others, last = smaller(mesh) or (None,)
    if last is None:
        return on(mesh), mesh
    if any(operation.name == MANUAL for operation in operations(lowered.module.operation)):
        raise InvalidInput(
            f"the mesh has {mesh.size:,} devices, of which at most {MOST_DEVICES:,} are emulated, and the "
            "shapes inside of its shard_map are those of this mesh"
        )
    for meshes in others:
        with contextlib.suppress(InvalidInput):
            return on_large_mesh(on(meshes.first), on(meshes.second), meshes), meshes.first
    return on_large_mesh(on(last.first), on(last.second), last), last.first


def with_traffic(
    work: Work, traffic: FusedTraffic | None, kernel: PlannedKernel | None, program: str
) -> Work:
    """Return the work of a program with the traffic that remains when a compiler has fused it.

    kernel: what will compute attention; None without one.
    """
    if traffic is None:
        return work
    whole = traffic.is_whole
    return replace(
        work,
        fused_bytes=traffic.total if whole else None,
        fusions=float(traffic.fusions) if whole else None,
        product_bytes=traffic.product_bytes if whole else None,
        parts=tuple(
            replace(part, fused_bytes=fused[0], fusions=fused[1], product_bytes=fused[2])
            for part in work.parts
            for fused in (traffic.parts.get(part.within, (0.0, 0.0, 0.0)),)
        ),
        attention=kernel_work(traffic, kernel, program),
        grouped=dict(traffic.grouped),
        grouped_tiles=dict(traffic.grouped_tiles),
        grouped_masked=dict(traffic.grouped_masked),
    )


def kernel_work(traffic: FusedTraffic, kernel: PlannedKernel | None, program: str) -> KernelWork | None:
    """Return the work of a kernel of attention instead of matrix products; None without them."""
    products = sum(traffic.attention.values())
    if not products or kernel is None:
        return None
    types = traffic.attention_types
    share = kernel.share(program == TRAIN_STEP)
    return KernelWork(products, products * share, next(iter(types), None), dict(types), kernel.widths)


def _arrays(history: History, origins: bool, sources: Sources, setting: Setting, program: str) -> list[Array]:
    """Return the activations and gradients of a program; of repeated ones the first."""
    logical, mesh = setting.has_rules, setting.mesh
    arrays: dict[str, Array] = {}
    for intermediate in intermediates(history):
        if intermediate.path in arrays:
            continue
        sharding = sharding_of(intermediate.value)
        spec: Spec = tuple(None for _ in intermediate.shape)
        if sharding is not None:
            spec = spec_of(axes_of_dimensions(sharding))
        array = Array(
            path=intermediate.path,
            group=intermediate.group,
            shape=intermediate.shape,
            dtype=intermediate.dtype,
            logical_axes=intermediate.names if logical else None,
            bytes=math.prod(intermediate.shape) * jax.numpy.dtype(intermediate.dtype).itemsize,
            program=program,
            origins=origins_of_value(intermediate.value, history, sources) if origins else None,
        )
        manual = manual_axes_around(intermediate.value)
        if not manual and sharding is not None and whole_axes(sharding) is None:
            arrays[intermediate.path] = _on_parts_of_axes(array, sharding, mesh)
            continue
        array = with_spec(array, spec, mesh)
        unreduced = () if sharding is None else unreduced_axes(sharding)
        array = with_unreduced(array, unreduced, mesh)
        if manual:  # there is no global array: each device has its own value over these axes
            inside = ShardMap(manual, spec)
            array = replace(array, spec=None, replicas=None, unreduced=(), shard_map=inside)
        arrays[intermediate.path] = array
    return list(arrays.values())


def _on_parts_of_axes(array: Array, sharding: sdy.TensorShardingAttr, mesh: Mesh) -> Array:
    """Return a value that is sharded over a part of a mesh axis, which no PartitionSpec can say."""
    name = str(sharding.mesh_or_ref).removeprefix("@").strip('"')
    axes = tuple((axis.name, axis.size) for axis in mesh.axes)
    parsed = parse_sdy(str(sharding), {name: NamedMesh(axes)})
    shape = array.shape or ()
    ways = (*parsed.ways, *(1,) * len(shape))
    piece = tuple(-(-size // n) for size, n in zip(shape, ways, strict=False))
    held = math.prod(piece) * jax.numpy.dtype(array.dtype).itemsize
    return replace(
        array,
        shard_shape=piece,
        bytes_per_device=held,
        replicas=mesh.size // math.prod(parsed.ways),
        shards=shards_of(parsed, shape, mesh.devices) if mesh.size <= MOST_LISTED else None,
        sharding=str(sharding),
    )
