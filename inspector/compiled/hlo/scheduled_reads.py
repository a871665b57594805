"""Which operations of a schedule read the results of which others, in this or the previous iteration."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from inspector.compiled.hlo.analysis import Analysis
from inspector.compiled.hlo.dataflow import Forward, Tree, leaves, tree_of
from inspector.compiled.hlo.module import Computation, Instruction, operand_names

# The operations that a value is made from: their positions, and the elements of the state of a loop as
# negative numbers.
Sources = frozenset[int]
Reads = tuple[tuple[int, ...], tuple[int, ...]]

_NOTHING: Sources = frozenset()


class ScheduledReads(Forward[Sources]):
    """Finds the operations whose results each operation of a computation reads.

    Instructions that take no time pass on their operands. So does a loop with the elements of its
    state that it does not change.
    """

    enters = frozenset()

    def __init__(self, analysis: Analysis) -> None:
        super().__init__(analysis.module)
        self._sites = analysis.call_sites
        self._places: Mapping[str, int] = {}
        self._reads: dict[str, Sources] = {}

    def of(self, computation: Computation, places: Mapping[str, int]) -> dict[str, Reads]:
        """Return by name the positions that an operation reads, in this and in the previous iteration.

        Args:
          places: the position of each operation of the computation by its name.
        """
        self._places, self._reads = places, {}
        state = computation.parameters.get(0)
        given: list[Tree[Sources]] = []
        if state is not None and any(site.role == "body" for site in self._sites.get(computation.name, ())):
            numbers = itertools.count(1)
            given = [tree_of(state.shape, lambda shape: frozenset({-next(numbers)}))]
        before = _carried(given, self.result_of(computation, given))
        reads = {}
        for name, sources in self._reads.items():
            carried = frozenset[int]().union(*(before.get(source, _NOTHING) for source in sources))
            reads[name] = _positions(sources), _positions(carried)
        return reads

    def unknown(self, instruction: Instruction | None) -> Tree[Sources]:
        return _NOTHING

    def join(self, value: Tree[Sources], other: Tree[Sources]) -> Tree[Sources]:
        return _NOTHING.union(*leaves(value, other))

    def transfer(
        self, computation: Computation, instruction: Instruction, operands: list[Tree[Sources]]
    ) -> Tree[Sources]:
        place = self._places.get(instruction.name)
        return _NOTHING.union(*leaves(*operands)) if place is None else frozenset({place})

    def element(self, instruction: Instruction, whole: Tree[Sources]) -> Tree[Sources]:
        return super().element(instruction, whole) if isinstance(whole, tuple) else whole

    def loop(self, computation: Computation, instruction: Instruction, state: Tree[Sources]) -> Tree[Sources]:
        own = self.transfer(computation, instruction, [state])
        kept = _unchanged(self._module.callee(instruction, "body"))
        if not isinstance(state, tuple):
            return own
        return tuple(part if number in kept else own for number, part in enumerate(state))

    def branches(self, instruction: Instruction, operands: list[Tree[Sources]]) -> Tree[Sources]:
        place = self._places.get(instruction.name)
        return _NOTHING if place is None else frozenset({place})

    def note(
        self,
        computation: Computation,
        instruction: Instruction,
        operands: list[Tree[Sources]],
        value: Tree[Sources],
    ) -> None:
        if instruction.name in self._places:
            self._reads[instruction.name] = _NOTHING.union(*leaves(*operands))


def _carried(given: Sequence[Tree[Sources]], result: Tree[Sources]) -> dict[int, Sources]:
    """Return of each element of a loop's state the operations that made it in the previous iteration."""
    waiting = [(state, result) for state in given]
    carried: dict[int, Sources] = {}
    while waiting:
        state, after = waiting.pop()
        if isinstance(state, tuple):
            parts = after if isinstance(after, tuple) else (after,) * len(state)
            waiting += zip(state, parts, strict=False)
            continue
        for element in state:
            carried[element] = _NOTHING.union(*leaves(after))
    return carried


def _positions(sources: Sources) -> tuple[int, ...]:
    return tuple(sorted(source for source in sources if source >= 0))


def _unchanged(body: Computation | None) -> frozenset[int]:
    """Return the elements of its state that a loop body returns as they are."""
    if body is None or body.root is None or body.root.does != "tuple":
        return frozenset()
    return frozenset(
        number
        for number, name in enumerate(operand_names(body.root))
        if (element := body.by_name.get(name or "")) is not None
        if element.does == "element" and element.tuple_index == number
        if (state := body.operand(element)) is not None and state.does == "parameter"
    )
