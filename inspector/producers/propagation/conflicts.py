"""Operations whose operands and results ask for different shardings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from inspector.core.snapshot import Conflict, ConflictSide
from inspector.producers.propagation.history import History
from inspector.producers.propagation.locations import described, marked
from inspector.producers.propagation.origins import Sources, origins_of_value
from inspector.producers.propagation.shardings import (
    Axis,
    axes_of_dimensions,
    sharding_of,
    spec_of,
)

# The mesh axes of each dimension of a value.
Axes = tuple[tuple[Axis, ...], ...]


@dataclass(frozen=True)
class Side:
    """An operand or a result: its name, its type, and its mesh axes before and in the operation.

    `value` is in the module of a `History`, or None if propagation did not know it.
    """

    name: str
    type: Any
    axes: Axes
    used: Axes
    value: Any | None


@dataclass(frozen=True)
class Conflicting:
    """One operation with a conflict. `mark` is that of the reshards that resolve it."""

    mark: str
    operation: str
    location: tuple[str, str, int]
    sides: tuple[Side, ...]


class Conflicts:
    """Collects the conflicts of one module while its reshards are inserted."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._found: list[Conflicting] = []

    @property
    def found(self) -> tuple[Conflicting, ...]:
        return tuple(self._found)

    def location(self, operation: Any, used: Sequence[Axes]) -> Any:
        """Note the conflict of an operation, and return the location for its reshards.

        Args:
          used: the mesh axes in which each operand and each result is used.
        """
        names = [f"operand {number}" for number in range(len(operation.operands))]
        names += [f"result {number}" for number in range(len(operation.results))]
        sides = tuple(
            self._side(name, value, axes)
            for name, value, axes in zip(
                names, (*operation.operands, *operation.results), used, strict=True
            )
        )
        return self._add(operation, operation.name.partition(".")[2], sides)

    def note_constraint(self, reshard: Any) -> None:
        """Note the conflict of a sharding constraint, which is now a reshard, and put its mark there."""
        operand = reshard.operands[0]
        sharding = sdy.TensorShardingAttr(reshard.attributes["sharding"])
        side = self._side("operand 0", operand, axes_of_dimensions(sharding))
        if side.axes == side.used:
            return
        location = self._add(reshard, "sharding_constraint", (side,))
        with ir.InsertionPoint(reshard), location:
            again = sdy.ReshardOp(operand, sharding)
        reshard.results[0].replace_all_uses_with(again.result)
        reshard.erase()

    def _side(self, name: str, value: Any, used: Axes) -> Side:
        sharding = sharding_of(value)
        axes = tuple(() for _ in used) if sharding is None else axes_of_dimensions(sharding)
        return Side(name, value.type, axes, used, self._history.earlier(value))

    def _add(self, operation: Any, name: str, sides: tuple[Side, ...]) -> Any:
        mark = str(len(self._found))
        self._found.append(Conflicting(mark, name, described(operation.location), sides))
        return marked(operation.location, mark)


def conflict(
    found: Conflicting, collectives: Sequence[str], history: History | None, sources: Sources
) -> Conflict:
    """Return the record of a conflict.

    Args:
      collectives: names of the collectives that reshard its operands and results.
      history: where to look up origins; None if they were not recorded.
    """
    name, file, line = found.location
    sides = tuple(
        ConflictSide(
            side.name,
            tuple(ir.RankedTensorType(side.type).shape),
            str(ir.RankedTensorType(side.type).element_type),
            spec_of(side.axes),
            spec_of(side.used),
            None
            if history is None or side.value is None
            else origins_of_value(side.value, history, sources),
        )
        for side in found.sides
    )
    place = f"{file.rpartition('/')[2]}:{line}" if file else None
    return Conflict(found.operation, sides, tuple(collectives), name or None, place)
