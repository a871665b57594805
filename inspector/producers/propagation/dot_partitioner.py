"""Choose how a matrix product is computed if its operands and its result are sharded differently.

This follows XLA's SPMD partitioner (`dot_handler.cc`). It removes one group of mesh axes after the other:
those of batch dimensions, of free dimensions of one operand, or of contracting dimensions. Among these it
takes the one whose largest operation needs the least memory, and on a tie the one that sends fewer bytes.
Within a group it does the same again. Operands are resharded on the way.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from inspector.producers.propagation.shardings import Axis

Side = Literal["lhs", "rhs", "out"]
# Mesh axes of each sharded factor. A factor is a dimension that operands and result share.
Shards = tuple[tuple[int, tuple[Axis, ...]], ...]
# The groups of mesh axes in which a reshard happens. XLA does not share reshards between different ones.
Groups = tuple[frozenset[Axis], ...]

_NEVER = (math.inf, math.inf)


@dataclass(frozen=True)
class Product:
    """The dimensions of one matrix product.

    Attributes:
      batch, contracting, lhs_free, rhs_free: factors of each kind.
      sizes: size of each factor.
      item_bytes: bytes of one element of lhs, rhs and the result.
      mesh: sizes of the mesh axes, without axes of size 1.
    """

    batch: tuple[int, ...]
    contracting: tuple[int, ...]
    lhs_free: tuple[int, ...]
    rhs_free: tuple[int, ...]
    sizes: tuple[tuple[int, int], ...]
    item_bytes: tuple[int, int, int]
    mesh: tuple[tuple[str, int], ...]

    def factors(self, side: Side) -> tuple[int, ...]:
        free = {"lhs": self.lhs_free, "rhs": self.rhs_free, "out": self.lhs_free + self.rhs_free}
        return self.batch + free[side] + (() if side == "out" else self.contracting)

    def size(self, axis: Axis) -> int:
        name, part = axis
        return part[1] if part else dict(self.mesh)[name]

    def ways(self, axes: Iterable[Axis]) -> int:
        return math.prod(map(self.size, axes))


@dataclass(frozen=True)
class Reshard:
    """One reshard of an operand: its new sharding, and the groups in which it happens."""

    side: Side
    shards: Shards
    groups: Groups


@dataclass(frozen=True)
class Plan:
    """How to compute a matrix product.

    Attributes:
      shards: the axes of each factor while it is computed.
      reshards: reshards of the operands before it, in order.
      cost: bytes of the largest operation, and bytes that collectives send.
    """

    shards: Shards
    reshards: tuple[Reshard, ...] = ()
    cost: tuple[float, float] = (0, 0)


@dataclass(frozen=True)
class _Group:
    """The product within one group of devices.

    Attributes:
      lhs, rhs, out: axes within the group.
      held: axes of outer groups that shard lhs, rhs and the result.
      axes: the mesh axes of the group.
      outer: the outer groups.
    """

    product: Product
    lhs: Shards
    rhs: Shards
    out: Shards
    held: tuple[Shards, Shards, Shards]
    axes: frozenset[Axis]
    outer: Groups

    @property
    def partitions(self) -> int:
        return self.product.ways(self.axes)

    def shards(self, side: Side) -> dict[int, tuple[Axis, ...]]:
        return dict({"lhs": self.lhs, "rhs": self.rhs, "out": self.out}[side])

    def ways(self, side: Side, factors: Iterable[int]) -> int:
        shards = self.shards(side)
        return math.prod(self.product.ways(shards.get(factor, ())) for factor in factors)

    def replicated(self, side: Side) -> frozenset[Axis]:
        return self.axes - _used(self.shards(side))

    def bytes_of(self, side: Side, shards: Mapping[int, tuple[Axis, ...]]) -> int:
        """Return the bytes of one device's shard, with `shards` within the group."""
        place = ("lhs", "rhs", "out").index(side)
        held, sizes = dict(self.held[place]), dict(self.product.sizes)
        elements = 1
        for factor in self.product.factors(side):
            axes = (*held.get(factor, ()), *shards.get(factor, ()))
            elements *= -(-sizes[factor] // self.product.ways(axes))
        return elements * self.product.item_bytes[place]


def plan(product: Product, lhs: Shards, rhs: Shards, out: Shards) -> Plan:
    """Return how XLA computes the product with these shardings of operands and result."""
    axes = {axis for shards in (lhs, rhs, out) for _, each in shards for axis in each}
    whole = {name for name, part in axes if part is None}
    split = {axis for axis in axes if axis[1] is not None}
    rest = {(name, None) for name, size in product.mesh if size > 1 and name not in whole}
    rest -= {(name, None) for name, _ in split}
    return _solve(_Group(product, lhs, rhs, out, ((), (), ()), frozenset(axes | rest), ()))


@functools.lru_cache(maxsize=4096)
def _solve(group: _Group) -> Plan:
    for strict in (True, False):
        found = _attempt(group, strict)
        if found is not None:
            return found
    return _computed(group, {}, {}, {})  # everything replicated


def _attempt(group: _Group, strict: bool) -> Plan | None:
    found = _base_case(group, may_reshard=False)
    if found is not None:
        return found
    methods = [method(group, strict) for method in (_by_batch, _by_free, _by_contracting)]
    possible = [each for each in methods if each is not None]
    if possible:
        return min(possible, key=lambda each: each.cost)
    if not group.lhs and not group.rhs and group.out and group.replicated("out"):
        inner = replace(group, axes=group.axes - group.replicated("out"))
        return _solve(inner)
    return _base_case(group, may_reshard=True)


# --- One group ----------------------------------------------------------------------------------


def _base_case(group: _Group, may_reshard: bool) -> Plan | None:
    """Return a plan if all devices of the group shard one kind of dimension."""
    product, count = group.product, group.partitions
    lhs, rhs, out = (group.shards(side) for side in ("lhs", "rhs", "out"))
    if any(1 < product.ways(_used(each)) < count for each in (lhs, rhs, out)):
        return None
    ways = group.ways
    batch = product.batch
    if ways("lhs", batch) == ways("rhs", batch) == count and _same(lhs, rhs, batch):
        return _computed(group, lhs, rhs, lhs)
    if ways("out", batch) == count:
        if ways("lhs", batch) == count and _same(lhs, out, batch):
            return _computed(group, lhs, lhs, out)
        if ways("rhs", batch) == count and _same(rhs, out, batch):
            return _computed(group, rhs, rhs, out)
    contracting = product.contracting
    if ways("lhs", contracting) == ways("rhs", contracting) == count:
        if not may_reshard and out and product.ways(_used(out)) != count:
            return None
        smaller = group.bytes_of("lhs", {}) < group.bytes_of("rhs", {})
        shared = rhs if smaller else lhs
        return _computed(group, shared, shared, {}, reduced=_used(shared))
    for side, shards, free in (("lhs", lhs, product.lhs_free), ("rhs", rhs, product.rhs_free)):
        if ways(side, free) == ways("out", free) == count and _same(shards, out, free):
            return _computed(group, *((shards, {}) if side == "lhs" else ({}, shards)), out)
    if may_reshard:
        if ways("out", batch) == count:
            return _computed(group, out, out, out)
        if ways("out", product.lhs_free) == count:
            return _computed(group, out, {}, out)
        if ways("out", product.rhs_free) == count:
            return _computed(group, {}, out, out)
    if not out:
        for one, other in (("rhs", "lhs"), ("lhs", "rhs")):
            cheaper = group.bytes_of(one, {}) > group.bytes_of("out", {})
            if ways(one, contracting) == count and not group.shards(other) and cheaper:
                shared = group.shards(one)
                return _computed(group, shared, shared, {}, reduced=_used(shared))
    return None


def _computed(
    group: _Group,
    lhs: Mapping[int, tuple[Axis, ...]],
    rhs: Mapping[int, tuple[Axis, ...]],
    out: Mapping[int, tuple[Axis, ...]],
    reduced: frozenset[Axis] = frozenset(),
) -> Plan:
    """Return the plan that reshards the operands and computes the product."""
    memory, sent = 0.0, 0.0
    reshards = []
    for side, wanted in (("lhs", lhs), ("rhs", rhs)):
        steps, cost = _reshard(group, side, wanted)
        reshards += steps
        memory, sent = max(memory, cost[0]), sent + cost[1]
    sizes = [
        group.bytes_of(side, each) for side, each in (("lhs", lhs), ("rhs", rhs), ("out", out))
    ]
    memory = max(memory, sum(sizes))
    if reduced:
        memory, sent = max(memory, 2 * sizes[2]), sent + 2 * sizes[2]
    return Plan(_frozen({**lhs, **rhs, **out}), tuple(reshards), (memory, sent))


def _reshard(
    group: _Group, side: Side, wanted: Mapping[int, tuple[Axis, ...]]
) -> tuple[list[Reshard], tuple[float, float]]:
    """Return the reshard of an operand within the group, if one is needed, and its cost."""
    factors = group.product.factors(side)
    wanted = {factor: axes for factor, axes in wanted.items() if factor in factors and axes}
    before = group.shards(side)
    if before == wanted:
        return [], (0, 0)
    full = dict(group.held[("lhs", "rhs", "out").index(side)])
    for factor, axes in wanted.items():
        full[factor] = (*full.get(factor, ()), *axes)
    step = Reshard(side, _frozen(full), group.outer)
    gathered = _used(before) - _used(wanted)
    moved = [f for f, axes in before.items() if set(axes) & _used(wanted) and wanted.get(f) != axes]
    old, new = group.bytes_of(side, before), group.bytes_of(side, wanted)
    if gathered:
        ways = group.product.ways(gathered)
        result = old * ways
        return [step], (old + result, result * (ways - 1) / ways)
    if moved:
        return [step], (old + new, new)
    return [step], (0, 0)  # a slice


# --- Methods ------------------------------------------------------------------------------------


def _by_batch(group: _Group, strict: bool) -> Plan | None:
    product = group.product
    lhs, rhs, out = (group.shards(side) for side in ("lhs", "rhs", "out"))
    batch = product.batch
    ways = {side: group.ways(side, batch) for side in ("lhs", "rhs", "out")}
    if ways["out"] <= 1 or ways["out"] not in (ways["lhs"], ways["rhs"]):
        return None
    matching = all(
        product.ways(lhs.get(factor, ())) == product.ways(rhs.get(factor, ())) for factor in batch
    )
    if matching and strict:
        matching = _same(lhs, rhs, batch)
    if matching:
        larger = lhs if group.bytes_of("lhs", lhs) > group.bytes_of("rhs", rhs) else rhs
        targets = {
            "lhs": _with(lhs, larger, batch),
            "rhs": _with(rhs, larger, batch),
            "out": _with(out, larger, batch),
        }
        return _inside(group, targets, batch, larger)
    resharded = {side: _to_batch(group, side, strict) for side in ("lhs", "rhs")}
    if None in resharded.values():
        return None
    return _inside(group, {**resharded, "out": out}, batch, out)  # type: ignore[dict-item]


def _to_batch(group: _Group, side: Side, strict: bool) -> dict[int, tuple[Axis, ...]] | None:
    """Return an operand's shards with the batch dimensions of the result; None if that is not possible."""
    product, out, before = group.product, group.shards("out"), group.shards(side)
    if not before:
        return {factor: out[factor] for factor in product.batch if factor in out}
    free = product.lhs_free if side == "lhs" else product.rhs_free
    kept = {factor: axes for factor, axes in before.items() if factor not in product.batch}
    wanted = group.ways("out", product.batch) * math.prod(map(product.ways, kept.values()))
    replicated = product.ways(group.replicated(side))
    count = group.partitions
    if wanted * replicated > count:
        ratio = wanted * replicated // count
        other = "rhs" if side == "lhs" else "lhs"
        contracting = group.ways(side, product.contracting)
        if replicated % ratio != 0:
            if ratio == group.ways(side, free) and (
                ratio != contracting or contracting == group.ways(other, product.contracting)
            ):
                kept = {factor: axes for factor, axes in kept.items() if factor not in free}
            elif ratio == contracting:
                kept = {f: axes for f, axes in kept.items() if f not in product.contracting}
            else:
                return None
    elif wanted * replicated < count:
        return None
    target = _with(kept, out, product.batch)
    return None if strict and target != before else target


def _by_free(group: _Group, strict: bool) -> Plan | None:
    product = group.product
    found = _matched_free(group)
    if found is None:
        return None
    side, factors = found
    other: Side = "rhs" if side == "lhs" else "lhs"
    out = group.shards("out")
    matching = _with(group.shards(side), out, factors)
    if strict and matching != group.shards(side):
        return None
    kept = _other_operand(group, other, factors, product)
    return _inside(group, {side: matching, other: kept, "out": out}, factors, out)


def _matched_free(group: _Group) -> tuple[Side, tuple[int, ...]] | None:
    """Return the operand whose free dimensions are sharded as in the result, and these dimensions."""
    product = group.product
    sides: tuple[tuple[Side, tuple[int, ...]], ...] = (
        ("lhs", product.lhs_free),
        ("rhs", product.rhs_free),
    )
    fitting = [
        (side, free)
        for side, free in sides
        if group.ways(side, free) == group.ways("out", free) > 1
    ]
    if len(fitting) == 2:
        # Match the operand for which the other one gathers less.
        gathers = {
            side: group.ways(side, free) * group.bytes_of(other, group.shards(other))
            for (side, free), other in zip(sides, ("rhs", "lhs"), strict=True)
        }
        return sides[0] if gathers["lhs"] < gathers["rhs"] else sides[1]
    if fitting:
        return fitting[0]
    out = group.shards("out")
    for side, free in sides:
        if group.ways(side, free) > 1 and group.ways("out", free) > 1:
            shards = group.shards(side)
            same = tuple(
                factor
                for factor in free
                if 1 < product.ways(shards.get(factor, ())) == product.ways(out.get(factor, ()))
            )
            return (side, same) if same else None
    return None


def _other_operand(
    group: _Group, side: Side, factors: tuple[int, ...], product: Product
) -> dict[int, tuple[Axis, ...]]:
    """Return the shards of the operand that is replicated along the group's axes."""
    out, before = group.shards("out"), group.shards(side)
    removed = frozenset(axis for factor in factors for axis in out.get(factor, ()))
    count = product.ways(removed)
    replicated = group.replicated(side)
    if replicated and product.ways(replicated) % count == 0:
        if removed <= replicated:
            return before
        for factor in reversed(product.factors(side)):
            # The dimension with these axes takes the axes along which the operand is replicated.
            if frozenset(before.get(factor, ())) == removed:
                return {**before, factor: _ordered(replicated, product)}
        return _exchanged(before, removed, replicated, product)
    exact = _dimensions_with(before, removed)
    if exact:
        return {factor: axes for factor, axes in before.items() if factor not in exact}
    free = product.lhs_free if side == "lhs" else product.rhs_free
    one: Side = "rhs" if side == "lhs" else "lhs"
    contracting = group.ways(side, product.contracting)
    may_contracting = contracting == count and group.ways(side, free) == group.ways("out", free)
    may_free = count == group.ways(side, free) and contracting == group.ways(
        one, product.contracting
    )
    smaller = group.bytes_of(side, before) <= group.bytes_of("out", out)
    gathered: tuple[int, ...] | None = None
    if may_contracting and (not may_free or smaller):
        gathered = product.contracting
    elif may_free:
        gathered = free
    if gathered is None:
        return {}
    kept = {factor: axes for factor, axes in before.items() if factor not in gathered}
    return _exchanged(kept, removed & _used(kept), group.axes - removed - _used(kept), product)


def _by_contracting(group: _Group, strict: bool) -> Plan | None:
    product = group.product
    lhs, rhs, out = (group.shards(side) for side in ("lhs", "rhs", "out"))
    factors = product.contracting
    ways = group.ways("lhs", factors), group.ways("rhs", factors)
    if min(ways) <= 1:
        return None
    if ways[0] != ways[1]:
        factors = tuple(
            factor
            for factor in factors
            if 1 < product.ways(lhs.get(factor, ())) == product.ways(rhs.get(factor, ()))
        )
        if not factors:
            return None
    larger = lhs if group.bytes_of("lhs", lhs) > group.bytes_of("rhs", rhs) else rhs
    targets = {"lhs": _with(lhs, larger, factors), "rhs": _with(rhs, larger, factors)}
    if strict and (targets["lhs"], targets["rhs"]) != (lhs, rhs):
        return None
    reduced = frozenset(axis for factor in factors for axis in larger.get(factor, ()))
    replicated = group.replicated("out")
    if replicated and product.ways(replicated) % product.ways(reduced) == 0:
        inner = _exchanged(out, reduced & _used(out), replicated - reduced, product)
    else:
        exact = _dimensions_with(out, reduced)
        if exact:
            inner = {factor: axes for factor, axes in out.items() if factor not in exact}
        else:
            inner = _sliced_by_count(group, reduced)
    return _inside(group, {**targets, "out": inner}, factors, larger, reduced=True)


def _sliced_by_count(group: _Group, reduced: frozenset[Axis]) -> dict[int, tuple[Axis, ...]]:
    """Return the shards of partial sums if the result is sliced along other axes than the reduced ones."""
    product, out = group.product, group.shards("out")
    for factors in (product.lhs_free, product.rhs_free, product.batch):
        if group.ways("out", factors) == product.ways(reduced):
            kept = {factor: axes for factor, axes in out.items() if factor not in factors}
            unused = group.axes - reduced - _used(kept)
            return _exchanged(kept, reduced & _used(kept), unused, product)
    return {}


def _inside(
    group: _Group,
    targets: Mapping[Side, Mapping[int, tuple[Axis, ...]]],
    factors: tuple[int, ...],
    along: Mapping[int, tuple[Axis, ...]],
    reduced: bool = False,
) -> Plan | None:
    """Return the plan of a group that shards `factors` as `along`, and its inner groups.

    Args:
      targets: shards of operands and result, to which they are resharded first.
      reduced: whether the factors are contracted, so that partial sums are all-reduced.
    """
    product = group.product
    removed = frozenset(axis for factor in factors for axis in along.get(factor, ()))
    memory, sent, reshards = 0.0, 0.0, []
    inner: dict[str, Shards] = {}
    held = []
    for number, side in enumerate(("lhs", "rhs", "out")):
        wanted = dict(targets[side])
        if side != "out":
            steps, cost = _reshard(group, side, wanted)
            reshards += steps
            memory, sent = max(memory, cost[0]), sent + cost[1]
        taken = {f: wanted[f] for f in factors if f in wanted and f in product.factors(side)}
        left = {f: axes for f, axes in wanted.items() if f not in taken}
        if _used(left) & removed:
            return None
        full = dict(group.held[number])
        for factor, axes in taken.items():
            full[factor] = (*full.get(factor, ()), *axes)
        inner[side] = _frozen(left)
        held.append(_frozen(full))
    below = _solve(
        _Group(
            product,
            inner["lhs"],
            inner["rhs"],
            inner["out"],
            (held[0], held[1], held[2]),
            group.axes - removed,
            (*group.outer, removed),
        )
    )
    memory, sent = max(memory, below.cost[0]), sent + below.cost[1]
    if reduced:
        result = group.bytes_of("out", dict(inner["out"]))
        memory, sent = max(memory, 2 * result), sent + 2 * result
    shards = dict(below.shards)
    for factor in factors:
        if along.get(factor):
            shards[factor] = (*along[factor], *shards.get(factor, ()))
    return Plan(_frozen(shards), (*reshards, *below.reshards), (memory, sent))


# --- Shards -------------------------------------------------------------------------------------


def _frozen(shards: Mapping[int, tuple[Axis, ...]]) -> Shards:
    return tuple(sorted((factor, axes) for factor, axes in shards.items() if axes))


def _used(shards: Mapping[int, tuple[Axis, ...]]) -> frozenset[Axis]:
    return frozenset(axis for axes in shards.values() for axis in axes)


def _same(
    one: Mapping[int, tuple[Axis, ...]],
    other: Mapping[int, tuple[Axis, ...]],
    factors: Iterable[int],
) -> bool:
    return all(one.get(factor, ()) == other.get(factor, ()) for factor in factors)


def _with(
    shards: Mapping[int, tuple[Axis, ...]],
    source: Mapping[int, tuple[Axis, ...]],
    factors: tuple[int, ...],
) -> dict[int, tuple[Axis, ...]]:
    """Return the shards with some factors as in `source`; their axes shard no other factor."""
    taken = {factor: source[factor] for factor in factors if source.get(factor)}
    used = _used(taken)
    kept = {
        factor: tuple(axis for axis in axes if axis not in used)
        for factor, axes in shards.items()
        if factor not in factors
    }
    return {factor: axes for factor, axes in (kept | taken).items() if axes}


def _dimensions_with(
    shards: Mapping[int, tuple[Axis, ...]], axes: frozenset[Axis]
) -> tuple[int, ...]:
    """Return the factors that are sharded over exactly these axes together; empty if there are none."""
    found = tuple(factor for factor, each in shards.items() if each and set(each) <= axes)
    return found if frozenset(a for factor in found for a in shards[factor]) == axes else ()


def _exchanged(
    shards: Mapping[int, tuple[Axis, ...]],
    removed: frozenset[Axis],
    unused: frozenset[Axis],
    product: Product,
) -> dict[int, tuple[Axis, ...]]:
    """Return the shards with unused axes of equal size instead of `removed` ones, else without them."""
    free = list(_ordered(unused, product))

    def substitute(axes: tuple[Axis, ...]) -> Iterator[Axis]:
        for axis in axes:
            if axis not in removed:
                yield axis
                continue
            fitting = next((one for one in free if product.size(one) == product.size(axis)), None)
            if fitting is not None:
                free.remove(fitting)
                yield fitting

    changed = {factor: tuple(substitute(axes)) for factor, axes in shards.items()}
    return {factor: axes for factor, axes in changed.items() if axes}


def _ordered(axes: Iterable[Axis], product: Product) -> tuple[Axis, ...]:
    names = [name for name, _ in product.mesh]
    return tuple(sorted(axes, key=lambda axis: (names.index(axis[0]), axis[1] or (0, 0))))
