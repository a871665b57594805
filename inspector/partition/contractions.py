"""The products and sums of a program, with the logical axes that the program gives their arrays.

A model names the axes of its parameters and of the activations around its products. The value of an operand
leads back to such a name through operations that keep its dimensions, into and out of loops; that of a result
leads forward to one.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from inspector.hlo.module import reach
from inspector.hlo.opcodes import ELEMENTWISE, MOVES, TABLE, Opcode
from inspector.partition.origins import LogicalAxes
from inspector.partition.shardings import SHARDING
from inspector.partition.shardy import logical_axes
from inspector.search.transfers import Contraction, ProductArray
from inspector.tracing.mlir.walk import signature_attributes

RULE = "sdy.sharding_rule"
_PRODUCT = "stablehlo.dot_general"
# Operations that reduce dimensions of operands, with the numbers of the operands that have them.
_REDUCING: Mapping[str, tuple[int, ...]] = {
    _PRODUCT: (0, 1), "stablehlo.reduce": (0,), "stablehlo.gather": (0,), "stablehlo.scatter": (2,),
}  # fmt: skip
_CONSTRAINT = "sdy.sharding_constraint"
_LOOP = "stablehlo.while"
_UPDATE = "stablehlo.dynamic_update_slice"
# Their results have other elements than their operands, so a sharding of one is not that of the other.
_ENDS = frozenset({
    _PRODUCT, "stablehlo.gather", "stablehlo.scatter", "stablehlo.reduce", "stablehlo.convolution",
    "stablehlo.custom_call", "stablehlo.sort", "stablehlo.rng_bit_generator", "stablehlo.reduce_window",
})  # fmt: skip
_MOST_STEPS = 64
# The operations between a result and the sum that it is part of.
_OF_SUMS = frozenset({
    "stablehlo.add", "stablehlo.reshape", "stablehlo.convert", "stablehlo.slice", "stablehlo.pad",
    _CONSTRAINT,
})  # fmt: skip
_NEVER = 9  # more arrays than an operation has: no number of them decides by which dimension it is shared


@dataclass(frozen=True)
class _Path:
    """A value on the way, the place of each of its dimensions in the value at its start, and the bytes."""

    value: ir.Value
    places: tuple[int | None, ...]
    bytes: int


def contractions(
    every: Sequence[Any],
    names: Callable[[Any, int], frozenset[str]],
    state: Sequence[Sequence[ir.Value]] = ((), ()),
) -> list[Contraction]:
    """Return the matrix products among operations with sharding rules. Equal ones are one.

    Args:
      names: returns the logical axes that can shard a dimension of a value.
      state: the arguments, and the results of the program, that are the train state.
    """
    given = dict(_given(every))
    of_state = set(reach(state[0], _moved)), set(reach(state[1], _elementwise))
    found = [
        contraction
        for operation in every
        if operation.name in _REDUCING and RULE in operation.attributes
        for contraction in _contraction(operation, given, names, of_state)
    ]
    found += [
        contraction
        for operation in every
        if operation.name == _CONSTRAINT
        for contraction in _resharding(operation, given, names)
    ]
    users = Counter(end for _, ends in found for end in ends)
    runs: Counter[Contraction] = Counter()  # layers outside of a loop have equal products
    for contraction, ends in found:
        arrays = tuple(
            replace(array, users=users[end]) for array, end in zip(contraction.arrays, ends, strict=True)
        )
        runs[replace(contraction, arrays=arrays, runs=1)] += contraction.runs
    return [replace(contraction, runs=count) for contraction, count in runs.items() if count]


def _contraction(
    operation: ir.Operation,
    given: Mapping[Any, LogicalAxes],
    names: Callable[[Any, int], frozenset[str]],
    of_state: Sequence[Container[ir.Value]],
) -> Iterator[tuple[Contraction, list[Any]]]:
    """Yield an operation, and a key of each array that other operations of the same block share.

    Yield nothing if no axis can be sent for it: nothing is reduced, or it has several results.
    """
    rule = sdy.OpShardingRuleAttr(operation.attributes[RULE])
    product = operation.name == _PRODUCT
    reduced = frozenset(factor for factor in rule.reduction_factors if rule.factor_sizes[factor] > 1)
    if len(operation.results) != 1 or not (product or reduced):
        return
    numbers = _REDUCING[operation.name]
    of_values = _factors(rule)
    mappings = [*(of_values[number] for number in numbers), of_values[-1]]
    values = (*(operation.operands[number] for number in numbers), operation.results[0])
    axes: dict[int, frozenset[str]] = {}
    for value, mapping in zip(values, mappings, strict=True):
        for number, factors in enumerate(mapping):
            for factor in factors:
                axes[factor] = axes.get(factor, frozenset()) | names(value, number)
    flops = 2 if product else 0
    for size in rule.factor_sizes:
        flops *= size
    arrays: list[ProductArray] = []
    ends: list[Any] = []
    for number, (value, mapping) in enumerate(zip(values, mappings, strict=True)):
        factor_of = tuple(factors[0] if factors else None for factors in mapping)
        start = _Path(value, tuple(range(len(factor_of))), _bytes(value))
        last = number == len(numbers)
        end = _first(start, _after if last else _before, given)
        dimensions = frozenset(factor for each in mapping for factor in each)
        if end is None:
            arrays.append(ProductArray(_bytes(value), dimensions, None))
            ends.append(_summed(value) if last else (operation, number))
            continue
        known = given[end.value]
        at = tuple(None if own is None else factor_of[own] for own in end.places)
        narrow = min(end.bytes, _narrow_bytes(value)) if last or product else None
        state = value in of_state[last]
        arrays.append(ProductArray(end.bytes, dimensions, known, at, narrow=narrow, state=state))
        # An operand is gathered once for all products of a block, and a sum of results is reduced once.
        ends.append(_summed(value) if last else (end.value, operation.block))
    kind = ir.RankedTensorType(operation.operands[0].type).element_type
    runs = _runs(operation)
    contraction = Contraction(
        float(flops),
        str(kind),
        runs=runs,
        names=tuple(axes.get(factor, frozenset()) for factor in range(len(rule.factor_sizes))),
        arrays=tuple(arrays),
        reduced=reduced,
        decisive={_PRODUCT: 2, "stablehlo.reduce": 1}.get(operation.name, _NEVER),
    )
    yield contraction, ends


def _resharding(
    operation: ir.Operation, given: Mapping[Any, LogicalAxes], names: Callable[[Any, int], frozenset[str]]
) -> Iterator[tuple[Contraction, list[Any]]]:
    """Yield the change from one given sharding to another one; nothing if there is none before."""
    value = operation.results[0]
    rank = len(given[value])
    start = _Path(operation.operands[0], tuple(range(rank)), _bytes(value))
    end = _first(start, _before, given)
    if end is None:
        return
    known = given[end.value]
    if known == given[value] and end.places == start.places:
        return
    dimensions = frozenset(range(rank))
    arrays = (
        ProductArray(end.bytes, dimensions, known, end.places, narrow=min(end.bytes, _narrow_bytes(value))),
        ProductArray(
            _bytes(value), dimensions, given[value], tuple(range(rank)), narrow=_narrow_bytes(value)
        ),
    )
    axes = tuple(names(value, number) for number in range(rank))
    contraction = Contraction(0.0, "", _runs(operation), axes, arrays, decisive=_NEVER)
    yield contraction, [(end.value, operation.block), value]


def _summed(value: ir.Value) -> ir.Value:
    """Return the sum that a value is part of, or the value itself."""
    while len(uses := list(value.uses)) == 1:
        operation = uses[0].owner.operation if hasattr(uses[0].owner, "operation") else uses[0].owner
        if operation.name not in _OF_SUMS:
            break
        value = operation.results[0]
    return value


def _factors(rule: sdy.OpShardingRuleAttr) -> list[list[list[int]]]:
    """Return the factors of each dimension of each operand and result."""
    mappings = (*rule.operand_mappings, *rule.result_mappings)
    return [
        [
            list(sdy.DimMappingAttr(dimension).factor_indices)
            for dimension in sdy.TensorMappingAttr(mapping).dim_mappings
        ]
        for mapping in mappings
    ]


def _given(every: Sequence[Any]) -> Iterator[tuple[Any, LogicalAxes]]:
    for operation in every:
        if operation.name == _CONSTRAINT:
            yield (
                operation.results[0],
                logical_axes(sdy.TensorShardingAttr(operation.attributes["sharding"])),
            )
        elif operation.name == "func.func":
            block = operation.regions[0].blocks[0]
            listed = signature_attributes(operation, "arg_attrs", len(block.arguments))
            for value, attributes in zip(block.arguments, listed, strict=True):
                if SHARDING in attributes:
                    yield value, logical_axes(sdy.TensorShardingAttr(attributes[SHARDING]))


def _bytes(value: ir.Value) -> int:
    kind = ir.RankedTensorType(value.type)
    count = max(1, _width(kind.element_type) // 8)
    for size in kind.shape:
        count *= size
    return count


def _narrow_bytes(value: ir.Value) -> int:
    """Return the bytes of a value whose float32 elements are moved as bfloat16."""
    is_wide = str(ir.RankedTensorType(value.type).element_type) == "f32"
    return _bytes(value) // 2 if is_wide else _bytes(value)


def _width(kind: ir.Type) -> int:
    if isinstance(kind, ir.IntegerType):
        return kind.width
    width = getattr(kind, "width", None)
    return 64 if width is None else int(width)


def _step(operation: ir.Operation, before: int, after: int, path: _Path, value: ir.Value) -> _Path:
    """Return the path on another operand or result of an operation.

    Args:
      before, after: numbers of the value of the path and of `value` among the operands and results.
    """
    mappings = _factors(sdy.OpShardingRuleAttr(operation.attributes[RULE]))
    place_of = {
        factor: place
        for factors, place in zip(mappings[before], path.places, strict=True)
        for factor in factors[:1]
    }
    places = tuple(
        next((place_of[factor] for factor in factors if factor in place_of), None)
        for factors in mappings[after]
    )
    return _Path(value, places, min(path.bytes, _bytes(value)))


def _first(
    path: _Path, step: Callable[[_Path], Iterator[_Path]], given: Mapping[Any, LogicalAxes]
) -> _Path | None:
    """Return the nearest path that leads to a value whose logical axes are given."""
    reached = itertools.islice(reach([path], step, lambda path: path.value), _MOST_STEPS)
    return next((path for path in reached if path.value in given), None)


def _before(path: _Path) -> Iterator[_Path]:
    value = path.value
    owner = value.owner
    if isinstance(owner, ir.Block):
        loop = owner.owner.operation
        if loop.name != _LOOP:
            return
        number = ir.BlockArgument(value).arg_number
        carried = returned(owner)[number]
        if carried == value or loop.regions[0].blocks[0] == owner:
            yield replace(path, value=loop.operands[number])
        else:
            yield replace(path, value=carried)
        return
    operation = owner.operation
    if operation.name == _LOOP:
        carried = returned(loop_body(operation))[ir.OpResult(value).result_number]
        yield replace(path, value=carried)
        return
    if operation.name in _ENDS or RULE not in operation.attributes:
        return
    count = len(operation.operands)
    operands = range(count)
    if operation.name == _UPDATE:
        operands = range(1, 2)
    after = count + ir.OpResult(value).result_number
    for number in operands:
        operand = operation.operands[number]
        if isinstance(operand.type, ir.RankedTensorType) and len(operand.type.shape):
            yield _step(operation, after, number, path, operand)


def _row(operation: ir.Operation) -> Opcode:
    """Return the rules of the operation of HLO with this name."""
    own = operation.name.removeprefix("stablehlo.").replace("_", "-")
    return TABLE["copy" if operation.name == _CONSTRAINT else own]


def _moved(value: ir.Value) -> Iterator[ir.Value]:
    """Yield the values that have elements of a value, also in each iteration of a loop."""
    for use in value.uses:
        operation, number = use.owner.operation, use.operand_number
        row = _row(operation)
        if operation.name == _LOOP:
            body = loop_body(operation)
            if returned(body)[number] == body.arguments[number]:
                yield body.arguments[number]
        elif row.does in MOVES and number in range(len(operation.operands))[row.data]:
            yield operation.results[0]


def _elementwise(value: ir.Value) -> Iterator[ir.Value]:
    """Yield the values of whose elements those of a value are made, also in other iterations of its loop."""
    if isinstance(value.owner, ir.Block):
        operation, number = value.owner.owner.operation, ir.BlockArgument(value).arg_number
    else:
        operation, number = value.owner.operation, ir.OpResult(value).result_number
        if (row := _row(operation)).does in ELEMENTWISE | MOVES:
            yield from list(operation.operands)[row.data]
    if operation.name == _LOOP:
        yield returned(loop_body(operation))[number]


def _after(path: _Path) -> Iterator[_Path]:
    for use in path.value.uses:
        operation = use.owner.operation
        parent = operation.parent
        if operation.name == "stablehlo.return" and parent is not None and parent.name == _LOOP:
            yield replace(path, value=operation.block.arguments[use.operand_number])
        elif operation.name not in _ENDS and RULE in operation.attributes and len(operation.results) == 1:
            after = len(operation.operands)
            yield _step(operation, use.operand_number, after, path, operation.results[0])


def loop_body(operation: ir.Operation) -> ir.Block:
    """Return the block of the body of a loop."""
    return operation.regions[1].blocks[0]


def returned(block: ir.Block) -> Any:
    """Return the values that a block returns."""
    return block.operations[len(block.operations) - 1].operation.operands


def _runs(operation: ir.Operation) -> int:
    """Return how often an operation runs at least."""
    runs = 1
    parent = operation.parent
    while parent is not None and parent.name != "func.func":
        current = parent.operation if hasattr(parent, "operation") else parent
        if current.name == _LOOP:
            runs *= _trips(current)
        elif current.name in ("stablehlo.case", "stablehlo.if"):
            return 0
        parent = current.parent
    return runs


def _trips(loop: ir.Operation) -> int:
    """Return the iterations of a loop that counts from a constant to a constant; 1 if it is another one."""
    compared = returned(loop.regions[0].blocks[0])[0].owner
    operation = compared.operation if hasattr(compared, "operation") else None
    if (
        operation is None
        or operation.name != "stablehlo.compare"
        or "LT" not in str(operation.attributes["comparison_direction"])
    ):
        return 1
    counter, limit = operation.operands
    if not isinstance(counter.owner, ir.Block):
        return 1
    first = _constant(loop.operands[counter.arg_number])
    last = _constant(limit)
    if last is None and isinstance(limit.owner, ir.Block):
        last = _constant(loop.operands[limit.arg_number])
    return 1 if first is None or last is None else max(1, last - first)


def _constant(value: ir.Value) -> int | None:
    owner = value.owner
    if isinstance(owner, ir.Block):
        return None
    operation = owner.operation
    if operation.name != "stablehlo.constant":
        return None
    elements = ir.DenseElementsAttr(operation.attributes["value"])
    try:
        return int(ir.DenseIntElementsAttr(elements)[0])
    except (ValueError, TypeError, IndexError):
        return None
