"""Read the `sdy` shardings of values and operations of an MLIR module."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

SHARDING = "sdy.sharding"

# A mesh axis, or a part of one: its name, and (pre-size, size) of the part.
Axis = tuple[str, tuple[int, int] | None]


def sharding_of(value: Any) -> Any:
    """Return the TensorShardingAttr of a value, or None if it has none (replicated)."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        parent = owner.owner
        name = parent.operation.name if hasattr(parent, "operation") else parent.name
        number = ir.BlockArgument(value).arg_number
        if name == "func.func":
            return argument_shardings(parent, number + 1)[number]
        if name == "stablehlo.while":
            return result_shardings(parent)[number]
        if name == "sdy.manual_computation":
            return None
        return None
    operation = owner.operation if hasattr(owner, "operation") else owner
    return result_shardings(operation)[ir.OpResult(value).result_number]


def result_shardings(operation: Any) -> list[Any]:
    """Return the sharding of each result; None for a result without one."""
    attributes = operation.attributes
    count = len(operation.results)
    if "out_sharding" in attributes:
        return [sdy.TensorShardingAttr(attributes["out_sharding"])]
    if "out_shardings" in attributes:
        return _per_value(attributes["out_shardings"])
    if operation.name in ("sdy.sharding_constraint", "sdy.reshard"):
        return [sdy.TensorShardingAttr(attributes["sharding"])]
    if SHARDING not in attributes:
        return [None] * count
    found = attributes[SHARDING]
    if sdy.TensorShardingPerValueAttr.isinstance(found):
        return _per_value(found)
    return [sdy.TensorShardingAttr(found)] * count


def axes_of_dimensions(sharding: Any) -> tuple[tuple[Axis, ...], ...]:
    """Return for each dimension its mesh axes, major first; a sub-axis has (pre-size, size)."""
    return tuple(tuple(axis_of(axis) for axis in _axes(each)) for each in _dimensions(sharding))


def _per_value(attribute: Any) -> list[Any]:
    found = sdy.TensorShardingPerValueAttr(attribute)
    return [sdy.TensorShardingAttr(each) for each in found.shardings]


def argument_shardings(function: Any, count: int) -> list[Any]:
    attributes = function.attributes
    if "arg_attrs" not in attributes:
        return [None] * count
    listed = []
    for each in ir.ArrayAttr(attributes["arg_attrs"]):
        named = ir.DictAttr(each)
        listed.append(sdy.TensorShardingAttr(named[SHARDING]) if SHARDING in named else None)
    return listed


def _dimensions(sharding: Any) -> list[Any]:
    return [sdy.DimensionShardingAttr(each) for each in sharding.dimension_shardings]


def _axes(dimension: Any) -> list[Any]:
    return [sdy.AxisRefAttr(each) for each in dimension.axes]


def axis_of(axis: Any) -> Axis:
    info = axis.sub_axis_info
    if info is None:
        return axis.name, None
    part = sdy.SubAxisInfoAttr(info)
    return axis.name, (part.pre_size, part.size)


@functools.lru_cache(maxsize=4096)
def ways_of_dimensions(sharding: Any, mesh: tuple[tuple[str, int], ...]) -> tuple[int, ...]:
    sizes = dict(mesh)
    ways = []
    for dimension in _dimensions(sharding):
        parts = [axis_of(axis) for axis in _axes(dimension)]
        ways.append(math.prod(part[1] if part else sizes[name] for name, part in parts))
    return tuple(ways)


def collective_axes(operation: Any) -> Iterator[tuple[Axis, ...]]:
    """Yield the mesh axes of each collective of an `sdy` operation, in group order.

    Python has no class for these attributes, such as `#sdy<list_of_axis_ref_lists[{"x"}, {"y":(1)2}]>`.
    """
    attributes = operation.attributes
    key = next((one for one in _AXES_KEYS if one in attributes), "params")
    if key == "reduction_axes":
        yield from _one_dimension_each(operation, _parsed_axes(str(attributes[key])))
        return
    lists = [_parsed_axes(found) for found in _BRACES.findall(str(attributes[key]))]
    if key == "params":
        yield from lists
    else:
        yield tuple(axis for each in lists for axis in each)


def _one_dimension_each(operation: Any, axes: tuple[Axis, ...]) -> Iterator[tuple[Axis, ...]]:
    """Yield the axes of an all-reduce by the dimension that they shard in the operand of its sum.

    XLA's partitioner reduces over one dimension after the other.
    """
    rest = list(axes)
    owner = operation.operands[0].owner
    if not isinstance(owner, ir.Block):
        for value in owner.operation.operands:
            found = sharding_of(value)
            for dimension in axes_of_dimensions(found) if found is not None else ():
                together = tuple(axis for axis in dimension if axis in rest)
                if together:
                    yield together
                    rest = [axis for axis in rest if axis not in together]
    if rest:
        yield tuple(rest)


_AXES_KEYS = ("reduction_axes", "gathering_axes", "reduce_scatter_axes", "axes")
_BRACES = re.compile(r"\{([^{}]*)\}")
_AXIS = re.compile(r'"((?:[^"\\]|\\.)*)"(?::\((\d+)\)(\d+))?')


@functools.lru_cache(maxsize=1024)
def _parsed_axes(text: str) -> tuple[Axis, ...]:
    return tuple(
        (name, (int(before), int(size)) if size else None)
        for name, before, size in _AXIS.findall(text)
    )
