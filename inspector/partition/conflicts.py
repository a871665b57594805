"""Operations whose operands and results ask for different shardings, and why there is each collective."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jax.extend.mlir import ir

from inspector.partition.history import NAME, History
from inspector.partition.numbers import Purpose
from inspector.partition.origins import Sources, origins_of_value, unique
from inspector.partition.shardings import Axis, axes_of_dimensions, has_axis, rank_of, sharding_of, spec_of
from inspector.records.collectives import OPERATIONS, REDUCTIONS
from inspector.records.snapshot import Collective, Conflict, ConflictSide, Origin
from inspector.tracing.mlir.locations import named_at

# The mesh axes of each dimension of a value.
Axes = tuple[tuple[Axis, ...], ...]
_CONSTRAINT = "sdy.sharding_constraint"


@dataclass(frozen=True)
class OperandSide:
    """An operand or a result of an operation: its mesh axes next to it and in the operation."""

    name: str
    value: ir.Value
    axes: Axes
    used: Axes

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(ir.RankedTensorType(self.value.type).shape)

    def on_device(self, axes: Axes, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape on one device if these mesh axes shard the value."""
        ways = (math.prod(sizes[n] if p is None else p[1] for n, p in axis) for axis in axes)
        return tuple(-(-size // count) for size, count in zip(self.shape, ways, strict=True))


@dataclass(frozen=True)
class Conflicting:
    """One operation of a `History` with a conflict, and the collectives that resolve it."""

    operation: ir.Operation
    sides: tuple[OperandSide, ...]
    collectives: tuple[str, ...]

    @property
    def moved(self) -> tuple[OperandSide, ...]:
        """The operands and results that the operation uses in another sharding than their own."""
        return tuple(side for side in self.sides if side.axes != side.used)


def conflicts_of(
    collectives: Sequence[Collective],
    purposes: Mapping[str, Purpose],
    history: History,
    sizes: Mapping[str, int],
) -> dict[int, Conflicting]:
    """Return the operations for which shards of an operand or result are moved, by their numbers.

    An all-gather leads to the operand that it gathers, or to the result. Other collectives are those of
    sharding constraints, because their text does not say which dimension becomes which.

    Args:
      purposes: for which operation each collective was made, by its name.
      sizes: the size of each mesh axis.
    """
    conflicts: dict[int, Conflicting] = {}
    for collective in collectives:
        purpose = purposes.get(collective.name)
        # A reduction adds partial sums. Any other collective moves shards.
        if purpose is None or collective.op in REDUCTIONS:
            continue
        for number in _numbers(collective, purpose, history):
            operation = history.by_number.get(number)
            # The code calls those in a `shard_map`.
            if operation is None or operation.name.partition(".")[2].replace("_", "-") in OPERATIONS:
                continue
            before = conflicts.get(number) or Conflicting(operation, tuple(_sides(operation)), ())
            if operation.name == _CONSTRAINT:
                sides = _constrained(operation)
            else:
                sides = _gathered(before.sides, collective, purpose, sizes)
            if sides is not None:
                names = (*before.collectives, collective.name)
                conflicts[number] = Conflicting(operation, sides, names)
                break
    return conflicts


def _numbers(collective: Collective, purpose: Purpose, history: History) -> Iterator[int]:
    """Yield the numbers of the operations that can need a collective, the likeliest first."""
    operation = None if purpose.number is None else history.by_number.get(purpose.number)
    if purpose.users and operation is not None and operation.name != _CONSTRAINT:
        # The result of the operation is moved to a user if it has the mesh axes, and else to the result.
        axes = collective.axis_names
        if all(has_axis(result, axis) for result in operation.results for axis in axes):
            yield from purpose.users
            return
    yield from purpose.numbers


def _sides(operation: ir.Operation) -> Iterator[OperandSide]:
    for kind, values in (("operand", operation.operands), ("result", operation.results)):
        for number, value in enumerate(values):
            rank = rank_of(value.type)
            if rank is None:
                continue
            sharding = sharding_of(value)
            axes: Axes = ((),) * rank if sharding is None else axes_of_dimensions(sharding)
            yield OperandSide(f"{kind} {number}", value, axes, axes)


def _constrained(operation: ir.Operation) -> tuple[OperandSide, ...] | None:
    """Return the operand of a sharding constraint; None if it has the sharding that is asked for."""
    operand, result = _sides(operation)
    return None if operand.axes == result.axes else (replace(operand, used=result.axes),)


def _gathered(
    sides: tuple[OperandSide, ...], collective: Collective, purpose: Purpose, sizes: Mapping[str, int]
) -> tuple[OperandSide, ...] | None:
    """Return the sides with the one that an all-gather changes; None if it is unknown.

    It is the result if the operation computes what is gathered. Of operands of the same shape, it is the one
    that the partitioned product reads from the all-gather.
    """
    axes, dimension = set(collective.mesh_axes or ()), purpose.dimension
    # Parts of an axis are not lost: the rest of it still shards the value.
    if collective.op != "all-gather" or dimension is None or not axes:
        return None
    operands, results = {}, {}
    for number, side in enumerate(sides):
        entry = side.used[dimension] if dimension < len(side.used) else ()
        shape, others = side.on_device(side.used, sizes), {name for entry in side.used for name, _ in entry}
        if side.name.startswith("operand"):
            if axes <= {name for name, _ in entry} and shape == purpose.operand:
                operands[number] = tuple(axis for axis in entry if axis[0] not in axes)
        elif not axes & others and shape == purpose.result:
            results[number] = (*entry, *((axis, None) for axis in collective.mesh_axes or ()))
    if purpose.moves_result:
        operands = {}
    elif len(operands) > 1:
        operands, results = {at: entry for at, entry in operands.items() if {at} == purpose.places}, {}
    for number, entry in (operands or results).items():
        side = sides[number]
        used = (*side.used[:dimension], entry, *side.used[dimension + 1 :])
        return (*sides[:number], replace(side, used=used), *sides[number + 1 :])
    return None


def conflict(conflicting: Conflicting, origins: bool, history: History, sources: Sources) -> Conflict:
    """Return the record of a conflict.

    origins: whether the sources of shardings were recorded.
    """
    name, place = named_at(conflicting.operation.location)
    sides = tuple(
        ConflictSide(
            side.name,
            side.shape,
            dtype=str(ir.RankedTensorType(side.value.type).element_type),
            spec=spec_of(side.axes),
            used=spec_of(side.used),
            origins=origins_of_value(side.value, history, sources) if origins else None,
            constraint=_replicates(side, sources) if origins else None,
        )
        for side in conflicting.sides
    )
    operation = conflicting.operation.name.partition(".")[2]
    return Conflict(operation, sides, conflicting.collectives, name, place)


def _replicates(side: OperandSide, sources: Sources) -> str | None:
    """Return the constraint that alone uses a result and asks for it whole; None without one."""
    users = [use.owner for use in side.value.uses] if side.name.startswith("result") else []
    if len(users) != 1 or any(side.axes) or users[0].name != _CONSTRAINT or NAME not in users[0].attributes:
        return None
    return sources.named(ir.StringAttr(users[0].attributes[NAME]).value)


@dataclass(frozen=True)
class CollectiveCauses:
    """Looks up the causes of the collectives of one program.

    Attributes:
      history: the program after propagation.
      purposes: for which operation XLA made each collective, by its name.
      conflicting: the operations for which shards are moved, by their numbers.
      sources: the arrays, constraints and rules that shardings of the program can come from.
      recorded: whether the history has notes about origins.
    """

    history: History
    purposes: Mapping[str, Purpose]
    conflicting: Mapping[int, Conflicting]
    sources: Sources
    recorded: bool

    def origins(self, collective: Collective) -> tuple[Origin, ...] | None:
        """Return the sources of the shardings for which XLA made a collective; None if unknown."""
        purpose = self.purposes.get(collective.name)
        if purpose is None or not self.recorded or not collective.axis_names:
            return None
        for number in self._numbers(collective, purpose):
            # What a shard_map asks of its arguments is no source of the sharding that they have before.
            own = self._name(number)
            origins = unique(
                self.sources.origin(axis, path)
                for axis in collective.axis_names
                for value in self._values(number, collective.op, axis)
                if (path := self.history.find(value, axis)) is None
                or own is None
                or not path.source.startswith(f"{own}_")
            )
            if origins:
                return origins
        return None

    def _name(self, number: int) -> str | None:
        """Return the name that Shardy gave an operation with sources of its own; None for another one."""
        operation = self.history.by_number.get(number)
        if operation is None or NAME not in operation.attributes:
            return None
        return ir.StringAttr(operation.attributes[NAME]).value

    def _numbers(self, collective: Collective, purpose: Purpose) -> Iterator[int]:
        """Yield the numbers of the operations that can need a collective, the likeliest first."""
        for number in purpose.numbers:
            conflicting = self.conflicting.get(number)
            if conflicting is not None and collective.name in conflicting.collectives:
                yield number
        yield from purpose.numbers

    def _values(self, number: int, op: str, axis: str) -> Iterator[Any]:
        """Yield the operands, or else the results, of an operation whose sharding over an axis matters."""
        operation = self.history.by_number.get(number)
        if operation is None:
            return
        if op not in REDUCTIONS and number in self.conflicting:
            moved = [side.value for side in self.conflicting[number].moved]
            if any(has_axis(value, axis) for value in moved):
                yield from moved
                return
        operands = [operand for operand in operation.operands if has_axis(operand, axis)]
        yield from operands or [result for result in operation.results if has_axis(result, axis)]
