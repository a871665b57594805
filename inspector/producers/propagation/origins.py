"""Where the sharding behind a collective comes from.

With its debug option, Shardy notes at each value which source gave it each mesh axis: an argument or a
result of the program, or a sharding constraint. An all-reduce sums over a dimension whose shards came from
such a source; any other collective moves shards that came from one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxlib.mlir import ir

from inspector.core.rules import Rule, partition_spec
from inspector.core.snapshot import Origin
from inspector.producers.propagation.locations import described
from inspector.producers.propagation.shardings import axes_of_dimensions, sharding_of

ORIGINS = "sdy.sharding_origins"
NAME = "sdy.sharding_origin_name"
LOGICAL_AXES = "mhlo.logical_axes"  # a dialect prefix that every module of JAX knows

_ARGUMENT = re.compile(r"(input|output): (\d+)")
_MOST_STEPS = 12  # operations without a note, followed backwards
_SUMS = frozenset({"sdy.all_reduce", "sdy.reduce_scatter"})


# The logical axis of each dimension; None for a dimension without one.
LogicalAxes = tuple[str | None, ...]


@dataclass(frozen=True)
class Constraint:
    """A sharding constraint: its `file.py:31`, and its logical axes if the module has them."""

    place: str
    logical_axes: LogicalAxes


@dataclass(frozen=True)
class Sources:
    """The sources of shardings in one program.

    Attributes:
      inputs, outputs: paths of the flattened arguments and results.
      constraints: each sharding constraint, by the name that Shardy gave it.
      logical_axes: names of the dimensions of each argument and result by its path. Empty if the module was
        lowered with mesh axes.
      rules: the layout's rules, which map logical axes to mesh axes.
    """

    inputs: Sequence[str]
    outputs: Sequence[str]
    constraints: Mapping[str, Constraint]
    logical_axes: Mapping[str, LogicalAxes]
    rules: Sequence[Rule]

    def origin(self, axis: str, source: str) -> Origin:
        """Return the origin of a mesh axis, with the rule that put it there."""
        constraint = self.constraints.get(source)
        path = self.named(source)
        names = constraint.logical_axes if constraint else self.logical_axes.get(path, ())
        return Origin(axis, path, self._rule(names, axis))

    def _rule(self, names: LogicalAxes, axis: str) -> str | None:
        if not names:
            return None
        for name, axes in zip(names, partition_spec(names, self.rules), strict=True):
            if axes and axis in axes:
                return f"{name} → {' + '.join(axes)}"
        return None

    def named(self, source: str) -> str:
        """Return a source as a path, or as `constraint file.py:31`."""
        argument = _ARGUMENT.fullmatch(source)
        if argument:
            paths = self.inputs if argument[1] == "input" else self.outputs
            place = int(argument[2])
            return paths[place] if place < len(paths) else source
        constraint = self.constraints.get(source)
        return f"constraint {constraint.place if constraint else source}"


def constraints_of(module: Any) -> dict[str, Constraint]:
    """Return each named sharding constraint of a module."""
    found: dict[str, Constraint] = {}

    def visit(operation: Any) -> Any:
        if operation.name == "sdy.sharding_constraint" and NAME in operation.attributes:
            name = ir.StringAttr(operation.attributes[NAME]).value
            _, file, line = described(operation.location)
            place = f"{file.rpartition('/')[2]}:{line}" if file else name
            found[name] = Constraint(place, noted_axes(operation))
        return ir.WalkResult.ADVANCE

    module.walk(visit)
    return found


def note_axes(operation: Any, names: LogicalAxes) -> None:
    """Write logical axes at an operation, before they are replaced by mesh axes."""
    text = json.dumps(names)
    operation.attributes[LOGICAL_AXES] = ir.StringAttr.get(text)


def noted_axes(operation: Any) -> LogicalAxes:
    """Return the logical axes that `note_axes` wrote, or () if there are none."""
    if LOGICAL_AXES not in operation.attributes:
        return ()
    return tuple(json.loads(ir.StringAttr(operation.attributes[LOGICAL_AXES]).value))


def origins_of(operation: Any, axes: Sequence[str], sources: Sources) -> tuple[Origin, ...]:
    """Return where the sharding over each of these mesh axes came from, each source once."""
    found: dict[Origin, None] = {}
    for value in _values(operation):
        for axis in axes:
            source = _source(value, axis)
            if source is not None:
                found.setdefault(sources.origin(axis, source))
    return tuple(found)


def _values(operation: Any) -> Iterator[Any]:
    """Yield the values whose sharding made the collective necessary."""
    operand = operation.operands[0]
    if operation.name not in _SUMS or isinstance(operand.owner, ir.Block):
        yield operand
        return
    yield from operand.owner.operation.operands


def _source(value: Any, axis: str) -> str | None:
    """Return the note about a mesh axis at a value, or at the value that it is made from."""
    waiting, seen = [value], 0
    while waiting and seen < _MOST_STEPS:
        value, seen = waiting.pop(0), seen + 1
        sharding = sharding_of(value)
        if sharding is None or all(
            axis != name for each in axes_of_dimensions(sharding) for name, _ in each
        ):
            continue
        note = _note(value, axis)
        if note is not None and note != "self":
            return note
        waiting += _made_from(value)
    return None


def _made_from(value: Any) -> list[Any]:
    """Return the operands of the operation that makes a value; of a loop's argument its start value."""
    owner = value.owner
    if not isinstance(owner, ir.Block):
        return list(owner.operation.operands)
    parent = owner.owner
    operation = parent.operation if hasattr(parent, "operation") else parent
    number = ir.BlockArgument(value).arg_number
    looped = operation.name in ("stablehlo.while", "sdy.manual_computation")
    return [operation.operands[number]] if looped else []


def _note(value: Any, axis: str) -> str | None:
    owner = value.owner
    if isinstance(owner, ir.Block):
        parent = owner.owner
        operation = parent.operation if hasattr(parent, "operation") else parent
        number = ir.BlockArgument(value).arg_number
        if operation.name != "func.func" or "arg_attrs" not in operation.attributes:
            return _named(operation, axis, number)
        named = ir.DictAttr(list(ir.ArrayAttr(operation.attributes["arg_attrs"]))[number])
        note = _text(named[ORIGINS], axis) if ORIGINS in named else None
        return f"input: {number}" if note == "self" else note
    operation = owner.operation
    return _named(operation, axis, ir.OpResult(value).result_number)


def _named(operation: Any, axis: str, number: int) -> str | None:
    if ORIGINS not in operation.attributes:
        return None
    notes = operation.attributes[ORIGINS]
    if isinstance(notes, ir.ArrayAttr):
        listed = list(ir.ArrayAttr(notes))
        notes = listed[number] if number < len(listed) else None
    note = _text(notes, axis) if notes is not None else None
    if note == "self" and NAME in operation.attributes:
        return ir.StringAttr(operation.attributes[NAME]).value
    return note


def _text(notes: Any, axis: str) -> str | None:
    named = ir.DictAttr(notes)
    return ir.StringAttr(named[axis]).value if axis in named else None
