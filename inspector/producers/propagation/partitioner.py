"""Resolve conflicting shardings of an operation as XLA's SPMD partitioner does.

After propagation, an operand may be sharded differently from the way in which its operation computes. jaxlib
leaves most of these conflicts to the SPMD partitioner of the compiler. This module inserts the same reshards
explicitly, so that they become visible without a compile:

* An operation computes in the sharding of its result; operands are resharded to it.
* A sum or matrix product whose operands agree on a summed dimension keeps it: it computes partial sums.
* Otherwise an operand is gathered along a mesh axis that the result uses for another dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from inspector.producers.propagation.shardings import (
    SHARDING,
    Axis,
    axes_of_dimensions,
    result_shardings,
    sharding_of,
)

RULE = "sdy.sharding_rule"


# For each factor of an operation (a dimension that its operands and results share), its axes.
Factors = dict[int, tuple[Axis, ...]]

# Operations that are recomputed in another sharding rather than resharded.
_RECOMPUTED = frozenset({
    "stablehlo.broadcast_in_dim", "stablehlo.iota", "stablehlo.constant", "sdy.constant",
})  # fmt: skip
# Operations that Shardy itself resolves as the partitioner does, or that move data by definition.
_LEFT_ALONE = frozenset({
    "stablehlo.while", "stablehlo.case", "stablehlo.if", "func.call", "sdy.reshard",
    "sdy.manual_computation", "sdy.sharding_constraint", "stablehlo.custom_call",
})  # fmt: skip


def insert_reshards(module: Any) -> int:
    """Insert an `sdy.reshard` for each operand that conflicts with its operation.

    Args:
      module: a propagated module whose operations still have their sharding rules. It is changed.

    Returns:
      The number of reshards inserted.
    """
    count = 0
    for operation in list(_operations(module)):
        if operation.name in _LEFT_ALONE or RULE not in operation.attributes:
            continue
        count += _resolve(operation)
    return count


def _operations(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region.blocks:
            for each in block.operations:
                yield from _operations(each.operation)
                yield each.operation


def _resolve(operation: Any) -> int:
    rule = sdy.OpShardingRuleAttr(operation.attributes[RULE])
    operands = [_mapping(each) for each in rule.operand_mappings]
    results = [_mapping(each) for each in rule.result_mappings]
    reductions = set(rule.reduction_factors)
    given = [
        _factors(sharding_of(value), mapping)
        for value, mapping in zip(operation.operands, operands, strict=True)
    ]
    made = [
        _factors(sharding, mapping)
        for sharding, mapping in zip(result_shardings(operation), results, strict=True)
    ]
    if any(each is None for each in (*given, *made)):
        return 0
    wanted = _wanted(given, made, reductions)
    count = 0
    for number, (mapping, factors) in enumerate(zip(operands, given, strict=True)):
        target = {factor: wanted.get(factor, ()) for each in mapping for factor in each}
        if all(factors.get(factor, ()) == axes for factor, axes in target.items()):
            continue
        _reshard(operation, number, mapping, target)
        count += 1
    shardings = result_shardings(operation)
    changed = list(shardings)
    for number, (mapping, factors) in enumerate(zip(results, made, strict=True)):
        target = {factor: wanted[factor] for each in mapping for factor in each}
        if shardings[number] is None or all(factors[f] == axes for f, axes in target.items()):
            continue
        changed[number] = _sharding(shardings[number].mesh_or_ref, mapping, target)
        _reshard_result(operation, number, shardings[number])
        count += 1
    if changed != shardings:
        operation.attributes[SHARDING] = sdy.TensorShardingPerValueAttr.get(changed)
    return count


def _wanted(given: list[Factors], made: list[Factors], reductions: set[int]) -> Factors:
    """Return the axes of each factor while the operation computes."""
    wanted: Factors = {}
    used: set[str] = set()
    for factor in sorted(reductions):
        axes = {each[factor] for each in given if factor in each}
        agreed = axes.pop() if len(axes) == 1 else ()
        if agreed and used.isdisjoint(name for name, _ in agreed):
            wanted[factor] = agreed
            used |= {name for name, _ in agreed}
    for each in made:
        for factor, axes in each.items():
            kept = tuple(axis for axis in axes if axis[0] not in used)
            wanted.setdefault(factor, kept)
    used |= {name for axes in wanted.values() for name, _ in axes}
    for each in given:
        for factor, axes in each.items():
            if factor in wanted:
                continue
            kept = []
            for axis in axes:
                if axis[0] in used:
                    break
                kept.append(axis)
            wanted[factor] = tuple(kept)
            used |= {name for name, _ in kept}
    return wanted


def _mapping(attribute: Any) -> tuple[tuple[int, ...], ...]:
    """Return for each dimension of a tensor its factors, major first."""
    mapping = sdy.TensorMappingAttr(attribute)
    return tuple(tuple(sdy.DimMappingAttr(each).factor_indices) for each in mapping.dim_mappings)


def _factors(sharding: Any, mapping: tuple[tuple[int, ...], ...]) -> Factors | None:
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


def _reshard(
    operation: Any, number: int, mapping: tuple[tuple[int, ...], ...], target: Factors
) -> None:
    """Reshard one operand of an operation to the axes of its factors."""
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
        operation.operands[number] = copy.results[0]
        _resolve(copy)
        return
    with ir.InsertionPoint(operation), operation.location:
        operation.operands[number] = sdy.ReshardOp(value, sharding).result


def _reshard_result(operation: Any, number: int, sharding: Any) -> None:
    """Reshard one result of an operation for all of its uses."""
    result = operation.results[number]
    with ir.InsertionPoint.after(operation), operation.location:
        reshard = sdy.ReshardOp(result, sharding)
    result.replace_all_uses_except(reshard.result, reshard.operation)


def _sharding(mesh: Any, mapping: tuple[tuple[int, ...], ...], target: Factors) -> Any:
    return sdy.TensorShardingAttr.get(
        mesh,
        [
            sdy.DimensionShardingAttr.get(
                [_axis_ref(axis) for factor in dimension for axis in target[factor]],
                is_closed=True,
            )
            for dimension in mapping
        ],
    )


def _axis_ref(axis: Axis) -> Any:
    name, part = axis
    if part is None:
        return sdy.AxisRefAttr.get(name)
    return sdy.AxisRefAttr.get(name, sdy.SubAxisInfoAttr.get(*part))
