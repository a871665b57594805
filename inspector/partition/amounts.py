"""The work of a program on one device, and the axes that can shard its arrays: bounds for a search."""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from cachetools import LRUCache, cached
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from inspector import hlo
from inspector.hlo.analysis import Analysis
from inspector.hlo.flops import contracted_sizes, product
from inspector.hlo.module import Instruction, Module, operand_names, operand_shapes
from inspector.hlo.shapes import Shape
from inspector.layout import Layout
from inspector.partition.contractions import RULE, contractions, returned
from inspector.partition.origins import LogicalAxes
from inspector.partition.partition_layout import TRAIN_STEP, Setting, partitioned_module
from inspector.partition.shardings import MANUAL, SHARDING
from inspector.partition.shardy import logical_axes, run_passes
from inspector.partition.template import Template, template_key
from inspector.records.snapshot import Mesh, MeshAxis
from inspector.search.bounds import Dimensions, ProgramAmounts, alternatives
from inspector.search.transfers import Contraction
from inspector.sharding.array_groups import group_of_path
from inspector.text.errors import InvalidInput
from inspector.tracing.mlir.walk import main_function, operations, signature_attributes

# Which logical axes can shard the dimensions of a program's values.
#
# Shardy's sharding rule of an operation says which dimensions of its operands and results are one: an axis
# that shards one of them can be propagated to the others, and to no further ones. So the dimensions that are
# connected by rules, loops and branches have the axes of the arguments, results and constraints among them.


Names: TypeAlias = frozenset[str]
Sizes: TypeAlias = tuple[int, ...]
_Dimension: TypeAlias = tuple[Any, int]  # of a value

_STATE = ("params", "opt_state")  # the groups of results to which collectives are followed (`moved_arrays`)
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


def shardable(
    module: ir.Module | ir.Operation, paths: Sequence[Sequence[str]] = ((), ())
) -> Shardable | None:
    """Return the axes that can shard the values of a module; None if it has a `shard_map`.

    paths: those of its arguments, and of its results, if they are known.
    """
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
                    [
                        [value for value, path in pairs if group_of_path(path) in _STATE]
                        for pairs in map(zip, _signature(copy), paths)
                    ],
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
    for key, values in zip(("arg_attrs", "res_attrs"), _signature(module), strict=True):
        listed = signature_attributes(main, key, len(values))
        for value, attributes in zip(values, listed, strict=True):
            if SHARDING in attributes:
                yield value, sdy.TensorShardingAttr(attributes[SHARDING])
    for operation in every:
        if operation.name == "sdy.sharding_constraint":
            yield operation.results[0], sdy.TensorShardingAttr(operation.attributes["sharding"])


def _signature(module: ir.Operation) -> tuple[Sequence[ir.Value], Sequence[ir.Value]]:
    """Return the values that the program takes, and those that it returns."""
    block = main_function(module).regions[0].blocks[0]
    return block.arguments, returned(block)


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
            lists.append(list(returned(block)))
    for others in lists[1:]:
        if [value.type for value in others] != [value.type for value in lists[0]]:
            continue
        for value, other in zip(lists[0], others, strict=True):
            for number in range(len(_sizes(value) or ())):
                yield (value, number), (other, number)


# The least mesh for which XLA partitions a program. Nothing is sharded over it.
_UNUSED = Mesh((MeshAxis("unused", 2),), (0, 1))


def _key(template: Template, layout: Layout, name: str) -> str:
    setting = Setting.of(layout)
    return f"{template_key(layout)} {setting.kernel} {setting.kind} {name}"


@cached(LRUCache(8), key=_key)
def amounts_of(template: Template, layout: Layout, name: str) -> ProgramAmounts | None:
    """Return the work of one program of a template; None if it differs between meshes or is unknown."""
    lowered = next((program for program in template.programs if program.name == name), None)
    if lowered is None or not template.logical:
        return None
    known = shardable(lowered.without_names.restore(), (lowered.inputs, lowered.outputs))
    if known is None:
        return None
    setting = replace(Setting.of(layout), mesh=_UNUSED, rules=(), optimizer_axes=(), watched=None)
    try:
        module, _ = partitioned_module(lowered, setting, True, lowered.without_names)
    except InvalidInput:
        return None
    module = setting.as_compiled(module, _UNUSED)
    analysis = Analysis(module)
    fused = setting.traffic(analysis, sums=True)
    products: dict[tuple[str, Dimensions], float] = defaultdict(float)
    attention: dict[Dimensions, float] = defaultdict(float)
    for computation, instruction in module.instructions:
        matmul = product(computation, instruction)
        if matmul is None:
            continue
        runs = analysis.runs[computation.name].count
        if matmul.flops is None or matmul.dtype is None or runs is None:
            return None
        dimensions = None
        contracted = contracted_sizes(computation, instruction)
        first = _dimensions(next(iter(operand_shapes(computation, instruction)), None), known)
        result = _dimensions(instruction.shape, known)
        if contracted is not None and first is not None and result is not None:
            dimensions = alternatives(
                (*(names for _, names in one), *(names for size, names in other if size in contracted))
                for one, other in itertools.product(result, first)
            )
        products[matmul.dtype, dimensions] += float(matmul.flops) * runs
        if fused is not None and instruction.name in fused.attention:
            attention[dimensions] += float(matmul.flops) * runs
    traffic: dict[Dimensions, float] = defaultdict(float)
    shapes = _shapes(module)
    for name, count in {} if fused is None else fused.bytes.items():
        if name in shapes:
            sized = [_dimensions(shape, known) for shape in shapes[name]]
            values = (
                None if None in sized else [[names for _, names in v] for each in sized for v in each or ()]
            )
            traffic[None if values is None else alternatives(values)] += count
    kernel = setting.kernel
    return ProgramAmounts(
        lowered.name,
        dict(products),
        attention=dict(attention),
        attention_share=kernel.share(lowered.name == TRAIN_STEP) if kernel else 0.0,
        traffic=None if fused is None else dict(traffic),
        fusions=0.0 if fused is None else float(fused.fusions),
        given=known.given,
        not_counted=tuple(sorted({calls.name for calls in hlo.work.work(module, analysis).kernels})),
        contractions=known.contractions,
    )


def _shapes(module: Module) -> dict[str, list[Shape | None]]:
    """Return the shapes of each array, and of the rows that are added to it: axes can share the work by both.

    Arrays from which rows are gathered are left out: each user of the rows reads them, unless a collective is
    between.
    """
    shapes = {instruction.name: [instruction.shape] for _, instruction in module.instructions}
    for computation, instruction in module.instructions:
        if instruction.opcode not in ("gather", "scatter"):
            continue
        rows = operand_shapes(computation, instruction)[-1]
        at: Instruction | None = instruction
        while at is not None:
            if instruction.opcode == "scatter":
                shapes.get(at.name, []).append(rows)
            elif at is not instruction:
                shapes.pop(at.name, None)
            at = computation.by_name.get(next(iter(operand_names(at)), None) or "")
    return shapes


def _dimensions(shape: Shape | None, known: Shardable) -> list[list[tuple[int, frozenset[str]]]] | None:
    """Return the size of each dimension with the axes that can shard it, of each value with this shape.

    None without a value.
    """
    if shape is None or shape.parts is not None or None in shape.dimensions:
        return None
    sizes = key_of([size or 0 for size in shape.dimensions])
    values = known.by_sizes.get(sizes)
    return None if values is None else [list(zip(sizes, names, strict=True)) for names in values]
