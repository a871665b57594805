"""Why XLA's partitioner made each collective: the operation that needs it, and sources of shardings."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from inspector.partition.conflicts import Conflicting
from inspector.partition.history import History
from inspector.partition.numbers import Purpose
from inspector.partition.origins import Sources, unique
from inspector.partition.shardings import has_axis
from inspector.records.collectives import REDUCTIONS
from inspector.records.snapshot import Collective, Origin


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
            origins = unique(
                self.sources.origin(axis, self.history.find(value, axis))
                for axis in collective.axis_names
                for value in self._values(number, collective.op, axis)
            )
            if origins:
                return origins
        return None

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
