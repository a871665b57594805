"""Resolve conflicting shardings of an operation as XLA's SPMD partitioner does.

After propagation, an operand may be sharded differently from the way in which its operation computes. jaxlib
leaves most of these conflicts to the SPMD partitioner of the compiler. This module inserts the same reshards
explicitly, so that they become visible without a compile:

* An operation computes in the sharding of its result; operands are resharded to it.
* A sum whose operands agree on a summed dimension keeps it: it computes partial sums.
* Otherwise an operand is gathered along a mesh axis that the result uses for another dimension.
* For matrix products the partitioner compares costs (`dot_partitioner`).

A value is resharded once for all operations that need it in the same sharding.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from inspector.producers.propagation import dot_partitioner
from inspector.producers.propagation.conflicts import Axes, Conflicts
from inspector.producers.propagation.dot_partitioner import Groups, Product, Reshard
from inspector.producers.propagation.shardings import (
    SHARDING,
    Axis,
    axes_of_dimensions,
    result_shardings,
    sharding_of,
    tensor_sharding,
)
from inspector.producers.propagation.walk import operations

RULE = "sdy.sharding_rule"

# For each factor of an operation (a dimension that its operands and results share), its axes.
Factors = dict[int, tuple[Axis, ...]]
# For each dimension of a tensor its factors, major first.
FactorsOfDimensions = tuple[tuple[int, ...], ...]

# Operations that are recomputed in another sharding rather than resharded.
_RECOMPUTED = frozenset({
    "stablehlo.broadcast_in_dim", "stablehlo.iota", "stablehlo.constant", "sdy.constant",
})  # fmt: skip
# Operations that Shardy itself resolves as the partitioner does, or that move data by definition.
_LEFT_ALONE = frozenset({
    "stablehlo.while", "stablehlo.case", "stablehlo.if", "func.call", "sdy.reshard",
    "sdy.manual_computation", "sdy.sharding_constraint", "stablehlo.custom_call",
})  # fmt: skip


_PRODUCTS = frozenset({"stablehlo.dot_general", "stablehlo.dot"})


def insert_reshards(
    module: Any, mesh: Mapping[str, int], conflicts: Conflicts | None = None
) -> None:
    """Insert an `sdy.reshard` for each operand and result that conflicts with its operation.

    Args:
      module: a propagated module whose operations still have their sharding rules. It is changed.
      mesh: size of each mesh axis.
      conflicts: collects the conflicts, each with its place in its list as the mark of its reshards. None
        if they are not needed.
    """
    _Partitioner(tuple(mesh.items()), conflicts).run(module)


def _has_no_rule(operation: Any, name: str) -> bool:
    if name != "stablehlo.custom_call" or RULE in operation.attributes:
        return False
    # XLA itself replaces calls with these targets, such as the borders of a `shard_map`.
    target = ir.StringAttr(operation.attributes["call_target_name"]).value
    return not target.startswith(("xla.sdy.", "Sharding", "SPMD"))


class _Partitioner:
    """Inserts the reshards of one module, each once."""

    def __init__(self, mesh: tuple[tuple[str, int], ...], conflicts: Conflicts | None) -> None:
        self._mesh = mesh
        self._conflicts = conflicts
        # Resharded values by value, sharding and the groups of devices in which XLA reshards them.
        self._resharded: dict[tuple[Any, Any, Groups], Any] = {}
        # Shardings that were read. Reading one again takes 2 µs.
        self._shardings: dict[Any, Any] = {}

    def run(self, module: Any) -> None:
        for operation in operations(module, inner_first=True):
            name = operation.name
            if name == "sdy.reshard":
                if self._conflicts is not None:
                    self._conflicts.note_constraint(operation)
            elif _has_no_rule(operation, name):
                self._replicate(operation)
            elif name not in _LEFT_ALONE and RULE in operation.attributes:
                self._resolve(operation)

    def _location(self, operation: Any, used: Sequence[Axes]) -> Any:
        """Return the location for the reshards of an operation, and note its conflict."""
        if self._conflicts is None:
            return operation.location
        return self._conflicts.location(operation, used)

    def _replicate(self, operation: Any) -> None:
        """Gather the operands of an operation without a sharding rule: every device computes all of it."""
        shardings = [sharding_of(value) for value in operation.operands]
        shardings += result_shardings(operation)
        axes = [axes_of_dimensions(each) if each is not None else () for each in shardings]
        if not any(dimension for each in axes for dimension in each):
            return
        mesh = next(each.mesh_or_ref for each in shardings if each is not None)
        whole: list[tuple[tuple[Axis, ...], ...]] = [tuple(() for _ in each) for each in axes]
        location = self._location(operation, whole)
        for number, value in enumerate(operation.operands):
            if any(axes[number]):
                target = tensor_sharding(mesh, whole[number])
                operation.operands[number] = self._resharded_value(value, target, location)
        count = len(operation.operands)
        results = list(result_shardings(operation))
        for number, sharding in enumerate(results):
            if any(axes[count + number]):
                results[number] = tensor_sharding(mesh, whole[count + number])
                operation.attributes[SHARDING] = sdy.TensorShardingPerValueAttr.get(results)
                self._reshard_result(operation, number, (sharding,), location)

    def _resolve(self, operation: Any) -> None:
        written = operation.attributes[RULE]
        before = tuple(map(self._sharding_before, operation.operands))
        shardings = tuple(result_shardings(operation))
        if _agree(written, before, shardings):
            self._shardings.update(zip(operation.results, shardings, strict=True))
            return
        rule = sdy.OpShardingRuleAttr(written)
        operands = [_mapping(each) for each in rule.operand_mappings]
        results = [_mapping(each) for each in rule.result_mappings]
        given = [_factors(*each) for each in zip(before, operands, strict=True)]
        made = [_factors(*each) for each in zip(shardings, results, strict=True)]
        if any(each is None for each in (*given, *made)):
            if operation.name == "stablehlo.reshape" and made[0] is not None:
                self._resolve_reshape(operation, rule, operands[0], results[0], made[0])
            return
        steps: tuple[Reshard, ...] = ()
        after: tuple[Factors, ...] = ()
        if operation.name in _PRODUCTS:
            plan = dot_partitioner.plan(
                self._product(operation, rule), *map(_frozen, (*given, *made))
            )
            wanted, steps = dict(plan.shards), plan.reshards
        else:
            summed = set(rule.reduction_factors)
            if operation.name == "stablehlo.gather" and self._by_index(operation, rule, given):
                # The table is gathered along the axes of the indices.
                indexed = {axis for axes in given[1].values() for axis in axes}
                summed = {f for f in summed if indexed.isdisjoint(given[0].get(f, ()))}
            kept: Factors = {}
            if operation.name == "stablehlo.scatter":  # the updates stay, the result is resharded
                kept = {f: axes for f, axes in given[-1].items() if axes and f in given[0]}
            wanted = _wanted(given, made, summed, kept)
            if operation.name == "stablehlo.gather":
                after = self._after_gather(operation, rule, given, made[0], wanted)
            for mapping in (*operands, *results):
                self._gather_split(mapping, list(rule.factor_sizes), wanted)
        targets = [{factor: wanted.get(factor, ()) for factor in each} for each in (*given, *made)]
        if targets == [*given, *made]:
            return
        location = self._location(
            operation,
            [
                tuple(tuple(axis for factor in each for axis in target[factor]) for each in mapping)
                for mapping, target in zip((*operands, *results), targets, strict=True)
            ],
        )
        for step in steps:
            number = ("lhs", "rhs").index(step.side)
            given[number] = {factor: dict(step.shards).get(factor, ()) for factor in given[number]}
            operation.operands[number] = self._reshard(
                operation, number, operands[number], given[number], location, step.groups
            )
        for number, mapping in enumerate(operands):
            if given[number] != targets[number]:
                operation.operands[number] = self._reshard(
                    operation, number, mapping, targets[number], location
                )
        changed = list(shardings)
        for number, mapping in enumerate(results):
            target = targets[len(operands) + number]
            if shardings[number] is not None and made[number] != target:
                mesh = shardings[number].mesh_or_ref
                changed[number] = _sharding(mesh, mapping, target)
                between = [_sharding(mesh, mapping, each) for each in after]
                operation.attributes[SHARDING] = sdy.TensorShardingPerValueAttr.get(changed)
                self._reshard_result(operation, number, (*between, shardings[number]), location)

    def _sharding_before(self, value: Any) -> Any:
        """Return the sharding of an operand. Its operation comes earlier, so it does not change any more."""
        known = self._shardings
        if value not in known:
            known[value] = sharding_of(value)
        return known[value]

    def _gather_split(
        self, mapping: FactorsOfDimensions, sizes: Sequence[int], wanted: Factors
    ) -> None:
        """Compute without the axes of a dimension of several factors if only a minor one is sharded."""
        for factors in mapping:
            for major, minor in itertools.pairwise(factors):
                if wanted.get(minor) and self._ways(wanted.get(major, ())) != sizes[major]:
                    wanted.update(dict.fromkeys(factors, ()))

    def _resolve_reshape(
        self,
        operation: Any,
        rule: Any,
        operand: FactorsOfDimensions,
        result: FactorsOfDimensions,
        made: Factors,
    ) -> None:
        """Gather a dimension that is split, if its mesh axes are more than the first part can have."""
        sharding, wanted = sharding_of(operation.operands[0]), result_shardings(operation)[0]
        if wanted is None:
            return
        axes = axes_of_dimensions(sharding)
        sizes = list(rule.factor_sizes)
        gathered = {
            number
            for number, (factors, each) in enumerate(zip(operand, axes, strict=True))
            if len(factors) > 1 and each and sizes[factors[0]] % self._ways(each) != 0
        }
        if not gathered:
            return
        free = {factor for number in gathered for factor in operand[number]}
        before = [() if number in gathered else each for number, each in enumerate(axes)]
        target = {factor: () if factor in free else each for factor, each in made.items()}
        after = tuple(tuple(axis for factor in each for axis in target[factor]) for each in result)
        location = self._location(operation, [tuple(before), after])
        mesh = sharding.mesh_or_ref
        operation.operands[0] = self._resharded_value(
            operation.operands[0], tensor_sharding(mesh, before), location
        )
        operation.attributes[SHARDING] = sdy.TensorShardingPerValueAttr.get(
            [tensor_sharding(mesh, after)]
        )
        self._reshard_result(operation, 0, (wanted,), location)

    def _by_index(self, operation: Any, rule: Any, given: list[Factors]) -> bool:
        """Return whether XLA groups the devices of a lookup by parts of the indices, not of the table.

        It takes what needs fewer bytes: the whole table and a part of the result, or the reverse.
        """
        table, indices, result = (
            math.prod(ir.RankedTensorType(value.type).shape) * _item_bytes(value)
            for value in (*operation.operands, operation.results[0])
        )
        looked_up = [axis for f in rule.reduction_factors for axis in given[0].get(f, ())]
        indexed = self._ways(axis for axes in given[1].values() for axis in axes)
        by_table = table // self._ways(looked_up) + result + indices
        return indexed > 1 and table + (result + indices) // indexed < by_table

    def _after_gather(
        self, operation: Any, rule: Any, given: list[Factors], made: Factors, wanted: Factors
    ) -> tuple[Factors, ...]:
        """Return the shardings between a lookup and its result; empty if there are none.

        If a table is sharded along the looked-up dimension, each device looks up its own part, and an
        all-reduce adds the parts. XLA takes groups of devices for it from the first dimensions of the result.
        """
        looked_up = [factor for factor in rule.reduction_factors if given[0].get(factor)]
        if len(looked_up) != 1 or len(given[0][looked_up[0]]) != 1:
            return ()
        (axis,) = given[0][looked_up[0]]
        name, part = axis
        used = {each for axes in made.values() for each in axes}
        indexed = tuple(each for axes in given[1].values() for each in axes)
        free = self._ways([(each, None) for each, _ in self._mesh]) // self._ways(used)
        groups = self._ways([axis])
        if part is not None or axis not in used or free % groups == 0 or not indexed:
            return ()
        if self._by_index(operation, rule, given):
            return ()  # each group of devices has its own part of the indices
        rest = groups
        left: dict[int, int] = {}
        taken: Factors = {}
        for factor, axes in made.items():
            ways = self._ways(axes)
            borrowed = math.gcd(rest, ways)
            if borrowed > 1:
                taken[factor] = ((name, (groups // rest, borrowed)),)
            rest //= borrowed
            if ways > borrowed:
                left[factor] = ways // borrowed
        if (
            rest > 1
            or list(left.values()) != [self._ways(indexed)]
            or taken.keys() != made.keys() & {factor for factor, axes in made.items() if axes}
        ):
            return ()
        (factor,) = left
        moved: Factors = dict.fromkeys(made, ()) | {factor: indexed}
        if moved == wanted or any(wanted.get(each) for each in (factor,)):
            return ()
        return moved, {each: (*moved[each], *taken.get(each, ())) for each in made}

    def _ways(self, axes: Iterable[Axis]) -> int:
        sizes = dict(self._mesh)
        return math.prod(part[1] if part else sizes[name] for name, part in axes)

    def _product(self, operation: Any, rule: Any) -> Product:
        lhs, rhs = (
            {factor for dimension in _mapping(each) for factor in dimension}
            for each in rule.operand_mappings
        )
        contracting = set(rule.reduction_factors)
        return Product(
            batch=tuple(sorted((lhs & rhs) - contracting)),
            contracting=tuple(sorted(contracting)),
            lhs_free=tuple(sorted(lhs - rhs)),
            rhs_free=tuple(sorted(rhs - lhs)),
            sizes=tuple(enumerate(rule.factor_sizes)),
            item_bytes=tuple(map(_item_bytes, (*operation.operands, operation.results[0]))),
            mesh=tuple((name, size) for name, size in self._mesh if size > 1),
        )

    def _reshard(
        self,
        operation: Any,
        number: int,
        mapping: FactorsOfDimensions,
        target: Factors,
        location: Any,
        groups: Groups = (),
    ) -> Any:
        """Return an operand with the axes of its factors, resharded by an earlier operation if possible."""
        value = operation.operands[number]
        found = sharding_of(value)
        mesh = found.mesh_or_ref if found is not None else ir.FlatSymbolRefAttr.get("mesh")
        sharding = _sharding(mesh, mapping, target)
        owner = value.owner
        if not isinstance(owner, ir.Block) and owner.name in _RECOMPUTED:
            # Recomputed in the wanted sharding: its operand is smaller than its result.
            with ir.InsertionPoint(operation):
                copy = owner.operation.clone()
            copy.attributes[SHARDING] = sdy.TensorShardingPerValueAttr.get([sharding])
            self._resolve(copy)
            return copy.results[0]
        return self._resharded_value(value, sharding, location, groups)

    def _resharded_value(
        self, value: Any, sharding: Any, location: Any, groups: Groups = ()
    ) -> Any:
        """Return the value in another sharding, from an earlier reshard if there was one."""
        key = (value, sharding, groups)
        if key not in self._resharded:
            owner = value.owner
            point = (
                ir.InsertionPoint.at_block_begin(owner)
                if isinstance(owner, ir.Block)
                else ir.InsertionPoint.after(owner)
            )
            with point, location:
                self._resharded[key] = sdy.ReshardOp(value, sharding).result
        return self._resharded[key]

    def _reshard_result(
        self, operation: Any, number: int, shardings: Sequence[Any], location: Any
    ) -> None:
        """Reshard one result of an operation for all of its uses, through several shardings."""
        result = operation.results[number]
        own = result_shardings(operation)[number]
        uses = [(use.owner, use.operand_number) for use in result.uses]
        with ir.InsertionPoint.after(operation), location:
            value = result
            for sharding in shardings:
                value = sdy.ReshardOp(value, sharding).result
        for owner, place in uses:
            owner.operands[place] = value
        # If an operation needs the result as it was computed, XLA does not reshard it back.
        self._resharded[(value, own, ())] = result


@functools.lru_cache(maxsize=4096)
def _agree(written: Any, operands: tuple[Any, ...], results: tuple[Any, ...]) -> bool:
    """Return whether each factor of a rule has the same axes everywhere, and each axis shards one factor.

    Not if a dimension of several factors is sharded.
    """
    rule = sdy.OpShardingRuleAttr(written)
    mappings = map(_mapping, (*rule.operand_mappings, *rule.result_mappings))
    shared: Factors = {}
    for each in itertools.starmap(_factors, zip((*operands, *results), mappings, strict=True)):
        if each is None:
            return False
        for factor, axes in each.items():
            if shared.setdefault(factor, axes) != axes:
                return False
    names = [name for axes in shared.values() for name, _ in axes]
    return len(names) == len(set(names))


def _frozen(factors: Factors) -> dot_partitioner.Shards:
    return tuple(sorted((factor, axes) for factor, axes in factors.items() if axes))


def _item_bytes(value: Any) -> int:
    kind = ir.RankedTensorType(value.type).element_type
    try:
        return max(1, int(kind.width) // 8)
    except AttributeError:
        return 16 if "f64" in str(kind) else 8  # complex numbers


def _wanted(
    given: list[Factors], made: list[Factors], reductions: set[int], kept: Factors
) -> Factors:
    """Return the axes of each factor while the operation computes; `kept` are those of some factors."""
    wanted: Factors = dict(kept)
    used = {name for axes in kept.values() for name, _ in axes}
    for factor in sorted(reductions):
        axes = {each[factor] for each in given if factor in each}
        agreed = axes.pop() if len(axes) == 1 else ()
        if agreed and used.isdisjoint(name for name, _ in agreed):
            wanted[factor] = agreed
            used |= {name for name, _ in agreed}
    for each in made:
        for factor, axes in each.items():
            free = tuple(axis for axis in axes if axis[0] not in used)
            wanted.setdefault(factor, free)
    used |= {name for axes in wanted.values() for name, _ in axes}
    for each in given:
        for factor, axes in each.items():
            if factor in wanted:
                continue
            rest = []
            for axis in axes:
                if axis[0] in used:
                    break
                rest.append(axis)
            wanted[factor] = tuple(rest)
            used |= {name for name, _ in rest}
    return wanted


@functools.lru_cache(maxsize=4096)
def _mapping(attribute: Any) -> FactorsOfDimensions:
    """Return for each dimension of a tensor its factors, major first."""
    mapping = sdy.TensorMappingAttr(attribute)
    return tuple(tuple(sdy.DimMappingAttr(each).factor_indices) for each in mapping.dim_mappings)


def _factors(sharding: Any, mapping: FactorsOfDimensions) -> Factors | None:
    """Return the axes of each factor of a tensor; None if a dimension of several factors is sharded."""
    factors: Factors = {factor: () for dimension in mapping for factor in dimension}
    if sharding is None:
        return factors
    for dimension, axes in zip(mapping, axes_of_dimensions(sharding), strict=True):
        if len(dimension) == 1:
            factors[dimension[0]] = axes
        elif axes:
            return None
    return factors


def _sharding(mesh: Any, mapping: FactorsOfDimensions, target: Factors) -> Any:
    return tensor_sharding(
        mesh, [tuple(axis for factor in each for axis in target[factor]) for each in mapping]
    )
