"""Which logical axes can shard the dimensions of a program's values.

Shardy's sharding rule of an operation says which dimensions of its operands and results are one: an axis that
shards one of them can be propagated to the others, and to no further ones. So the dimensions that are
connected by rules, loops and branches have the axes of the arguments, results and constraints among them.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from inspector.compare.search.transfers import Contraction
from inspector.producers.mlir.walk import main_function, operations, signature_attributes
from inspector.producers.partition.contractions import RULE, contractions
from inspector.producers.partition.origins import LogicalAxes
from inspector.producers.partition.shardings import MANUAL, SHARDING
from inspector.producers.partition.shardy import logical_axes, run_passes

Names: TypeAlias = frozenset[str]
Sizes: TypeAlias = tuple[int, ...]
_Dimension: TypeAlias = tuple[Any, int]  # of a value

_RULES = "builtin.module(func.func(sdy-populate-op-sharding-rules))"


def key_of(dimensions: Sequence[int]) -> Sizes:
    """Return the sizes of an array by which values of a program are recognised after passes of XLA."""
    return tuple(sorted(size for size in dimensions if size > 1))


@dataclass(frozen=True)
class Shardable:
    """The logical axes of a program.

    Attributes:
      by_sizes: the axes that can shard each dimension of a value, by the sizes of its dimensions in order.
        One entry for each different value with these sizes; dimensions of one size are in any order.
      given: the logical axes of the dimensions of each argument, result and constraint, without duplicates.
      contractions: its matrix products.
    """

    by_sizes: Mapping[Sizes, tuple[tuple[Names, ...], ...]]
    given: tuple[LogicalAxes, ...]
    contractions: tuple[Contraction, ...]


def shardable(module: ir.Module | ir.Operation) -> Shardable | None:
    """Return the axes that can shard the values of a module; None if it has a `shard_map`."""
    with module.context, ir.Location.unknown():
        copy = module.operation.clone()
        run_passes(_RULES, copy)
        every = operations(copy)
        if any(operation.name == MANUAL for operation in every):
            return None
        classes = _Classes()
        for one, other in _connected(every):
            classes.join(one, other)
        named: dict[_Dimension, set[str]] = defaultdict(set)
        given: dict[LogicalAxes, None] = {}
        for value, sharding in _given(copy, every):
            axes = logical_axes(sharding)
            given.setdefault(axes)
            for number, name in enumerate(axes):
                if name is not None:
                    named[classes.first(value, number)].add(name)
        by_sizes: dict[Sizes, dict[tuple[Names, ...], None]] = defaultdict(dict)
        for value in _values(every):
            sizes = _sizes(value)
            if sizes is not None:
                of_value = sorted(
                    (size, sorted(named.get(classes.first(value, number), ())))
                    for number, size in enumerate(sizes)
                    if size > 1
                )
                by_sizes[key_of(sizes)].setdefault(tuple(frozenset(names) for _, names in of_value))
        return Shardable(
            {sizes: tuple(values) for sizes, values in by_sizes.items()},
            tuple(given),
            tuple(
                contractions(
                    every,
                    lambda value, number: frozenset(named.get(classes.first(value, number), ())),
                )
            ),
        )


class _Classes:
    """Dimensions that are one (union-find)."""

    def __init__(self) -> None:
        self._parents: dict[_Dimension, _Dimension] = {}

    def first(self, value: ir.Value, number: int) -> _Dimension:
        place = (value, number)
        while (parent := self._parents.get(place)) is not None:
            grand = self._parents.get(parent)
            if grand is not None:
                self._parents[place] = grand
            place = parent
        return place

    def join(self, one: _Dimension, other: _Dimension) -> None:
        first, second = self.first(*one), self.first(*other)
        if first != second:
            self._parents[second] = first


def _sizes(value: ir.Value) -> Sizes | None:
    kind = value.type
    return tuple(kind.shape) if isinstance(kind, ir.RankedTensorType) else None


def _values(every: Sequence[Any]) -> Iterator[Any]:
    for operation in every:
        yield from operation.results
        for region in operation.regions:
            for block in region.blocks:
                yield from block.arguments


def _given(module: ir.Operation, every: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield values with the sharding that the program gives them."""
    main = main_function(module)
    block = main.regions[0].blocks[0]
    last = block.operations[len(block.operations) - 1].operation
    for key, values in (("arg_attrs", block.arguments), ("res_attrs", last.operands)):
        listed = signature_attributes(main, key, len(values))
        for value, attributes in zip(values, listed, strict=True):
            if SHARDING in attributes:
                yield value, sdy.TensorShardingAttr(attributes[SHARDING])
    for operation in every:
        if operation.name == "sdy.sharding_constraint":
            yield operation.results[0], sdy.TensorShardingAttr(operation.attributes["sharding"])


def _connected(every: Sequence[Any]) -> Iterator[tuple[_Dimension, _Dimension]]:
    """Yield pairs of dimensions of which a sharding of one can be that of the other."""
    for operation in every:
        if RULE in operation.attributes:
            yield from _by_rule(operation)
        elif operation.regions and operation.name != "func.func":
            yield from _through_regions(operation)


def _by_rule(operation: ir.Operation) -> Iterator[tuple[_Dimension, _Dimension]]:
    rule = sdy.OpShardingRuleAttr(operation.attributes[RULE])
    blocked = set(rule.blocked_propagation_factors)
    first: dict[int, _Dimension] = {}
    values = (*operation.operands, *operation.results)
    mappings = (*rule.operand_mappings, *rule.result_mappings)
    for value, mapping in zip(values, mappings, strict=True):
        for number, dimension in enumerate(sdy.TensorMappingAttr(mapping).dim_mappings):
            for factor in sdy.DimMappingAttr(dimension).factor_indices:
                if factor not in blocked:
                    place = (value, number)
                    yield first.setdefault(factor, place), place


def _through_regions(operation: ir.Operation) -> Iterator[tuple[_Dimension, _Dimension]]:
    """Yield the values that enter and leave the regions of a loop or of branches."""
    lists: list[list[ir.Value]] = [list(operation.results)]
    if operation.name == "stablehlo.while":
        lists.append(list(operation.operands))
    for region in operation.regions:
        for block in region.blocks:
            lists.append(list(block.arguments))
            lists.append(list(block.operations[len(block.operations) - 1].operation.operands))
    for others in lists[1:]:
        if [value.type for value in others] != [value.type for value in lists[0]]:
            continue
        for value, other in zip(lists[0], others, strict=True):
            for number in range(len(_sizes(value) or ())):
                yield (value, number), (other, number)
