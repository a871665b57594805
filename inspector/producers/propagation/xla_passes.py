"""Passes of XLA that follow its partitioner and change how much is sent, for some kinds of machines.

Compilers for TPUs and GPUs add partial sums before they reduce them (`AllReduceReassociate`). That for GPUs
also makes a reduce-scatter of each all-reduce of which a device keeps only a slice (`ReduceScatterCreator`);
that for TPUs decides for each. TPUs multiply matrices of float32 as bfloat16 unless the program asks for a
higher precision, so their compiler moves such operands as bfloat16. The compiler for CPUs does none of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from inspector.machines.hardware import Kind
from inspector.producers.propagation.shardings import (
    SHARDING,
    Axis,
    axis_ref,
    collective_axes,
    result_shardings,
    sharding_of,
    sliced_axes,
)
from inspector.producers.propagation.walk import operations

_ALL_REDUCE = "sdy.all_reduce"
# Attributes that are equal in two all-reduces which can be one.
_ALIKE = ("reduction_axes", "out_sharding")
# They move elements and change none, so that these can be narrowed before. With their attributes.
_MOVES = {
    "sdy.all_gather": ("gathering_axes", "out_sharding"),
    "sdy.all_to_all": ("params", "out_sharding"),
    "sdy.collective_permute": ("out_sharding",),
}
# Operations that are changed after the sums, by the kind of machine.
_CHANGED = {"gpu": ("sdy.all_slice",), "tpu": tuple(_MOVES)}
_PRODUCTS = ("stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution")
_SAME_ELEMENTS = ("stablehlo.reshape", "stablehlo.transpose", "sdy.all_slice", *_MOVES)


def run(module: Any, kind: Kind | None) -> None:
    """Change a partitioned module as the compiler for a kind of machine does.

    kind: None for emulated devices and unknown machines, for which nothing is changed.
    """
    if kind is None:
        return
    with module.context, ir.Location.unknown():
        sums, others = [], []
        for operation in operations(module):
            name = operation.name
            if name == "stablehlo.add":
                sums.append(operation)
            elif name in _CHANGED[kind]:
                others.append(operation)
        for each in sums:
            _reassociate(each)
        change = _scatter if kind == "gpu" else _narrow
        for each in others:
            change(each)


def _reassociate(addition: Any) -> None:
    """Replace the sum of two all-reduces, which nothing else uses, by the all-reduce of a sum."""
    one, other = (_only_all_reduce(value) for value in addition.operands)
    if one is None or other is None or not _alike(one, other):
        return
    result = addition.results[0]
    uses = [(use.owner, use.operand_number) for use in result.uses]
    merged = ir.Operation.create(
        _ALL_REDUCE,
        results=[result.type],
        operands=[result],
        attributes={name: one.attributes[name] for name in _ALIKE},
        loc=one.location,
        ip=ir.InsertionPoint.after(addition),
    )
    for owner, place in uses:
        owner.operands[place] = merged.results[0]
    for number, each in enumerate((one, other)):
        addition.operands[number] = each.operands[0]
        each.erase()


def _alike(one: Any, other: Any) -> bool:
    """Return whether two all-reduces have the same mesh axes, all of one dimension, and the same sharding."""
    return all(one.attributes[name] == other.attributes[name] for name in _ALIKE) and all(
        len(list(collective_axes(each))) == 1 for each in (one, other)
    )


def _only_all_reduce(value: Any) -> Any | None:
    """Return the all-reduce of which a value is the result, if the value has one use."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != _ALL_REDUCE or len(list(value.uses)) != 1:
        return None
    return owner.operation


def _scatter(part: Any) -> None:
    """Replace a slice of an all-reduce, which nothing else uses, by a reduce-scatter.

    An all-reduce over more mesh axes than the slice becomes a reduce-scatter over those of the slice, and an
    all-reduce of its result over the others (`AllReduceSplitter`). Not if several dimensions are sliced: XLA
    then keeps the all-reduce.
    """
    reduced = _only_all_reduce(part.operands[0])
    if reduced is None:
        return
    groups = list(collective_axes(reduced))
    parts = [axes for axes in sliced_axes(part) if axes]
    if len(groups) != 1 or len(parts) != 1 or not set(parts[0]) <= set(groups[0]):
        return
    location, point = reduced.location, ir.InsertionPoint(part)
    result = part.results[0]
    sharding = part.attributes["out_sharding"]
    value = ir.Operation.create(
        "sdy.reduce_scatter",
        results=[result.type],
        operands=[reduced.operands[0]],
        attributes={
            "reduce_scatter_axes": part.attributes["slicing_axes"],
            "out_sharding": sharding,
        },
        loc=location,
        ip=point,
    ).results[0]
    rest = [axis for axis in groups[0] if axis not in parts[0]]
    if rest:
        value = ir.Operation.create(
            _ALL_REDUCE,
            results=[result.type],
            operands=[value],
            attributes={"reduction_axes": _axes_attribute(rest), "out_sharding": sharding},
            loc=location,
            ip=point,
        ).results[0]
    result.replace_all_uses_with(value)
    part.erase()
    reduced.erase()


def _narrow(move: Any) -> None:
    """Move float32 as bfloat16 if only matrix products of the default precision read the result."""
    wide = ir.RankedTensorType(move.results[0].type)
    if str(wide.element_type) != "f32" or not _only_in_products(move.results[0]):
        return
    before = move.operands[0]
    sharding = sharding_of(before)
    narrow = ir.RankedTensorType.get(wide.shape, ir.BF16Type.get())
    sent = _convert(
        before,
        ir.RankedTensorType.get(ir.RankedTensorType(before.type).shape, ir.BF16Type.get()),
        sharding,
        move.location,
        ir.InsertionPoint(move),
    )
    moved = ir.Operation.create(
        move.name,
        results=[narrow],
        operands=[sent],
        attributes={name: move.attributes[name] for name in _MOVES[move.name]},
        loc=move.location,
        ip=ir.InsertionPoint(move),
    )
    received = _convert(
        moved.results[0],
        wide,
        result_shardings(move)[0],
        move.location,
        ir.InsertionPoint(move),
    )
    move.results[0].replace_all_uses_with(received)
    move.erase()


def _convert(value: Any, kind: Any, sharding: Any, location: Any, point: Any) -> Any:
    return ir.Operation.create(
        "stablehlo.convert",
        results=[kind],
        operands=[value],
        attributes={}
        if sharding is None
        else {SHARDING: sdy.TensorShardingPerValueAttr.get([sharding])},
        loc=location,
        ip=point,
    ).results[0]


def _only_in_products(value: Any) -> bool:
    """Return whether only matrix products of default precision read a value, perhaps after other moves."""
    readers = [use.owner for use in value.uses]
    return bool(readers) and all(
        _has_default_precision(each)
        if each.name in _PRODUCTS
        else each.name in _SAME_ELEMENTS and _only_in_products(each.results[0])
        for each in readers
    )


def _has_default_precision(product: Any) -> bool:
    attributes = product.attributes
    if "algorithm" in attributes:  # it names the types of the operands
        return False
    if "precision_config" not in attributes:
        return True
    return all("DEFAULT" in str(each) for each in ir.ArrayAttr(attributes["precision_config"]))


def _axes_attribute(axes: Sequence[Axis]) -> Any:
    """Return mesh axes as the attribute of an all-reduce, which has no class in Python."""
    # MLIR writes an axis as `#sdy<axis_ref"data">`, with its own escapes of names.
    written = (str(axis_ref(each)).removeprefix("#sdy<axis_ref")[:-1] for each in axes)
    return ir.Attribute.parse(f"#sdy<axis_ref_list{{{', '.join(written)}}}>")
