"""The same program on meshes that differ only in the sizes of their axes.

XLA partitions the program on two meshes, the second with other sizes. Bytes and FLOPs that are divided by the
ratio of an axis are sharded over it: an array that is sharded over `fsdp` and `tensor` has global
bytes / (fsdp × tensor) on each device. Bytes of each collective, FLOPs of each matrix product and the memory
in use on a mesh of any other sizes then follow.

The partitioner compares costs in a few places, so that another size can lead to other transfers. Callers
partition the mesh itself before they rely on a program.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from inspector.compiled import hlo, program_text
from inspector.compiled.hlo.analysis import Analysis
from inspector.compiled.hlo.flops import Product, product
from inspector.compiled.hlo.fused_traffic import FusedTraffic
from inspector.compiled.hlo.live_values import LiveValues
from inspector.compiled.hlo.loop_invariants import simplified
from inspector.core.collectives import OPERATIONS
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Collective, MatmulFlops, Mesh, Program, Work
from inspector.core.statistics import sum_known
from inspector.producers.propagation.propagate import (
    Setting,
    kernel_work,
    partitioned_text,
    with_traffic,
)
from inspector.producers.propagation.scaled_memory import ScaledMemory, scaled_memory
from inspector.producers.propagation.shardings import Axes
from inspector.producers.propagation.size_ratios import are_distinct, axes_of, resized
from inspector.producers.propagation.template import Lowered
from inspector.producers.propagation.xla_partitioner import MOST_DEVICES

_MOST_TRIES = 3  # of other meshes, if the sizes of the first do not divide the arrays
_POWERS = (-3, -2, -1, 1, 2, 3, 4)


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
    """A partitioned program that can be computed for other sizes of its mesh axes.

    Attributes:
      program: the program on the mesh for which it was partitioned.
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
        for moved in self.moved:
            collective = moved.collective
            payload = -(-moved.global_bytes // math.prod(sizes[axis] for axis in moved.sharded))
            group = math.prod(sizes[axis] for axis in collective.mesh_axes or ())
            operation = OPERATIONS[collective.op]
            by_pairs = operation.route == "pairs"
            wire = payload if by_pairs else operation.wire_bytes(payload, group)
            collectives.append(
                replace(
                    collective,
                    payload_bytes=payload,
                    wire_bytes_per_device=wire,
                    group_size=collective.group_size if by_pairs else group,
                    groups=collective.groups if by_pairs else devices // group,
                )
            )
        flops: dict[str, float] = {}
        for (dtype, axes), number in self.products.items():
            ways = math.prod(sizes[axis] for axis in axes)
            flops[dtype] = flops.get(dtype, 0.0) + number / ways
        matmul = tuple(MatmulFlops(dtype, number) for dtype, number in flops.items())
        work = self.program.work
        boundary = None if work is None else work.boundary_bytes
        boundary = None if boundary is None else boundary * state
        fused = None if self.traffic is None else _on(self.traffic, sizes)
        return replace(
            self.program,
            collectives=tuple(collectives),
            flops_per_device=None,
            work=Work(
                None,
                matmul,
                None,
                instructions=None if work is None else work.instructions,
                boundary_bytes=boundary,
                fused_bytes=fused,
                fusions=None if work is None else work.fusions,
                attention=kernel_work(_on(self.attention, sizes), self.kernel_square),
            ),
        )


def scaled_program(
    lowered: Lowered, setting: Setting, logical: bool, scalable: bool = True
) -> ScaledProgram:
    """Partition a program, and return it with the amounts from which other sizes of the mesh axes follow.

    The program has no origins, arrays or conflicts.

    Args:
      scalable: whether other sizes are wanted, for which it is partitioned once more.

    Raises:
      InvalidInput: XLA or Shardy refuses the program.
    """
    own = _partitioned(lowered, setting, logical, not scalable)
    axes = [axis.name for axis in setting.mesh.axes if axis.size > 1]
    if scalable and not lowered.has_manual_part and len(axes) == len(setting.mesh.axes):
        for exponents in _exponents(setting.mesh, axes):
            with contextlib.suppress(InvalidInput):
                other = _partitioned(
                    lowered, replace(setting, mesh=resized(setting.mesh, exponents)), logical
                )
                scaled = _compared(own, other, setting, exponents)
                if scaled is not None:
                    return scaled
    memory = None
    if own.live is not None:
        memory = scaled_memory(own.live, own.live, setting.mesh, lambda *_: None)
    return ScaledProgram(own.program, False, (), {}, memory)


@dataclass(frozen=True)
class _Partitioned:
    """One program after XLA's partitioner, and the amounts that are compared with another mesh."""

    program: Program
    # Each with its executions, and whether a kernel of attention replaces it.
    products: tuple[tuple[Product, int | None, bool], ...]
    traffic: FusedTraffic | None
    live: LiveValues | None


def _partitioned(
    lowered: Lowered, setting: Setting, logical: bool, in_slices: bool = False
) -> _Partitioned:
    """Partition a program.

    in_slices: whether transfers between TPU slices are done apart, which depends on the sizes of mesh axes.
    """
    text = partitioned_text(lowered, setting, logical)
    module = program_text.parsed(text)
    mesh = setting.mesh if in_slices else replace(setting.mesh, slice_index=None)
    if module is None:
        raise InvalidInput("the partitioned program cannot be read")
    module = setting.as_compiled(module, mesh)
    analysis = Analysis(module)
    collectives = simplified(hlo.collectives(module, setting.mesh, analysis), analysis)
    work = hlo.work(module, analysis)
    fused = setting.traffic(analysis)
    kernels = fused.attention if fused is not None else ()
    products = tuple(
        (matmul, analysis.runs[computation.name].count, instruction.name in kernels)
        for computation, instruction in module.instructions
        if (matmul := product(computation, instruction)) is not None
    )
    program = Program(
        lowered.name,
        stage="partitioned",
        flops_per_device=work.flops,
        collectives=collectives,
        work=with_traffic(work, fused, setting.kernel_square),
    )
    return _Partitioned(program, products, fused, setting.live_values(analysis, lowered))


def _exponents(mesh: Mesh, axes: Sequence[str]) -> Iterator[dict[str, int]]:
    """Yield powers of two by which the sizes of axes are multiplied, no two sums of which are equal.

    Smaller meshes come first, because the sizes of larger ones more often do not divide the arrays.
    """
    allowed = [
        [power for power in _POWERS if power > 0 or mesh.sizes[axis] % 2 ** (1 - power) == 0]
        for axis in axes
    ]
    every = [dict(zip(axes, powers, strict=True)) for powers in itertools.product(*allowed)]
    usable = [
        powers
        for powers in every
        if are_distinct(powers) and mesh.size * 2.0 ** sum(powers.values()) <= MOST_DEVICES
    ]
    usable.sort(key=lambda powers: (max(0, *powers.values()), sum(map(abs, powers.values()))))
    yield from usable[:_MOST_TRIES]


def _compared(
    own: _Partitioned, other: _Partitioned, setting: Setting, exponents: Mapping[str, int]
) -> ScaledProgram | None:
    """Return the program with the axes that shard each amount; None if those of two meshes are not alike."""
    moved = _moved(own.program, other.program, setting.mesh, exponents)
    products = _products(own, other, setting.mesh, exponents)
    if moved is None or products is None:
        return None
    by_name: dict[str, Axes] = {}
    if own.traffic is not None and other.traffic is not None:
        if own.traffic.bytes.keys() != other.traffic.bytes.keys():
            return None
        by_name = {
            name: axes_of(amount, other.traffic.bytes[name], exponents) or frozenset()
            for name, amount in own.traffic.bytes.items()
        }
    memory = None
    if own.live is not None and other.live is not None:
        memory = scaled_memory(
            own.live, other.live, setting.mesh, lambda a, b: axes_of(a, b, exponents)
        )
        if memory is None:
            return None
    return ScaledProgram(
        own.program,
        True,
        moved,
        products[0],
        memory,
        _traffic(own.traffic, by_name, setting.mesh),
        products[1],
        setting.kernel_square,
    )


def _on(amounts: Mapping[Axes, float], sizes: Mapping[str, int]) -> float:
    """Return the sum of amounts on a device, each divided by the sizes of the axes that share it."""
    return sum(amount / math.prod(sizes[axis] for axis in axes) for axes, amount in amounts.items())


def _moved(
    own: Program, other: Program, mesh: Mesh, exponents: Mapping[str, int]
) -> tuple[_Moved, ...] | None:
    """Return the collectives with the axes of their payloads; None if one is not of whole axes."""
    before, after = own.collectives or (), other.collectives or ()
    if len(before) != len(after):
        return None
    equal: dict[Hashable, list[_Moved]] = {}
    for old, new in zip(before, after, strict=True):
        alike = (old.op, old.mesh_axes, old.executions) == (new.op, new.mesh_axes, new.executions)
        payload = old.payload_bytes
        if not alike or payload is None or new.payload_bytes is None:
            return None
        if old.mesh_axes is None or old.network:
            return None
        axes = axes_of(payload, new.payload_bytes, exponents)
        if axes is None:
            return None
        global_bytes = payload * math.prod(mesh.sizes[axis] for axis in axes)
        key: Hashable = old.op, old.mesh_axes, old.conditional, global_bytes, axes
        if old.executions is None or old.source_target_pairs:
            key = old.name  # it is not known to be equal to another one
        equal.setdefault(key, []).append(_Moved(old, global_bytes, axes))
    return tuple(_together(group) for group in equal.values())


def _together(equal: Sequence[_Moved]) -> _Moved:
    """Return equal transfers as one, with the executions of all."""
    times = sum_known(moved.collective.executions for moved in equal)
    return replace(equal[0], collective=replace(equal[0].collective, executions=times))


def _products(
    own: _Partitioned, other: _Partitioned, mesh: Mesh, exponents: Mapping[str, int]
) -> tuple[dict[tuple[str, Axes], float], dict[Axes, float]] | None:
    """Return the FLOPs of all devices by operand type and the axes that share the work; None if unknown.

    The second part are those of the products that a kernel of attention replaces.
    """
    if len(own.products) != len(other.products):
        return None
    flops: dict[tuple[str, Axes], float] = {}
    attention: dict[Axes, float] = {}
    for (old, times, kernel), (new, _, _) in zip(own.products, other.products, strict=True):
        if old.flops is None or new.flops is None or old.dtype is None or times is None:
            return None
        axes = axes_of(old.flops, new.flops, exponents)
        if axes is None:
            return None
        ways = math.prod(mesh.sizes[axis] for axis in axes)
        amount = float(old.flops) * times * ways
        key = (old.dtype, axes)
        flops[key] = flops.get(key, 0.0) + amount
        if kernel:
            attention[axes] = attention.get(axes, 0.0) + amount
    return flops, attention


def _traffic(
    traffic: FusedTraffic | None, axes: Mapping[str, Axes], mesh: Mesh
) -> dict[Axes, float] | None:
    """Return the traffic by the axes that shard each array, of all devices with different parts of it."""
    if traffic is None or not axes:
        return None
    by_axes: dict[Axes, float] = {}
    for name, count in traffic.bytes.items():
        ways = math.prod(mesh.sizes[axis] for axis in axes[name])
        by_axes[axes[name]] = by_axes.get(axes[name], 0.0) + count * ways
    return by_axes
