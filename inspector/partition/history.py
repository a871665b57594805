"""The path on which propagation carried a mesh axis to a value.

With its debug options, Shardy notes at each value the source of each mesh axis, and at each operation the
steps in which it carried an axis from one operand or result to others. A `History` is a copy of the module
with these notes, from before constraints are replaced. Its operations have numbers (`numbers`).
"""

import functools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jax.extend.mlir import ir

from inspector.hlo.op_name import parse_op_name
from inspector.model.built_in.watching import MARK
from inspector.partition.shardings import (
    axes_of_dimensions,
    closed_dimensions,
    has_axis,
    rank_of,
    sharding_of,
)
from inspector.records.snapshot import Direction, Group, PropagationStep
from inspector.tracing.mlir.locations import cached_by_attribute, called_at, described, named_at
from inspector.tracing.mlir.walk import operations

NUMBER = "mhlo.number"  # a dialect prefix that every module of JAX knows
NAME = "sdy.sharding_origin_name"
ORIGINS = "sdy.sharding_origins"
_SELF = "self"
_LOOP = "stablehlo.while"
_MOST_STEPS = 24  # of one path
_MOST_OPERATIONS = 64  # without a note, followed backwards

_STEP = re.compile(r"step-(\d+) = \[((?:\{[^{}]*\}(?:, )?)*)\]")
_EDGE = re.compile(r'\{"((?:[^"\\]|\\.)*)"(?::\(\d+\)\d+)? = (operand|result)-(\d+) -> \[([^\]]*)\]\}')


class OperandPlace(NamedTuple):
    """An operand or a result of an operation: ("operand", 0)."""

    kind: str
    number: int


class Edge(NamedTuple):
    """One step of propagation at an operation: a mesh axis goes from one place to others."""

    step: int
    axis: str
    source: OperandPlace
    targets: frozenset[OperandPlace]


class Site(NamedTuple):
    """An operation next to a value, and the place of the value there.

    There is one list of edges for each carried value of a loop, with this `number`: its operand 0 is the
    start value, operand 1 the value that the body returns, and result 0 the argument of the body and the
    result of the loop.
    """

    operation: ir.Operation
    number: int
    place: OperandPlace

    def edges(self) -> tuple[Edge, ...]:
        """Return the steps of propagation at the operation."""
        attributes = self.operation.attributes
        if self.operation.name != _LOOP:
            key = "sdy.propagation_edges"
            return _parsed(attributes[key]) if key in attributes else ()
        key = "sdy.result_propagation_edges"
        if key not in attributes:
            return ()
        notes = _of_result(self.operation, key, self.number)
        return () if notes is None else _parsed(notes)

    def value_at(self, place: OperandPlace) -> ir.Value:
        """Return the operand or result at another place of the operation.

        For a loop, operand 0 is the initial value, and any other operand is a result of the body.
        """
        if self.operation.name != _LOOP:
            values = self.operation.operands if place.kind == "operand" else self.operation.results
            return values[place.number]
        if place.kind == "result":
            return self.operation.results[self.number]
        if place.number == 0:
            return self.operation.operands[self.number]
        body = self.operation.regions[1].blocks[0].operations
        return body[len(body) - 1].operation.operands[self.number]


@dataclass(frozen=True)
class AxisPath:
    """The source of a mesh axis at a value as Shardy names it, and the steps from there to the value."""

    source: str
    steps: tuple[PropagationStep, ...]


def _place(value: ir.Value) -> str:
    """Return the line of the operation whose result a value is, or its name."""
    owner = value.owner
    operation = owner.owner.operation if isinstance(owner, ir.Block) else owner.operation
    return called_at(operation.location) or str(operation.name)


class History:
    """A copy of a propagated module with the notes of Shardy.

    Args:
      module: a module after propagation, whose operations have numbers. It must not change any more.
    """

    def __init__(self, module: ir.Operation) -> None:
        self.module = module
        self._operations = operations(self.module)
        self._constraints = {
            ir.StringAttr(operation.attributes[NAME]).value: operation
            for operation in self._operations
            if operation.name == "sdy.sharding_constraint" and NAME in operation.attributes
        }
        self._arrived: dict[Any, list[tuple[Edge, Site]]] = {}

    @property
    def operations(self) -> Sequence[Any]:
        """All operations, each before those inside of it."""
        return self._operations

    @functools.cached_property
    def by_number(self) -> dict[int, Any]:
        """The operation with each number. Of one that a pass has copied, the first."""
        by_number: dict[int, Any] = {}
        for operation in self._operations:
            if NUMBER in operation.attributes:
                by_number.setdefault(ir.IntegerAttr(operation.attributes[NUMBER]).value, operation)
        return by_number

    def find(self, value: ir.Value, axis: str) -> AxisPath | None:
        """Return the source of a mesh axis at a value, or at the values it is made from."""
        waiting, seen = [value], 0
        while waiting and seen < _MOST_OPERATIONS:
            value, seen = waiting.pop(0), seen + 1
            if not has_axis(value, axis):
                continue
            source = self._source(value, axis)
            if source is not None:
                if source == _SELF:  # an operation that had the mesh axis before propagation
                    source = _place(value)
                return AxisPath(self._argument(source, axis) or source, self._steps(value, axis))
            waiting += _made_from(value)
        return None

    def _source(self, value: ir.Value, axis: str) -> str | None:
        """Return the note about a mesh axis at a value: `input: 3`, `output: 0` or a constraint's name."""
        owner = value.owner
        if not isinstance(owner, ir.Block):
            return _named(owner.operation, axis, ir.OpResult(value).result_number)
        operation = owner.owner.operation
        number = ir.BlockArgument(value).arg_number
        if operation.name != "func.func":
            return _named(operation, axis, number)
        if "arg_attrs" not in operation.attributes:
            return None
        notes = ir.DictAttr(ir.ArrayAttr(operation.attributes["arg_attrs"])[number])
        note = _text(notes[ORIGINS], axis) if ORIGINS in notes else None
        return f"input: {number}" if note == _SELF else note

    def _argument(self, source: str, axis: str) -> str | None:
        """Return the argument that a constraint repeats: one that has the mesh axis before propagation."""
        if source not in self._constraints:
            return None
        value = self._constraints[source].operands[0]
        owner = value.owner
        if not isinstance(owner, ir.Block) or owner.owner.operation.name != "func.func":
            return None
        return f"input: {ir.BlockArgument(value).arg_number}" if _is_given(value, axis) else None

    def _steps(self, value: ir.Value, axis: str) -> tuple[PropagationStep, ...]:
        """Return the operations that carried a mesh axis to a value, from its source on."""
        steps: list[PropagationStep] = []
        values, before = _aliases(value), None
        while len(steps) < _MOST_STEPS:
            arrivals = [
                (edge, site)
                for alias in values
                for edge, site in self._arrivals(alias)
                if edge.axis == axis and (before is None or edge.step < before)
            ]
            if not arrivals:
                break
            edge, site = min(arrivals, key=lambda arrival: arrival[0].step)
            operation = site.operation.name.partition(".")[2]
            direction = _direction(edge.source, site.place)
            steps.append(PropagationStep(operation, direction, *named_at(site.operation.location)))
            values, before = _aliases(site.value_at(edge.source)), edge.step
        return tuple(reversed(steps))

    def _arrivals(self, value: ir.Value) -> list[tuple[Edge, Site]]:
        """Return the steps that brought a mesh axis to a value, each with its operation."""
        if value not in self._arrived:
            self._arrived[value] = [
                (edge, site) for site in _sites(value) for edge in site.edges() if site.place in edge.targets
            ]
        return self._arrived[value]


def erase_marks(ops: Iterable[Any]) -> None:
    """Remove the marks of `watch` among these operations."""
    for operation in ops:
        if is_mark(operation):
            operation.erase()


def is_mark(operation: ir.Operation) -> bool:
    """Return whether an operation is a mark of `watch`."""
    return operation.name == "stablehlo.custom_call" and (
        ir.StringAttr(operation.attributes["call_target_name"]).value == MARK
    )


def _is_given(value: ir.Value, axis: str) -> bool:
    """Return whether a dimension that is sharded over this mesh axis is closed.

    Propagation adds no axis to a closed dimension.
    """
    sharding = sharding_of(value)
    if sharding is None:
        return False
    dimensions = zip(closed_dimensions(sharding), axes_of_dimensions(sharding), strict=True)
    return any(closed and any(axis == name for name, _ in axes) for closed, axes in dimensions)


def _made_from(value: ir.Value) -> list[ir.Value]:
    """Return the operands of the operation that makes a value; of a loop's argument its start value."""
    owner = value.owner
    if not isinstance(owner, ir.Block):
        return list(owner.operation.operands)
    operation = owner.owner.operation
    looped = operation.name in (_LOOP, "sdy.manual_computation")
    return [operation.operands[ir.BlockArgument(value).arg_number]] if looped else []


def _named(operation: ir.Operation, axis: str, number: int) -> str | None:
    """Return the note of an operation about a mesh axis at one of its results."""
    attributes = operation.attributes
    if "sdy.result_sharding_origins" in attributes:
        notes = _of_result(operation, "sdy.result_sharding_origins", number)
        return None if notes is None else _text(notes, axis)
    if ORIGINS not in attributes:
        return None
    notes = attributes[ORIGINS]
    if isinstance(notes, ir.ArrayAttr):
        listed = list(ir.ArrayAttr(notes))
        notes = listed[number] if number < len(listed) else None
    note = None if notes is None else _text(notes, axis)
    if note == _SELF and NAME in attributes:
        return ir.StringAttr(attributes[NAME]).value
    return note


def _of_result(operation: ir.Operation, key: str, number: int) -> Any | None:
    """Return the note of a loop about one of its results. Shardy makes no note for scalars."""
    ranks = [rank_of(result.type) for result in operation.results]
    listed = list(ir.ArrayAttr(operation.attributes[key]))
    noted = [place for place, rank in enumerate(ranks) if rank]
    if number not in noted or len(listed) != len(noted):
        return None
    return listed[noted.index(number)]


def _text(notes: ir.Attribute, axis: str) -> str | None:
    named = ir.DictAttr(notes)
    return ir.StringAttr(named[axis]).value if axis in named else None


def _sites(value: ir.Value) -> Iterator[Site]:
    owner = value.owner
    if not isinstance(owner, ir.Block):
        number = ir.OpResult(value).result_number
        in_loop = owner.operation.name == _LOOP
        yield Site(owner.operation, number, OperandPlace("result", 0 if in_loop else number))
    for use in value.uses:
        user, number = use.owner.operation, use.operand_number
        if user.name == _LOOP:
            yield Site(user, number, OperandPlace("operand", 0))
        elif (
            user.name == "stablehlo.return"
            and (loop := user.parent) is not None
            and loop.operation.name == _LOOP
        ):
            yield Site(loop.operation, number, OperandPlace("operand", 1))
        else:
            yield Site(user, number, OperandPlace("operand", number))


def _aliases(value: ir.Value) -> list[ir.Value]:
    """Return all values with the same sharding: a loop's result, and the arguments of its regions."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        operation, number = owner.owner.operation, ir.BlockArgument(value).arg_number
    else:
        operation, number = owner.operation, ir.OpResult(value).result_number
    if operation.name != _LOOP:
        return [value]
    arguments = [region.blocks[0].arguments[number] for region in operation.regions]
    return [operation.results[number], *arguments]


@cached_by_attribute(4096)
def _parsed(notes: ir.Attribute) -> tuple[Edge, ...]:
    return tuple(
        Edge(int(step), axis, OperandPlace(kind, int(number)), frozenset(_targets(targets)))
        for step, edges in _STEP.findall(str(notes))
        for axis, kind, number, targets in _EDGE.findall(edges)
    )


def _targets(text: str) -> Iterator[OperandPlace]:
    for place in text.split(", "):
        kind, _, number = place.partition("-")
        yield OperandPlace(kind, int(number))


def _direction(source: OperandPlace, target: OperandPlace) -> Direction:
    if source.kind == target.kind:
        return "across"
    return "forward" if source.kind == "operand" else "backward"


# The activations and gradients of a partitioned program.
#
# A model reports them with `watch`. Of a model that reports none, they are the matrix products, convolutions
# and sharding constraints, named by module and operation.


_SHOWN = frozenset({
    "stablehlo.dot", "stablehlo.dot_general", "stablehlo.convolution", "sdy.sharding_constraint",
})  # fmt: skip
_GROUPS: dict[str, Group] = {"forward": "activation", "rematerialised": "activation", "backward": "gradient"}
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
