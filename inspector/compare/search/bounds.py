"""The least step of a layout, from the whole program and the plan of its state, without partitioning it.

`Amounts` are the FLOPs and the HBM traffic of the program on one device that does everything, by the logical
axes of the dimensions of each array. A layout divides them at most by the mesh axes that its rules give these
axes. The program with what is left is predicted as a partitioned one is, so that a layout is predicted to
take at least as long.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from inspector.compare.search.transfers import (
    Contraction,
    Costs,
    LogicalAxes,
    Names,
    least_transfers,
)
from inspector.core.rules import partition_spec
from inspector.core.snapshot import Collective, KernelWork, MatmulFlops, Mesh, Program, Work
from inspector.layout import Layout
from inspector.machines.hardware import Chip
from inspector.machines.links import Link, NoLink, collective_time
from inspector.machines.mesh_links import links_of
from inspector.machines.prediction.calibration import before_compile_constants, default_constants
from inspector.machines.prediction.emulated import emulated_seconds
from inspector.machines.prediction.predicted import predicted, shortest_seconds

# The logical axes that can shard each dimension of an array or product; None if they are unknown.
Dimensions: TypeAlias = tuple[Names, ...] | None

# The estimated traffic of the whole program, over that of the partitioned ones on all devices together, was
# up to 1.011 where nothing is repeated: a collective ends a fusion, so that other values are in memory.
_TRAFFIC = 0.98
_OF_THE_MESH = {"mesh", "axes", "rules", "optimizer_axes"}


@dataclass(frozen=True)
class Amounts:
    """The work of a program that is not partitioned.

    Attributes:
      name: of the program.
      products: FLOPs of matrix products by operand type and dimensions.
      attention: those of them that a kernel of attention replaces.
      attention_share: FLOPs of this kernel / FLOPs of the products that it replaces.
      traffic: bytes of HBM that are read and written, by the dimensions of the array; None if unknown.
      fusions: products and fusions that run.
      given: logical axes of the dimensions of each argument, result and constraint.
      not_counted: custom calls whose FLOPs are unknown.
      contractions: its matrix products, with the logical axes that the program gives to their arrays.
    """

    name: str
    products: Mapping[tuple[str, Dimensions], float]
    attention: Mapping[Dimensions, float]
    attention_share: float
    traffic: Mapping[Dimensions, float] | None
    fusions: float
    given: tuple[LogicalAxes, ...]
    not_counted: tuple[str, ...] = ()
    contractions: tuple[Contraction, ...] = ()


def least_seconds(
    amounts: Amounts | None, layout: Layout, chip: Chip | None, state_bytes: int | None
) -> float:
    """Return seconds that the predicted step of a partitioned layout is not below.

    Args:
      amounts: None if they are unknown. The step then takes at least as long as reading its arguments.
      chip: None for emulated devices.
      state_bytes: bytes of the train state and the batch on one device; None if unknown.
    """
    mesh = layout.mesh()
    program = _least_program(amounts, layout, mesh, state_bytes or 0)
    if chip is None:
        return emulated_seconds(program, mesh) or 0.0
    if amounts is None:
        return predicted(program, mesh, chip).seconds or 0.0
    share = before_compile_constants().exposed_share
    prediction = predicted(_with_transfers(program, amounts, layout, mesh, chip, share), mesh, chip)
    if not prediction.short:
        return prediction.seconds or 0.0
    # All transfers of a short step count, but with more work it may not be short.
    program = _with_transfers(program, amounts, layout, mesh, chip, 1.0)
    return min(predicted(program, mesh, chip).seconds or 0.0, shortest_seconds())


def alike_key(amounts: Amounts | None, layout: Layout) -> str | None:
    """Return text that two layouts share if their programs are equal up to the names of mesh axes.

    Axes of size 1 do not count. None if the logical axes of the program are unknown.
    """
    if amounts is None:
        return None
    sizes = dict(zip(layout.axis_names, layout.mesh_shape, strict=True))
    place = {name: n for n, name in enumerate(name for name, size in sizes.items() if size > 1)}

    def renamed(axes: tuple[str, ...] | None) -> tuple[int, ...]:
        return tuple(place[axis] for axis in axes or () if axis in place)

    used = [tuple(map(renamed, partition_spec(axes, layout.rules))) for axes in amounts.given]
    plain = layout.to_json()
    others = sorted((name, repr(plain[name])) for name in plain.keys() - _OF_THE_MESH)
    mesh = tuple(size for size in sizes.values() if size > 1)
    return repr((mesh, used, renamed(layout.optimizer_axes), others))


def _least_program(amounts: Amounts | None, layout: Layout, mesh: Mesh, state_bytes: int) -> Program:
    if amounts is None:
        work = Work(None, (), None, boundary_bytes=float(state_bytes))
        return Program("least", stage="partitioned", flops_per_device=None, collectives=(), work=work)
    shared = _Shared(layout, mesh)
    flops: dict[str, float] = {}
    for (dtype, dimensions), number in amounts.products.items():
        flops[dtype] = flops.get(dtype, 0.0) + number / shared.ways(dimensions)
    attention = sum(number / shared.ways(each) for each, number in amounts.attention.items())
    fused = None
    if amounts.traffic is not None:
        fused = _TRAFFIC * sum(number / shared.ways(each) for each, number in amounts.traffic.items())
    work = Work(
        None,
        tuple(MatmulFlops(dtype, number) for dtype, number in flops.items()),
        None,
        amounts.not_counted,
        boundary_bytes=float(state_bytes),
        fused_bytes=fused,
        fusions=amounts.fusions,
        attention=KernelWork(attention, attention * amounts.attention_share) if attention else None,
    )
    return Program(amounts.name, stage="partitioned", flops_per_device=None, collectives=(), work=work)


def _with_transfers(
    program: Program,
    amounts: Amounts,
    layout: Layout,
    mesh: Mesh,
    chip: Chip,
    exposed_share: float,
) -> Program:
    """Return a program with the transfers of its products, and with what they read and write."""
    sizes = {name: size for name, size in mesh.sizes.items() if size > 1}
    if program.work is None:
        return program
    constants = before_compile_constants()
    efficiency = default_constants(chip).hbm_efficiency

    @functools.cache
    def link_of(axes: tuple[str, ...]) -> Link | NoLink:
        return links_of(mesh, chip, [axes])[axes]

    @functools.cache
    def transfer(op: str, axes: tuple[str, ...], payload: float) -> float:
        link = link_of(axes)
        return 0.0 if isinstance(link, NoLink) else collective_time(op, payload, link).seconds

    def flops(number: float, dtype: str) -> float:
        peak = chip.peak(dtype)
        return 0.0 if peak is None else number / peak.flops_per_second / constants.of(chip)

    costs = Costs(
        transfer,
        exposed_share,
        flops,
        lambda count: count / chip.hbm_bytes_per_second_per_device / efficiency,
    )
    shared = _Shared(layout, mesh)
    spec_of = functools.partial(partition_spec, rules=layout.rules)
    sent: dict[tuple[str, tuple[str, ...], int], float] = {}
    traffic = 0.0
    for contraction in amounts.contractions:
        for each in least_transfers(contraction, sizes, shared.axes, spec_of, costs):
            key = (each.op, each.axes, int(each.payload))
            sent[key] = sent.get(key, 0.0) + each.executions
            traffic += each.more_traffic
    collectives = tuple(
        Collective(
            op=op,
            asynchronous=False,
            name=f"least.{number}",
            computation="least",
            executions=executions,  # type: ignore[arg-type]
            conditional=False,
            mesh_axes=axes,
            group_size=mesh.ways(axes),
            groups=mesh.size // mesh.ways(axes),
            payload_bytes=payload,
            wire_bytes_per_device=payload,
        )
        for number, ((op, axes, payload), executions) in enumerate(sent.items())
    )
    fused = program.work.fused_bytes
    more = None if fused is None else fused + _TRAFFIC * traffic
    return replace(program, collectives=collectives, work=replace(program.work, fused_bytes=more))


class _Shared:
    """In how many parts a layout can divide arrays and products."""

    def __init__(self, layout: Layout, mesh: Mesh) -> None:
        self._sizes = tuple(mesh.sizes.items())
        self._devices = mesh.size
        self.axes: dict[str, frozenset[str]] = {}
        for name, axes in layout.rules:
            self.axes[name] = self.axes.get(name, frozenset()) | frozenset(axes)
        # They shard any dimension of the optimizer state, and can be propagated from there.
        self._everywhere = frozenset(layout.optimizer_axes)

    def ways(self, dimensions: Dimensions) -> int:
        """Return the most parts; all devices if the dimensions are unknown."""
        if dimensions is None:
            return self._devices
        none: frozenset[str] = frozenset()
        axes = (
            self._everywhere.union(*(self.axes.get(name, none) for name in names)) for names in dimensions
        )
        return _ways(tuple(axes), self._sizes, self._devices)


@functools.lru_cache(maxsize=65536)
def _ways(dimensions: tuple[frozenset[str], ...], sizes: tuple[tuple[str, int], ...], devices: int) -> int:
    """Return the most parts of an array whose dimensions these mesh axes can shard.

    Two dimensions of one axis, such as the positions of queries and of keys, can both be sharded: XLA's
    partitioner then uses other devices, that hold replicas, for the second one.
    """
    size_of = dict(sizes)

    def parts(axes: frozenset[str]) -> int:
        return math.prod(size_of[axis] for axis in axes)

    taken: set[str] = set()
    again = []
    for axes in sorted(dimensions, key=parts, reverse=True):
        if axes & taken:
            again.append(parts(frozenset(axes & taken)))
        taken |= axes
    whole = parts(frozenset(taken))
    chosen = (
        math.prod(subset)
        for count in range(len(again) + 1)
        for subset in itertools.combinations(again, count)
    )
    return whole * max(more for more in chosen if more <= devices // whole)
