"""The activations and gradients of a partitioned program.

A model reports them with `watch`. Of a model that reports none, they are the matrix products, convolutions
and sharding constraints, named by module and operation.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from jax.extend.mlir import ir

from inspector.compiled.op_name import parse_op_name
from inspector.core.snapshot import Group
from inspector.producers.mlir.locations import described
from inspector.producers.partition.history import History, is_mark

_SHOWN = frozenset({
    "stablehlo.dot", "stablehlo.dot_general", "stablehlo.convolution", "sdy.sharding_constraint",
})  # fmt: skip
_GROUPS: dict[str, Group] = {
    "forward": "activation",
    "rematerialised": "activation",
    "backward": "gradient",
}
_MOST = 256  # of a model that reports no values
_NUMBER = re.compile(r"(bf|f|ui|i)(\d+)")
_KINDS = {"bf": "bfloat", "f": "float", "ui": "uint", "i": "int"}


@dataclass(frozen=True)
class Intermediate:
    """A value inside a program: its path and group, its type, and the logical axes of its constraint."""

    path: str
    group: Group
    shape: tuple[int, ...]
    dtype: str
    names: tuple[str | None, ...] | None
    value: ir.Value


def intermediates(history: History) -> Iterator[Intermediate]:
    """Yield the values that the model reports, or its matrix products and sharding constraints."""
    marks = [operation for operation in history.operations if is_mark(operation)]
    if not marks:
        yield from _products(history)
        return
    for mark in marks:
        note = json.loads(ir.StringAttr(mark.attributes["backend_config"]).value)
        group, value = note["path"].partition("/")[0], mark.operands[0]
        names = tuple(note["names"]) if note["names"] else None
        yield Intermediate(note["path"], group, _shape(value), note["dtype"], names, value)


def _products(history: History) -> Iterator[Intermediate]:
    """Yield matrix products, convolutions and sharding constraints of the forward and backward pass.

    Without a backward pass, as in inference, all of them are activations.
    """
    named = [
        (operation, parse_op_name(described(operation.location).name)[0])
        for operation in history.operations
        if operation.name in _SHOWN and not _is_repetition(operation)
    ]
    has_backward = any(name.phase == "backward" for _, name in named)
    otherwise: Group | None = None if has_backward else "activation"
    count: dict[str, int] = {}
    for operation, name in named:
        if len(count) == _MOST:
            return
        group = _GROUPS.get(name.phase, otherwise)
        value = operation.results[0]
        dtype = _dtype(ir.RankedTensorType(value.type).element_type)
        if group is None or dtype is None or not _shape(value):
            continue
        path = "/".join(part for part in (group, name.module, name.primitive) if part)
        count[path] = count.get(path, 0) + 1
        if count[path] > 1:
            path += f"_{count[path]}"
        yield Intermediate(path, group, _shape(value), dtype, None, value)


def _is_repetition(operation: ir.Operation) -> bool:
    """Return whether this constrains a value that is listed elsewhere.

    It does so for a parameter, whose sharding is listed with the parameters, and for the result of the same
    operation of JAX: on explicit axes, JAX constrains every result.
    """
    if operation.name != "sdy.sharding_constraint":
        return False
    owner = operation.operands[0].owner
    if isinstance(owner, ir.Block):
        return bool(owner.owner.operation.name == "func.func")
    return described(owner.location).name == described(operation.location).name


def _shape(value: ir.Value) -> tuple[int, ...]:
    return tuple(ir.RankedTensorType(value.type).shape)


def _dtype(element: ir.Type) -> str | None:
    """Return the name of an element type in NumPy; None for types without one, such as f8E4M3FN."""
    text = str(element)
    match = _NUMBER.fullmatch(text)
    if text == "i1":
        return "bool"
    return f"{_KINDS[match[1]]}{match[2]}" if match and int(match[2]) >= 8 else None
