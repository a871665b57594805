"""Read the `sdy` shardings of values and operations of an MLIR module."""

import functools
import re
from collections.abc import Sequence
from typing import Any

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from inspector.records.snapshot import Spec
from inspector.tracing.mlir.locations import cached_by_attribute

SHARDING = "sdy.sharding"
# The operation of a `shard_map`.
MANUAL = "sdy.manual_computation"

# Whole mesh axes, in any order.
Axes = frozenset[str]

# A mesh axis, or a part of one: its name, and (pre-size, size) of the part.
Axis = tuple[str, tuple[int, int] | None]


def sharding_of(value: ir.Value) -> sdy.TensorShardingAttr | None:
    """Return the TensorShardingAttr of a value, or None if it is replicated."""
    owner = value.owner
    if not isinstance(owner, ir.Block):
        return result_shardings(owner.operation)[ir.OpResult(value).result_number]
    parent = owner.owner.operation
    name, number = parent.name, ir.BlockArgument(value).arg_number
    if name == "func.func":
        return argument_sharding(parent, number)
    if name == MANUAL:
        return _inside_manual(parent.attributes["in_shardings"], manual_axes(parent))[number]
    return result_shardings(parent)[number] if name == "stablehlo.while" else None


def has_axis(value: ir.Value, axis: str) -> bool:
    """Return whether a mesh axis, or a part of it, shards a value."""
    sharding = sharding_of(value)
    return sharding is not None and any(
        axis == name for axes in axes_of_dimensions(sharding) for name, _ in axes
    )


def rank_of(kind: ir.Type) -> int | None:
    """Return the number of dimensions of a type; None for one that is not a tensor, such as a token."""
    try:
        return int(ir.RankedTensorType(kind).rank)
    except ValueError:
        return None


def manual_axes(operation: ir.Operation) -> tuple[str, ...]:
    """Return the mesh axes of an `sdy.manual_computation` over which each device has its own values."""
    return _axis_names(str(operation.attributes["manual_axes"]))


@cached_by_attribute(4096)
def _inside_manual(attribute: ir.Attribute, manual: tuple[str, ...]) -> tuple[Any, ...]:
    """Return the shardings of a manual computation's arguments over the other mesh axes."""
    inside = []
    for sharding in _per_value(attribute):
        axes = [
            [axis for axis in dimension if axis[0] not in manual]
            for dimension in axes_of_dimensions(sharding)
        ]
        inside.append(tensor_sharding(sharding.mesh_or_ref, axes))
    return tuple(inside)


def result_shardings(operation: ir.Operation) -> Sequence[Any]:
    """Return the sharding of each result; None for a result without one."""
    attributes, name = operation.attributes, operation.name
    if name.startswith("sdy."):
        if "out_sharding" in attributes:
            return [sdy.TensorShardingAttr(attributes["out_sharding"])]
        if "out_shardings" in attributes:
            return _per_value(attributes["out_shardings"])
        if name in ("sdy.sharding_constraint", "sdy.reshard"):
            return [sdy.TensorShardingAttr(attributes["sharding"])]
    if SHARDING not in attributes:
        return [None] * len(operation.results)
    sharding = attributes[SHARDING]
    if sdy.TensorShardingPerValueAttr.isinstance(sharding):
        return _per_value(sharding)
    return [sdy.TensorShardingAttr(sharding)] * len(operation.results)


@cached_by_attribute(4096)
def axes_of_dimensions(sharding: sdy.TensorShardingAttr) -> tuple[tuple[Axis, ...], ...]:
    """Return for each dimension its mesh axes, major first; a sub-axis has (pre-size, size)."""
    return tuple(
        tuple(axis_of(sdy.AxisRefAttr(axis)) for axis in dimension.axes)
        for dimension in map(sdy.DimensionShardingAttr, sharding.dimension_shardings)
    )


@cached_by_attribute(4096)
def closed_dimensions(sharding: sdy.TensorShardingAttr) -> tuple[bool, ...]:
    """Return for each dimension whether propagation may not add mesh axes."""
    dimensions = map(sdy.DimensionShardingAttr, sharding.dimension_shardings)
    return tuple(dimension.is_closed for dimension in dimensions)


def whole_axes(sharding: sdy.TensorShardingAttr | None) -> Axes | None:
    """Return the mesh axes of a sharding; None if one is only a part of an axis."""
    if sharding is None:
        return frozenset()
    axes = [axis for dimension in axes_of_dimensions(sharding) for axis in dimension]
    if any(part is not None for _, part in axes):
        return None
    return frozenset(name for name, _ in axes)


def unreduced_axes(sharding: sdy.TensorShardingAttr) -> tuple[str, ...]:
    """Return the mesh axes on which devices hold partial sums of a value."""
    return tuple(axis_of(sdy.AxisRefAttr(axis))[0] for axis in sharding.unreduced_axes)


def spec_of(axes: Sequence[Sequence[Axis]]) -> Spec:
    """Return the mesh axes of dimensions as a PartitionSpec.

    A part of an axis is written as Shardy does: `model:(2)4` for the 4 parts of each half of `model`.
    """
    return tuple(
        tuple(name if part is None else f"{name}:({part[0]}){part[1]}" for name, part in axis) or None
        for axis in axes
    )


@cached_by_attribute(4096)
def _per_value(attribute: ir.Attribute) -> tuple[Any, ...]:
    shardings = sdy.TensorShardingPerValueAttr(attribute).shardings
    return tuple(map(sdy.TensorShardingAttr, shardings))


def argument_sharding(function: ir.Operation, number: int) -> sdy.TensorShardingAttr | None:
    """Return the TensorShardingAttr of an argument of a function, or None without one."""
    attributes = function.attributes
    return _of_arguments(attributes["arg_attrs"])[number] if "arg_attrs" in attributes else None


@cached_by_attribute(64)
def _of_arguments(attributes: ir.Attribute) -> tuple[Any, ...]:
    return tuple(
        sdy.TensorShardingAttr(named[SHARDING]) if SHARDING in named else None
        for named in map(ir.DictAttr, ir.ArrayAttr(attributes))
    )


def axis_of(axis: sdy.AxisRefAttr) -> Axis:
    info = axis.sub_axis_info
    if info is None:
        return axis.name, None
    part = sdy.SubAxisInfoAttr(info)
    return axis.name, (part.pre_size, part.size)


_AXIS_NAME = re.compile(r'"((?:[^"\\]|\\.)*)"')


@functools.lru_cache(maxsize=1024)
def _axis_names(text: str) -> tuple[str, ...]:
    return tuple(_AXIS_NAME.findall(text))


def tensor_sharding(
    mesh: ir.Attribute | str, dimensions: Sequence[Sequence[Axis]], closed: Sequence[bool] | None = None
) -> sdy.TensorShardingAttr:
    """Return a TensorShardingAttr from the mesh axes of each dimension.

    Args:
      mesh: the mesh, or the name of one.
      closed: whether propagation may not add axes to a dimension. None closes all dimensions.
    """
    closed = closed or (True,) * len(dimensions)
    return sdy.TensorShardingAttr.get(
        mesh,
        [
            sdy.DimensionShardingAttr.get([axis_ref(axis) for axis in axes], is_closed=is_closed)
            for axes, is_closed in zip(dimensions, closed, strict=True)
        ],
    )


def axis_ref(axis: Axis) -> sdy.AxisRefAttr:
    """Return a mesh axis, or a part of one, as an AxisRefAttr."""
    name, part = axis
    return sdy.AxisRefAttr.get(name, sdy.SubAxisInfoAttr.get(*part) if part else None)
