"""Prepare lowered modules, match the operations of two of them, and return intermediate values.

JAX lowers a `shard_map` on a mesh of one device as the operations of its function, without an operation
around them. So operations are matched by name, place in the code and types, and their operands with them.
"""

import difflib
import functools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters import mlir

from inspector.learn.compare_results import differences
from inspector.partition.shardings import MANUAL, SHARDING, result_shardings
from inspector.partition.shardy import inline_calls
from inspector.text.errors import InvalidInput
from inspector.tracing.mlir import walk
from inspector.tracing.mlir.locations import DescribedOperation, described, named_at
from inspector.tracing.mlir.walk import main_function, named_attributes, operations

# They return their operand.
_CONSTRAINTS = frozenset({"sdy.sharding_constraint", "sdy.reshard"})
# Attributes of arguments that let XLA overwrite them. Their values are needed again.
_DONATION = ("tf.aliasing_output", "jax.buffer_donor")
_REDUCE = "stablehlo.reduce"
_COLLECTIVES = tuple(f"stablehlo.{name}" for name in ("all_", "collective_", "reduce_scatter"))
_DOT = "stablehlo.dot_general"


def prepared(written: bytes) -> ir.Module:
    """Return the module with all calls inlined, no donated arguments, and no `jax.debug.print`.

    Raises:
      InvalidInput: the program uses results of Python functions on the host.
    """
    context = mlir.make_ir_context()
    with context, ir.Location.unknown():
        module = ir.Module.parse(written)
        inline_calls(module.operation)
        main = main_function(module.operation)
        if "arg_attrs" in main.attributes:
            main.attributes["arg_attrs"] = ir.ArrayAttr.get(
                [_without(attributes, _DONATION) for attributes in ir.ArrayAttr(main.attributes["arg_attrs"])]
            )
        for operation in operations(main):
            if operation.name != "stablehlo.custom_call":
                continue
            target = ir.StringAttr(operation.attributes["call_target_name"]).value
            if "lapack" in target:
                _load_lapack()
            if "python" not in target:
                continue
            if any(list(result.uses) for result in operation.results):
                raise InvalidInput("it calls a Python function on the host and uses the result")
            operation.erase()
    return module


@functools.cache
def _load_lapack() -> None:
    """Let JAX load LAPACK, which it does when it lowers a function that needs it. XLA crashes without."""
    with jax.default_device(jax.devices("cpu")[0]):
        jax.jit(jnp.linalg.eigvalsh).lower(jax.ShapeDtypeStruct((2, 2), "float32"))


def float_kinds(module: ir.Module) -> list[str]:
    """Return the floating-point types of all values of the module, as MLIR names them."""
    elements = {
        str(_element(ir.RankedTensorType(value.type)))
        for operation in operations(module.operation)
        for value in operation.results
        if isinstance(value.type, ir.RankedTensorType)
    }
    return sorted(name for name in elements if name.startswith(("f", "bf")))


def longest_sum(module: ir.Module) -> int:
    """Return the number of terms of the longest sum of the module, if types show it."""
    return max(map(_terms, operations(module.operation)), default=1)


def _terms(operation: ir.Operation) -> int:
    if operation.name == _REDUCE:
        return _size(operation.operands[0]) // max(_size(operation.results[0]), 1)
    if operation.name != _DOT:
        return 1
    left, right = map(_size, operation.operands)
    # The contracted dimensions are in both operands and not in the result.
    return math.isqrt(left * right // max(_size(operation.results[0]), 1))


def with_rounded_sums(module: ir.Module, sign: int) -> ir.Module:
    """Return a copy whose sums differ by rounding errors of their terms, with the `sign` of the sum before.

    Sums of integers, from zero, are exact: a position that a program counts is the same in any order.
    """
    with module.context, ir.Location.unknown():
        copy = ir.Module.parse(walk.of_module(module))
        for number, operation in enumerate(list(filter(_adds, operations(copy.operation)))):
            kind = ir.RankedTensorType(operation.results[0].type)
            element = kind.element_type
            error, most = differences.sum_error(str(element), _terms(operation))
            with ir.InsertionPoint(operation):
                none, error, least = (
                    stablehlo.constant(ir.DenseElementsAttr.get_splat(kind, ir.FloatAttr.get(element, value)))
                    for value in (0.0, sign**number * error, 1 / most)
                )
                summed = range(1 if operation.name == _REDUCE else 2)
                positive = {place: stablehlo.abs(operation.operands[place]) for place in summed}
                total, terms = _cloned(operation, {}), _cloned(operation, positive)
                # Each is zero if all terms are integers, and their sum is not too large.
                fractions = [stablehlo.floor(stablehlo.multiply(terms, least))]
                for place, value in positive.items():
                    fraction = stablehlo.subtract(value, stablehlo.floor(value))
                    fractions.append(_cloned(operation, {**positive, place: fraction}))
                equal = stablehlo.ComparisonDirectionAttr.get("EQ")
                exact = stablehlo.compare(functools.reduce(stablehlo.add, fractions), none, equal)
                change = stablehlo.select(exact, none, stablehlo.multiply(terms, error))
                changed = stablehlo.add(total, change)
            operation.results[0].replace_all_uses_with(changed)
            operation.erase()
    return copy


def _cloned(operation: ir.Operation, operands: dict[int, ir.Value]) -> ir.Value:
    """Insert the operation with other operands by place, and return its result."""
    clone = operation.clone(ip=ir.InsertionPoint.current)
    for place, operand in operands.items():
        clone.operands[place] = operand
    return clone.results[0]


def _adds(operation: ir.Operation) -> bool:
    """Return whether an operation is a sum of real floating-point numbers."""
    if operation.name not in {_REDUCE, _DOT} or len(operation.results) != 1:
        return False
    inside = [inner.operation.name for region in operation.regions for inner in region.blocks[0].operations]
    is_float = isinstance(ir.RankedTensorType(operation.results[0].type).element_type, ir.FloatType)
    return is_float and inside[:1] in ([], ["stablehlo.add"])


@dataclass(frozen=True)
class ResultMatch:
    """A result of an operation of the sharded module, and the same value of the module of one device.

    Attributes:
      operation: of the sharded module.
      value: its result.
      other: of the other module, None if it is unknown.
    """

    operation: ir.Operation
    value: ir.Value
    other: ir.Value | None

    @property
    def is_shard_map(self) -> bool:
        """Return whether the operation is a whole `shard_map`."""
        return bool(self.operation.name == MANUAL)

    @property
    def computes_blocks(self) -> bool:
        """Return whether it is a `shard_map` without a collective, whose function gets parts of arrays."""
        if not self.is_shard_map:
            return False
        given = [argument.type for argument in self.operation.regions[0].blocks[0].arguments]
        calls = any(inner.name.startswith(_COLLECTIVES) for inner in operations(self.operation))
        return not calls and given != [operand.type for operand in self.operation.operands]

    @property
    def has_other_constants(self) -> bool:
        """Return whether operands of the operation are other constants in the other module."""
        other = None if self.other is None else _owner(self.other)
        if other is None or len(other.operands) != len(self.operation.operands):
            return False
        pairs = zip(self.operation.operands, other.operands, strict=True)
        return any(_constant(value) != _constant(other_value) for value, other_value in pairs)

    @property
    def bytes(self) -> int:
        """Return the bytes of the value, about 4 per element."""
        return 4 * _size(self.value)


def candidates(
    first: ir.Module, second: ir.Module, outputs: Sequence[int], by_order: bool = True
) -> Iterator[ResultMatch]:
    """Yield the results from which some outputs are computed, in the order of the sharded module.

    Args:
      first: the sharded module.
      second: the module of one device.
      outputs: the places of the outputs.
      by_order: also match operations inside of a `shard_map` by their order in one source line. This can be
        wrong, so it serves to explain a difference and not to find one.
    """
    matched = _matched(first, second, by_order)
    needed = _needed(first, outputs)
    for operation in _operations(first):
        if operation not in needed:
            continue
        for value in operation.results:
            if not isinstance(value.type, ir.RankedTensorType):
                continue
            other = matched.get(value)
            if other is not None and str(other.type) != str(value.type):  # of two contexts
                other = None
            if other is not None or operation.name == MANUAL:
                yield ResultMatch(operation, value, other)


def with_results(module: ir.Module, values: Sequence[ir.Value]) -> ir.Module:
    """Return a copy of the module whose `main` also returns these values.

    The result of a `shard_map` gets its own sharding. The compiler chooses that of the others.
    """
    with module.context, ir.Location.unknown():
        main = main_function(module.operation)
        last = _return_of(main)
        before = list(last.operands)
        kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
        attributes = main.attributes.get("res_attrs", None)
        given = (
            [ir.DictAttr.get({}) for _ in before] if attributes is None else list(ir.ArrayAttr(attributes))
        )
        added = [ir.DictAttr.get(_sharding_of(value)) for value in values]
        replaced = _replace_return(last, [*before, *values])
        types = [*kind.results, *(value.type for value in values)]
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(kind.inputs, types))
        main.attributes["res_attrs"] = ir.ArrayAttr.get([*given, *added])
        copy = ir.Module.parse(walk.of_module(module))
        # The module itself stays as it was.
        _replace_return(replaced, before)
        main.attributes["function_type"] = ir.TypeAttr.get(kind)
        if attributes is None:
            del main.attributes["res_attrs"]
        else:
            main.attributes["res_attrs"] = attributes
    return copy


def op_name_of(operation: ir.Operation) -> tuple[str, str | None]:
    """Return JAX's name stack of an operation, and its source line as `train.py:31`."""
    name, place = named_at(operation.location)
    return name or "", place


def _replace_return(last: ir.Operation, values: Sequence[ir.Value]) -> ir.Operation:
    replaced = ir.Operation.create(
        "func.return", operands=list(values), ip=ir.InsertionPoint(last), loc=last.location
    )
    last.erase()
    return replaced


def _sharding_of(value: ir.Value) -> dict[str, ir.Attribute]:
    operation = _owner(value)
    if operation is None or operation.name != MANUAL:
        return {}
    sharding = result_shardings(operation)[ir.OpResult(value).result_number]
    return {} if sharding is None else {SHARDING: sharding}


def _matched(first: ir.Module, second: ir.Module, by_order: bool) -> dict[ir.Value, ir.Value]:
    """Return the values of the second module by the values of the first one that they correspond to."""
    values: dict[ir.Value, ir.Value] = {}
    values.update(zip(_block(first).arguments, _block(second).arguments, strict=False))
    own, others = list(_operations(first)), list(_operations(second))
    tokens, other_tokens = list(map(_token, own)), list(map(_token, others))
    counts, other_counts = Counter(tokens), Counter(other_tokens)
    pairs = []
    matched_others = set()
    matcher = difflib.SequenceMatcher(None, tokens, other_tokens, autojunk=False)
    for start, other_start, length in matcher.get_matching_blocks():
        for step in range(length):
            token = tokens[start + step]
            # Otherwise one of them can be an operation of a `shard_map` in the same line.
            if counts[token] == other_counts[token]:
                pairs.append((own[start + step], others[other_start + step]))
                matched_others.add(other_start + step)
    for operation, other in pairs:
        values.update(zip(operation.results, other.results, strict=True))
    pairs.append((_return_of(main_function(first.operation)), _return_of(main_function(second.operation))))
    for operation, other in pairs:
        if len(operation.operands) == len(other.operands):
            for value, other_value in zip(operation.operands, other.operands, strict=True):
                values.setdefault(_origin(value), _origin(other_value))
    if not by_order:
        return values
    rest = [other for place, other in enumerate(others) if place not in matched_others]
    inside = _inside_shard_maps([operation for operation in own if operation.name == MANUAL], rest)
    for operation in own:
        if operation.name != MANUAL:
            continue
        returned = list(operation.regions[0].blocks[0].operations)[-1].operation
        for result, inner in zip(operation.results, returned.operands, strict=True):
            inner = _origin(inner)
            if result not in values and inner in inside:
                values[result] = inside[inner]
    return values


def _inside_shard_maps(mapped: Sequence[Any], rest: Sequence[Any]) -> dict[Any, Any]:
    """Return the values of one device by the values inside the functions of several `shard_map`.

    Operations of the same name and source line correspond in their order, if both modules have as many.

    Args:
      mapped: the operations of the `shard_map`.
      rest: the operations of the module of one device that correspond to none outside of them.
    """
    groups: dict[Any, tuple[list[Any], list[Any]]] = {}
    bodies = (inner.operation for outer in mapped for inner in outer.regions[0].blocks[0].operations)
    for place, group in enumerate((bodies, rest)):
        for operation in group:
            name, (_, file, line), _ = _token(operation)
            groups.setdefault((name, file, line), ([], []))[place].append(operation)
    values: dict[Any, Any] = {}
    for inner, others in groups.values():
        if len(inner) == len(others):
            for operation, other in zip(inner, others, strict=True):
                values.update(zip(operation.results, other.results, strict=False))
    return values


def _needed(module: ir.Module, outputs: Sequence[int]) -> set[ir.Operation]:
    """Return the operations of `main` from which outputs are computed."""
    operands = _return_of(main_function(module.operation)).operands
    block = _block(module)
    waiting = [operands[place] for place in outputs]
    needed: set[ir.Operation] = set()
    while waiting:
        owner = _owner(waiting.pop())
        if owner is None or owner in needed or owner.block != block:
            continue
        needed.add(owner)
        waiting.extend(owner.operands)
        for inner in operations(owner):
            waiting.extend(inner.operands)
    return needed


def _operations(module: ir.Module) -> Iterator[ir.Operation]:
    """Yield the operations of `main` that compute something."""
    for inner in _block(module).operations:
        operation = inner.operation
        if operation.name not in {"stablehlo.constant", "func.return", *_CONSTRAINTS}:
            yield operation


def _token(operation: ir.Operation) -> tuple[str, DescribedOperation, tuple[str, ...]]:
    types = tuple(str(result.type) for result in operation.results)
    return operation.name, described(operation.location), types


def _constant(value: ir.Value) -> str | None:
    """Return the text of a constant, None for any other value."""
    owner = _owner(value)
    if owner is None or owner.name != "stablehlo.constant":
        return None
    return str(owner.attributes["value"])


def _origin(value: ir.Value) -> ir.Value:
    """Return the value without the sharding constraints on it."""
    while (owner := _owner(value)) is not None and owner.name in _CONSTRAINTS:
        value = owner.operands[0]
    return value


def _owner(value: ir.Value) -> ir.Operation | None:
    """Return the operation of which a value is a result, None for an argument of a block."""
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def _block(module: ir.Module) -> ir.Block:
    return main_function(module.operation).regions[0].blocks[0]


def _return_of(main: ir.Operation) -> ir.Operation:
    return list(main.regions[0].blocks[0].operations)[-1].operation


def _without(attributes: ir.Attribute, names: Iterable[str]) -> ir.DictAttr:
    kept = named_attributes(attributes)
    return ir.DictAttr.get({name: value for name, value in kept.items() if name not in names})


def _element(kind: ir.RankedTensorType) -> ir.Type:
    element = kind.element_type
    if isinstance(element, ir.ComplexType):
        return ir.ComplexType(element).element_type
    return element


def _size(value: ir.Value) -> int:
    return math.prod(ir.RankedTensorType(value.type).shape)
