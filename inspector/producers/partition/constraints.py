"""Sharding constraints of a lowered program, by source line or by name, and their removal.

A constraint is identified by its position among the constraints of the program, which copies keep.
"""

import json
from collections.abc import Collection, Mapping
from typing import TypeAlias

from jax.extend.mlir import ir

from inspector.core.grouping import by_key
from inspector.producers.mlir.locations import Line, lines_at, named_at
from inspector.producers.mlir.walk import operations
from inspector.producers.partition.history import is_mark

_CONSTRAINT = "sdy.sharding_constraint"
_ACTIVATION = "activation/"  # of the path of a value that a model watches after it constrains it
_Call: TypeAlias = "tuple[Line | None, Line | None]"


def positions_by_line(module: ir.Operation) -> Mapping[str, list[int]]:
    """Return the positions of the constraints of each source line: `layer.py:60`."""
    places = ((named_at(constraint.location)[1], n) for n, constraint in enumerate(_constraints(module)))
    return by_key((place, n) for place, n in places if place)


def positions_by_name(module: ir.Operation) -> Mapping[str, list[int]]:
    """Return the positions of the constraints of each name of a built-in model, in both passes.

    A built-in model marks each value that it constrains in `constrained`, so the mark has the name. The
    constraints of the backward pass have the source lines of the forward pass: `constrained` and its call.
    The result is empty if the name of a constraint in `constrained` is unknown or ambiguous.
    """
    constraints = _constraints(module)
    names: dict[_Call, set[str]] = {}
    for mark in filter(is_mark, operations(module)):
        owner = mark.operands[0].owner
        if isinstance(owner, ir.Block) or owner.operation.name != _CONSTRAINT:
            continue
        path = json.loads(ir.StringAttr(mark.attributes["backend_config"]).value)["path"]
        if path.startswith(_ACTIVATION):
            names.setdefault(_call(owner.operation), set()).add(path.rpartition("/")[2])
    inside = {line for line, _ in names}
    calls = [_call(constraint) for constraint in constraints]
    named = [(names.get(call, set()), n) for n, call in enumerate(calls) if call[0] in inside]
    if any(len(found) != 1 for found, _ in named):
        return {}
    return by_key((name, n) for found, n in named for name in found)


def remove(module: ir.Operation, positions: Collection[int]) -> None:
    """Remove the constraints at these positions from a module's operation."""
    for position, constraint in enumerate(_constraints(module)):
        if position in positions:
            constraint.results[0].replace_all_uses_with(constraint.operands[0])
            constraint.erase()


def _constraints(module: ir.Operation) -> list[ir.Operation]:
    return [op for op in operations(module, inner_first=True) if op.name == _CONSTRAINT]


def _call(constraint: ir.Operation) -> _Call:
    """Return the line of a constraint, and the line that calls the function around it."""
    lines = (*lines_at(constraint.location), None, None)
    return lines[0], lines[1]
