"""The same propagated program on meshes that differ only in the sizes of their axes.

Propagation decides by the names of mesh axes which axis shards which dimension. So programs that differ only
in the sizes of their mesh axes are propagated once. The bytes of each collective and the FLOPs of each
matrix product, and the memory in use, then follow from the axes that shard the values: one whose dimensions
are sharded over `fsdp` and `tensor` has global bytes / (fsdp × tensor) on each device.

The partitioner compares costs in a few places, so that another size can lead to other transfers. Callers
propagate the mesh itself before they rely on a program.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from inspector.compiled import hlo
from inspector.compiled.hlo.analysis import Analysis
from inspector.compiled.hlo.flops import product
from inspector.compiled.hlo.fused_traffic import FusedTraffic
from inspector.core.collectives import OPERATIONS
from inspector.core.snapshot import Collective, MatmulFlops, Mesh, Program, Work
from inspector.core.statistics import sum_known
from inspector.producers.propagation import device_program, shardy, xla_passes
from inspector.producers.propagation.propagate import Setting, kernel_work, with_traffic
from inspector.producers.propagation.scaled_memory import ScaledMemory, scaled_memory
from inspector.producers.propagation.shardings import (
    Axes,
    result_shardings,
    sharding_of,
    whole_axes,
)
from inspector.producers.propagation.template import Lowered


@dataclass(frozen=True)
class _Moved:
    """Equal transfers over whole mesh axes.

    collective: the first of them, with the executions of all.
    global_bytes: its payload, summed over the devices with different parts.
    sharded: the mesh axes that shard its payload.
    """

    collective: Collective
    global_bytes: int
    sharded: Axes


@dataclass(frozen=True)
class ScaledProgram:
    """A propagated program that can be computed for other sizes of its mesh axes.

    Attributes:
      program: the program on the mesh that was propagated.
      scalable: whether `on` can compute others. Not if it has a `shard_map`, a part of an axis, or a
        dimension that its axes do not divide.
      memory: the bytes in use at each instruction; None if unknown.
      traffic: the bytes of HBM that all devices with different parts of an array read and write, by the mesh
        axes that shard it; None if unknown.
      attention: the FLOPs of the products that a kernel of attention replaces, as those of `products`.
      kernel_square: length of the sequences of this attention; None without a kernel.
    """

    program: Program
    scalable: bool
    moved: tuple[_Moved, ...]
    products: Mapping[tuple[str, Axes], float]
    memory: ScaledMemory | None
    traffic: Mapping[Axes, float] | None = None
    attention: Mapping[Axes, float] = field(default_factory=dict)
    kernel_square: int | None = None

    def peak(self, sizes: Mapping[str, int]) -> int | None:
        """Return an estimate of the most bytes in use on a device of a mesh with these sizes of axes."""
        return None if self.memory is None else self.memory.peak(sizes)

    def on(self, sizes: Mapping[str, int], state: float = 1.0) -> Program:
        """Return the program on a mesh with these sizes of the same axes.

        Equal collectives are one, with the executions of all.

        Args:
          state: bytes of the train state and the batch on a device, relative to those on the own mesh.
        """
        devices = math.prod(sizes.values())
        collectives = []
        for each in self.moved:
            one = each.collective
            payload = -(-each.global_bytes // math.prod(sizes[axis] for axis in each.sharded))
            group = math.prod(sizes[axis] for axis in one.mesh_axes or ())
            if OPERATIONS[one.op].route == "pairs":
                wire, group_size, groups = payload, one.group_size, one.groups
            else:
                wire = OPERATIONS[one.op].wire_bytes(payload, group)
                group_size, groups = group, devices // group
            collectives.append(
                replace(
                    one,
                    payload_bytes=payload,
                    wire_bytes_per_device=wire,
                    group_size=group_size,
                    groups=groups,
                )
            )
        flops: dict[str, float] = {}
        for (dtype, axes), number in self.products.items():
            ways = math.prod(sizes[axis] for axis in axes)
            flops[dtype] = flops.get(dtype, 0.0) + number / ways
        matmul = tuple(MatmulFlops(dtype, number) for dtype, number in flops.items())
        work = self.program.work
        instructions = None if work is None else work.instructions
        boundary = None if work is None else work.boundary_bytes
        boundary = None if boundary is None else boundary * state
        fused = None
        if self.traffic is not None:
            fused = _on(self.traffic, sizes)
        return replace(
            self.program,
            collectives=tuple(collectives),
            flops_per_device=None,
            work=Work(
                None,
                matmul,
                None,
                instructions=instructions,
                boundary_bytes=boundary,
                fused_bytes=fused,
                fusions=None if work is None else work.fusions,
                attention=kernel_work(_on(self.attention, sizes), self.kernel_square),
            ),
        )


def scaled_program(lowered: Lowered, setting: Setting, logical: bool) -> ScaledProgram:
    """Propagate a program, and return it with what other sizes of the mesh axes need.

    The program has no origins, arrays or conflicts.

    Raises:
      InvalidInput: Shardy refuses the program.
    """
    unmarked = lowered.unmarked
    module = setting.module_of(unmarked) if logical else unmarked.module.operation.clone()
    shardy.transfers(module)
    xla_passes.run(module, setting.kind)
    with module.context:
        writer = device_program.Writer(module, setting.mesh.sizes, locations=False)
        written = writer.write()
        analysis = Analysis(written.module)
        collectives = hlo.collectives(written.module, setting.mesh, analysis)
        work = hlo.work(written.module, analysis)
        fused = setting.traffic(analysis)
        program = Program(
            lowered.name,
            stage="propagated",
            flops_per_device=work.flops,
            collectives=collectives,
            work=with_traffic(work, fused, setting.kernel_square),
        )
        moved = _moved(collectives, written, setting.mesh)
        kernels = fused.attention if fused is not None else ()
        products = _products(analysis, written, setting.mesh, kernels)
        traffic = _traffic(fused, written, setting.mesh)
        live = setting.live_values(analysis, lowered)
        memory = None if live is None else scaled_memory(live, written, setting.mesh)
    scalable = (
        moved is not None
        and products is not None
        and not written.not_partitioned
        and not lowered.has_manual_part
        and _adds_up(products[0], setting.mesh, work)
    )
    return ScaledProgram(
        program,
        scalable,
        moved or (),
        products[0] if products else {},
        memory,
        traffic,
        products[1] if products else {},
        setting.kernel_square,
    )


def _on(amounts: Mapping[Axes, float], sizes: Mapping[str, int]) -> float:
    """Return the sum of amounts on a device, each divided by the sizes of the axes that share it."""
    return sum(amount / math.prod(sizes[axis] for axis in axes) for axes, amount in amounts.items())


def _moved(
    collectives: tuple[Collective, ...], written: device_program.DeviceProgram, mesh: Mesh
) -> tuple[_Moved, ...] | None:
    """Return the collectives with the axes of their payloads; None if one is not of whole axes."""
    equal: dict[Hashable, list[_Moved]] = {}
    for one in collectives:
        operation = written.operations.get(one.name)
        if operation is None or one.mesh_axes is None or one.payload_bytes is None or one.network:
            return None
        is_result = OPERATIONS[one.op].payload == "result"
        if is_result:
            shardings = list(result_shardings(operation))
        else:
            shardings = [sharding_of(value) for value in operation.operands]
        every = [whole_axes(sharding) for sharding in shardings]
        if len(set(every)) != 1 or every[0] is None:
            return None
        axes = every[0]
        ways = math.prod(mesh.sizes[axis] for axis in axes)
        global_bytes = one.payload_bytes * ways
        key: Hashable = one.op, one.mesh_axes, one.conditional, global_bytes, axes
        if one.executions is None or one.source_target_pairs:
            key = one.name  # it is not known to be equal to another one
        equal.setdefault(key, []).append(_Moved(one, global_bytes, axes))
    return tuple(_together(group) for group in equal.values())


def _together(equal: Sequence[_Moved]) -> _Moved:
    """Return equal transfers as one, with the executions of all."""
    times = sum_known(each.collective.executions for each in equal)
    return replace(equal[0], collective=replace(equal[0].collective, executions=times))


def _products(
    analysis: Analysis,
    written: device_program.DeviceProgram,
    mesh: Mesh,
    kernels: Collection[str],
) -> tuple[dict[tuple[str, Axes], float], dict[Axes, float]] | None:
    """Return the FLOPs of all devices by operand type and the axes that share the work; None if unknown.

    The second part are those of the products that a kernel of attention replaces, whose names are given.
    """
    found: dict[tuple[str, Axes], float] = {}
    attention: dict[Axes, float] = {}
    for computation, instruction in analysis.module.instructions:
        each = product(computation, instruction)
        if each is None:
            continue
        times = analysis.runs[computation.name].count
        operation = written.products.get(instruction.name)
        if operation is None or each.flops is None or each.dtype is None or times is None:
            return None
        shardings = [sharding_of(value) for value in operation.operands]
        every = [whole_axes(one) for one in (*shardings, *result_shardings(operation))]
        if None in every:
            return None
        axes = frozenset[str]().union(*(one for one in every if one is not None))
        ways = math.prod(mesh.sizes[axis] for axis in axes)
        key = (each.dtype, axes)
        amount = float(each.flops) * times * ways
        found[key] = found.get(key, 0.0) + amount
        if instruction.name in kernels:
            attention[axes] = attention.get(axes, 0.0) + amount
    return found, attention


def _traffic(
    traffic: FusedTraffic | None, written: device_program.DeviceProgram, mesh: Mesh
) -> dict[Axes, float] | None:
    """Return the traffic by the axes that shard each array, of all devices with different parts of it.

    An array that is sharded over a part of a mesh axis keeps its bytes on every mesh.
    """
    if traffic is None:
        return None
    found: dict[Axes, float] = {}
    for name, count in traffic.bytes.items():
        value = written.values.get(name)
        axes = whole_axes(None if value is None else sharding_of(value)) or frozenset()
        ways = math.prod(mesh.sizes[axis] for axis in axes)
        found[axes] = found.get(axes, 0.0) + count * ways
    return found


def _adds_up(products: Mapping[tuple[str, Axes], float], mesh: Mesh, work: Work) -> bool:
    """Return whether the FLOPs by axes are those of the program on its own mesh."""
    if work.matmul is None:
        return False
    own = sum(
        number / math.prod(mesh.sizes[axis] for axis in axes)
        for (_, axes), number in products.items()
    )
    return math.isclose(own, sum(each.flops for each in work.matmul), rel_tol=1e-9)
