"""The least step of a layout, from the whole program and the plan of its state, without partitioning it.

`ProgramAmounts` are the FLOPs and the HBM traffic of the program on one device that does all, by logical axes
of the dimensions of each array. A layout divides them at most by the mesh axes that its rules give these
axes. The program with the rest is predicted as a partitioned one is, so that a layout is predicted to
take at least as long.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from inspector.layout import Layout
from inspector.machines.hardware import Chip
from inspector.machines.links import Link, NoLink, SliceLink, collective_time
from inspector.machines.mesh_links import links_of
from inspector.prediction.calibration import before_compile_constants, default_constants, emulated_seconds
from inspector.prediction.collective_cost import expected
from inspector.prediction.predicted import predicted, shortest_seconds, summed_share
from inspector.records.collectives import OPERATIONS, REDUCTIONS
from inspector.records.snapshot import KernelWork, MatmulFlops, Mesh, Program, Spec, Work
from inspector.search.transfers import Contraction, Costs, LogicalAxes, Names, idle_axes, least_transfers
from inspector.sharding.rules import Rule, partition_spec

# The logical axes that can shard each dimension of an array or product, of each one that it can be; None if
# they are unknown.
Dimensions: TypeAlias = tuple[tuple[Names, ...], ...] | None

# The estimated traffic of the whole program, over that of the partitioned ones on all devices together, was
# up to 1.011 without repeated work: a collective ends a fusion, so that other values are in memory.
_TRAFFIC = 0.98
# Bytes of a collective so large that its latency is nothing.
_LARGE = 1e15
_ROUNDED = 1 - 1e-9  # bounds and predictions are added in another order
_MOST_KNOWN = 16384  # results for one program, a kilobyte each
_OF_THE_MESH = {"mesh", "axes", "rules", "optimizer_axes"}


@dataclass(frozen=True)
class ProgramAmounts:
    """The work of a program that is not partitioned.

    Attributes:
      name: of the program.
      products: FLOPs of matrix products by operand type and dimensions.
      attention: those of them that a kernel of attention replaces.
      attention_share: FLOPs of this kernel / FLOPs of the products that it replaces.
      traffic: bytes of HBM that are read and written, by the dimensions of the array; None if unknown.
      fusions: products and fusions that run.
      given: logical axes of the dimensions of each argument, result and constraint.
      not_counted: kernels whose time is unknown.
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

    @functools.cached_property
    def groups(self) -> tuple[_Group, ...]:
        """The contractions, those with the same logical axes together."""
        groups: dict[Names, list[Contraction]] = {}
        for contraction in self.contractions:
            given = (array.given or () for array in contraction.arrays)
            names = frozenset(filter(None, itertools.chain(*contraction.names, *given)))
            groups.setdefault(names, []).append(contraction)
        return tuple(_Group(names, tuple(contractions)) for names, contractions in groups.items())

    @functools.cached_property
    def flops_by_type(self) -> dict[str, float]:
        """FLOPs of the contractions by operand type, without the types whose products XLA changes."""
        every: dict[str, float] = {}
        known: dict[str, float] = {}
        for (dtype, _), number in self.products.items():
            known[dtype] = known.get(dtype, 0.0) + number
        for contraction in self.contractions:
            flops = contraction.flops * contraction.runs
            every[contraction.dtype] = every.get(contraction.dtype, 0.0) + flops
        return {
            dtype: flops
            for dtype, flops in every.items()
            if flops and math.isclose(flops, known.get(dtype, 0.0), rel_tol=1e-6)
        }


class _Least(NamedTuple):
    """The least transfers of some contractions.

    Attributes:
      more_traffic: bytes of HBM, because arrays are whole.
      sent: seconds that count for a step.
      by_axes: the least seconds of the transfers themselves, by their mesh axes, of those without which no
        product can be: others can be instead of one that is the cheapest for the step.
    """

    more_traffic: float
    sent: float
    by_axes: tuple[tuple[tuple[str, ...], float], ...]


class _Group:
    """Contractions with the same logical axes.

    Many candidates have the same rules for these on the same mesh, so each result is computed once.
    """

    def __init__(self, names: Names, contractions: tuple[Contraction, ...]) -> None:
        self._names, self._contractions = names, contractions
        self.least = functools.lru_cache(_MOST_KNOWN)(self._least)
        self.flops = functools.lru_cache(_MOST_KNOWN)(self._flops)

    def rules(self, layout: Layout) -> tuple[Rule, ...]:
        """Return the rules of a layout that count for these contractions."""
        return tuple(rule for rule in layout.rules if rule[0] in self._names)

    def _least(self, shared: _Shared, mesh: Mesh, chip: Chip, exposed_share: float) -> _Least:
        per_byte = _seconds_per_byte(mesh, chip, exposed_share)
        constants, defaults = before_compile_constants(), default_constants(chip)

        def flops(number: float, dtype: str) -> float:
            peak = chip.peak(dtype)
            return 0.0 if peak is None else number / peak.flops_per_second / constants.of(chip)

        costs = Costs(
            lambda op, axes, state: per_byte(op, axes, state)[0],
            flops,
            lambda count: count / chip.hbm_bytes_per_second_per_device / defaults.hbm_efficiency,
        )
        narrows = chip.float32_as == "bf16"
        more = sent = 0.0
        by_axes: dict[tuple[str, ...], float] = {}
        for contraction in self._contractions:
            for each in least_transfers(
                contraction, shared.split, shared.axes, shared.spec_of, costs, narrows=narrows
            ):
                counted, least = per_byte(each.op, each.axes, each.state)
                more += each.more_traffic
                sent += each.executions * each.payload * counted
                if each.certain:
                    taken = each.executions * each.payload * least
                    by_axes[each.axes] = by_axes.get(each.axes, 0.0) + taken
        return _Least(more, sent, tuple(by_axes.items()))

    def _flops(self, shared: _Shared) -> dict[str, float]:
        """Return the least FLOPs of one device by operand type."""
        own: dict[str, float] = {}
        for contraction in filter(lambda each: each.flops, self._contractions):
            idle = idle_axes(contraction, shared.split, shared.spec_of) - shared.everywhere
            flops = contraction.flops * contraction.runs / shared.ways((contraction.names,), idle=idle)
            own[contraction.dtype] = own.get(contraction.dtype, 0.0) + flops
        return own


def least_seconds(
    amounts: ProgramAmounts | None, layout: Layout, chip: Chip | None, state_bytes: int | None
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
    shortest = shortest_seconds(chip)

    with_transfers = functools.partial(_with_transfers, program, amounts, layout, mesh, chip)
    if (predicted(program, mesh, chip).seconds or 0.0) < shortest:
        # All transfers of a short step count, but with more work it may not be short.
        whole = with_transfers(1.0)
        if whole < shortest:
            return whole
        return max(shortest, with_transfers(before_compile_constants().exposed_share))
    return with_transfers(before_compile_constants().exposed_share)


def alike_key(amounts: ProgramAmounts | None, layout: Layout) -> str | None:
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


def _least_program(amounts: ProgramAmounts | None, layout: Layout, mesh: Mesh, state_bytes: int) -> Program:
    if amounts is None:
        work = Work(None, (), None, boundary_bytes=float(state_bytes))
        return Program("least", stage="partitioned", flops_per_device=None, collectives=(), work=work)
    shared = _shared(layout, mesh, layout.rules)
    flops: dict[str, float] = {}
    shares = _shares_of_products(amounts, layout, mesh)
    for (dtype, dimensions), number in amounts.products.items():
        share = shares[dtype] if dtype in shares else 1 / shared.ways(dimensions)
        flops[dtype] = flops.get(dtype, 0.0) + number * share
    attention = sum(number / shared.ways(each) for each, number in amounts.attention.items())
    fused = None
    if amounts.traffic is not None:
        fused = _TRAFFIC * sum(
            number / shared.ways(each, product=False) for each, number in amounts.traffic.items()
        )
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


def _shares_of_products(amounts: ProgramAmounts, layout: Layout, mesh: Mesh) -> dict[str, float]:
    """Return the least share of the FLOPs of products that one device computes, by operand type.

    The devices along an axis over which no array of a product is sharded repeat it. A type is left out if XLA
    changes its products, so that their FLOPs are not those of the program before.
    """
    own: dict[str, float] = {}
    for group in amounts.groups:
        for dtype, flops in group.flops(_shared(layout, mesh, group.rules(layout))).items():
            own[dtype] = own.get(dtype, 0.0) + flops
    return {dtype: own[dtype] / flops for dtype, flops in amounts.flops_by_type.items()}


def alternatives(values: Iterable[Iterable[Names]]) -> Dimensions:
    """Return the dimensions of each value that can be sharded, in an order that is that of no program."""
    every = {tuple(sorted((names for names in value if names), key=sorted)) for value in values}
    return tuple(sorted(every, key=lambda value: [sorted(names) for names in value]))


@functools.lru_cache(_MOST_KNOWN)
def _seconds_per_byte(
    mesh: Mesh, chip: Chip, exposed_share: float
) -> Callable[[str, tuple[str, ...], bool], tuple[float, float]]:
    """Return a function of a collective, its axes, and whether it moves the train state: seconds per byte.

    These are the expected seconds that count for a step, and the least seconds of the transfer itself, both
    without latency.
    """
    constants = default_constants(chip)

    @functools.cache
    def per_byte(op: str, axes: tuple[str, ...], state: bool) -> tuple[float, float]:
        link = _link_of(mesh, chip, axes)
        if isinstance(link, NoLink):
            return 0.0, 0.0
        cost = expected(op, _LARGE, link, constants)
        share = exposed_share
        if chip.kind == "tpu" and exposed_share < 1.0 and OPERATIONS[op].route == "ring":
            # Gathers and sums of activations can be beside the products of a TPU.
            share = share if state else 0.0
            if state and op in REDUCTIONS and not isinstance(link, SliceLink):
                # The compiler divides those between slices: it also gathers inside of them.
                share = summed_share(chip, share)
        counted = cost.inside * share + cost.between
        return counted / _LARGE, collective_time(op, _LARGE, link).seconds / _LARGE

    return per_byte


@functools.lru_cache(_MOST_KNOWN)
def _link_of(mesh: Mesh, chip: Chip, axes: tuple[str, ...]) -> Link | NoLink:
    return links_of(mesh, chip, [axes])[axes]


def _with_transfers(
    program: Program,
    amounts: ProgramAmounts,
    layout: Layout,
    mesh: Mesh,
    chip: Chip,
    exposed_share: float,
) -> float:
    """Return the least seconds of a program with the transfers of its products, and their traffic in HBM.

    A compiler combines transfers, and then waits for their latency once. So they count without it, at the
    rate of large ones.
    """
    assert program.work is not None
    each = [
        group.least(_shared(layout, mesh, group.rules(layout)), mesh, chip, exposed_share)
        for group in amounts.groups
    ]
    fused = program.work.fused_bytes
    if fused is not None:
        fused += _TRAFFIC * sum(least.more_traffic for least in each)
    alone = predicted(replace(program, work=replace(program.work, fused_bytes=fused)), mesh, chip)
    seconds = alone.seconds or 0.0
    if alone.at_least:
        return seconds
    by_axes: dict[tuple[str, ...], float] = {}
    for axes, least in itertools.chain.from_iterable(least.by_axes for least in each):
        by_axes[axes] = by_axes.get(axes, 0.0) + least
    return max(seconds + sum(least.sent for least in each), *by_axes.values(), 0.0) * _ROUNDED


def _shared(layout: Layout, mesh: Mesh, rules: tuple[Rule, ...]) -> _Shared:
    return _Shared(tuple(mesh.sizes.items()), rules, frozenset(layout.optimizer_axes))


@dataclass(frozen=True)
class _Shared:
    """Into which numbers of parts a layout can divide arrays and products."""

    sizes: tuple[tuple[str, int], ...]
    rules: tuple[Rule, ...]
    # They shard any dimension of the optimizer state, and can be propagated from there.
    everywhere: frozenset[str]

    @functools.cached_property
    def axes(self) -> dict[str, frozenset[str]]:
        """The mesh axes of each logical axis."""
        axes: dict[str, frozenset[str]] = {}
        for name, own in self.rules:
            axes[name] = axes.get(name, frozenset()) | frozenset(own)
        return axes

    @functools.cached_property
    def split(self) -> dict[str, int]:
        """The sizes of the mesh axes with more than one device."""
        return {name: size for name, size in self.sizes if size > 1}

    @functools.cached_property
    def _devices(self) -> int:
        return math.prod(size for _, size in self.sizes)

    def spec_of(self, names: LogicalAxes) -> Spec:
        return partition_spec(names, self.rules)

    def ways(self, dimensions: Dimensions, product: bool = True, idle: frozenset[str] = frozenset()) -> int:
        """Return the most parts of a product or an array; all devices if the dimensions are unknown.

        idle: mesh axes that shard no dimension.
        """
        if dimensions is None:
            return self._devices
        return max(
            (
                _ways(
                    tuple((names, self._of(names) - idle) for names in value),
                    *(self.sizes, self._devices, product),
                )
                for value in dimensions
            ),
            default=1,
        )

    def _of(self, names: Names) -> frozenset[str]:
        none: frozenset[str] = frozenset()
        return self.everywhere.union(*(self.axes.get(name, none) for name in names))


@functools.lru_cache(maxsize=65536)
def _ways(
    dimensions: tuple[tuple[Names, frozenset[str]], ...],
    sizes: tuple[tuple[str, int], ...],
    devices: int,
    product: bool,
) -> int:
    """Return the most parts of a product or an array whose dimensions these mesh axes can shard.

    Two dimensions of a product with one axis can both be sharded: XLA's partitioner then uses other devices,
    that hold replicas, for the second one. So can two dimensions of an array with the same names, such as
    the positions of queries and of keys.
    """
    size_of = dict(sizes)

    def parts(axes: frozenset[str]) -> int:
        return math.prod(size_of[axis] for axis in axes)

    taken: dict[str, set[Names]] = {}
    again = []
    for names, axes in sorted(dimensions, key=lambda dimension: -parts(dimension[1])):
        twice = frozenset(axis for axis in axes if axis in taken and (product or names in taken[axis]))
        if twice:
            again.append(parts(twice))
        for axis in axes:
            taken.setdefault(axis, set()).add(names)
    whole = parts(frozenset(taken))
    chosen = (
        math.prod(subset)
        for count in range(len(again) + 1)
        for subset in itertools.combinations(again, count)
    )
    return whole * max(more for more in chosen if more <= devices // whole)
