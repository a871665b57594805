"""The arguments and results of a program that its collectives move.

A collective moves an argument if its operand is that argument or a slice of it, but not what a loop makes of
it in its iterations. It moves a result if the result is made from its output. Both are found by following
values backwards through instructions that move or convert data. For results in the train state, elementwise
arithmetic is followed too, because an optimizer applies it to gradients. A matrix product or a reduction ends
the search.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from inspector.hlo.analysis import Analysis
from inspector.hlo.dataflow import Backward, CallFrame, Value
from inspector.hlo.module import Module, Path, StepLimit, TooLong, reach
from inspector.hlo.opcodes import ELEMENTWISE, MOVES, RUNS
from inspector.records.collectives import BY_OPCODE
from inspector.records.snapshot import ArgumentUse
from inspector.sharding.array_groups import GROUP_OF_USE, group_of_path

# The kinds of operations that are followed from an operand of a collective, and more for the train state.
_MOVES = MOVES | RUNS | {"collective"}
_COMPUTES = _MOVES | ELEMENTWISE
_STATE = ("params", "opt_state")  # the groups of arrays that an optimizer updates

# Limits for hostile text: steps in proportion to the length of the text, and nested calls.
_MIN_STEPS = 20_000
_STEPS_PER_INSTRUCTION = 20
_MAX_DEPTH = 50


# The calls that lead to a frame, its computation, the instruction and the path.
_Key = tuple[tuple[int, ...], str, str, Path]


class Moved(NamedTuple):
    """The arrays that one operand of a collective moves.

    inputs: paths of the program's arguments that it is, or has a slice of.
    outputs: paths of the program's results that are made of it.
    """

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


def moved_arrays(
    module: Module,
    arguments: Sequence[str],
    results: Sequence[str],
    analysis: Analysis | None = None,
    updated: Mapping[str, ArgumentUse] = MappingProxyType({}),
) -> dict[tuple[str, str], tuple[Moved, ...]] | None:
    """Return (computation, instruction) of each collective → the arrays that each operand moves, in order.

    A reduction of a gradient has the path of the parameter, not of the optimizer's moments. Paths are empty
    if nothing is certain. Return None if the paths do not match the program, or the search is too long.

    Args:
      arguments: paths of the flattened arguments that the program uses, in order.
      results: paths of its flattened results, in order.
      updated: the uses of results that are new weights or moments, if their paths do not name them.
    """
    search = _Search(analysis or Analysis(module))
    try:
        return search.run(arguments, results, updated)
    except TooLong:
        return None


def paths_of(operands: Sequence[Moved], order: Iterable[str]) -> tuple[str, ...]:
    """Return the paths of all operands of a collective, each once, in the order of the given ones."""
    moved = {path for operand in operands for paths in operand for path in paths}
    return tuple(path for path in dict.fromkeys(order) if path in moved)


class _Search:
    """One search through a module."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._module = analysis.module
        self._limit = StepLimit(analysis.module, _MIN_STEPS, _STEPS_PER_INSTRUCTION)
        self._backward = Backward(analysis.module, analysis.call_sites, self._limit)
        self._kept: dict[tuple[str, Path, bool], bool] = {}

    def run(
        self, arguments: Sequence[str], results: Sequence[str], updated: Mapping[str, ArgumentUse]
    ) -> dict[tuple[str, str], tuple[Moved, ...]] | None:
        ends, entry = self._backward.results(len(results)), self._module.complete_entry()
        if ends is None or entry is None or len(entry.parameters) != len(arguments):
            return None
        inputs: dict[tuple[str, str], list[set[str]]] = {}
        for computation, instruction in self._module.instructions:
            if instruction.opcode in BY_OPCODE:
                operands = self._backward.operands(Value(CallFrame(computation), instruction))
                inputs[computation.name, instruction.name] = [
                    {arguments[n] for n in self._arguments_of(operand) if n < len(arguments)}
                    for operand in operands
                ] or [set()]
        if not inputs:
            return {}
        outputs = {key: [set[str]() for _ in operands] for key, operands in inputs.items()}
        seen_of_state: set[_Key] = set()
        # Parameters come first, so that values that lead to them are not followed from their moments.
        for params in (True, False):
            for path, end in zip(results, ends, strict=True):
                use = updated.get(path)
                group = group_of_path(path) if use is None else GROUP_OF_USE[use]
                if (group == "params") != params:
                    continue
                seen: set[_Key] = set() if params or group not in _STATE else seen_of_state
                through = _COMPUTES if group in _STATE else _MOVES
                for value in self._behind(end, through, seen):
                    if value.instruction.opcode in BY_OPCODE:
                        key = (value.frame.computation.name, value.instruction.name)
                        for operand in outputs[key][self._backward.operand_of_collective(value)]:
                            operand.add(path)
                if params:
                    seen_of_state |= seen
        for moved in (inputs, outputs):
            for key, starts in self._analysis.chains.carried_on.items():
                pieces = moved.pop(key, [])
                for start in starts:
                    for whole, piece in zip(moved.get(start, ()), pieces, strict=False):
                        whole |= piece
        order = {path: number for number, path in enumerate((*arguments, *results))}

        def in_order(paths: set[str]) -> tuple[str, ...]:
            return tuple(sorted(paths, key=order.__getitem__))

        return {
            key: tuple(
                Moved(in_order(given), in_order(made))
                for given, made in zip(inputs[key], outputs[key], strict=True)
            )
            for key in inputs
        }

    def _arguments_of(self, operand: Value) -> Iterator[int]:
        """Yield the numbers of the program's arguments from which an operand of a collective is made."""
        for value in self._behind(operand, _MOVES, set()):
            number = value.instruction.number
            is_argument = value.frame.computation.name == self._module.entry
            if is_argument and value.instruction.does == "parameter" and number is not None:
                yield number

    def _behind(self, start: Value, through: Container[str], seen: set[_Key]) -> Iterator[Value]:
        """Return all values from which this one is made, including itself, each once."""

        def sources_of(value: Value) -> list[Value]:
            sources = self._sources(value, through)
            if len(sources) > 1 and _is_next(sources[-1], value) and not self._keeps(value, through):
                return sources[-1:]  # the value before the loop is that of its first iteration alone
            return sources

        return reach([start], sources_of, _key, seen)

    def _sources(self, value: Value, through: Container[str]) -> list[Value]:
        sources = self._backward.sources(value, through)
        self._limit.count(1 + len(sources))
        if len(value.path) > _MAX_DEPTH:
            raise TooLong
        return sources

    def _keeps(self, state: Value, through: Container[str]) -> bool:
        """Return whether an element of the state of a loop is made from itself in each iteration."""
        key = state.frame.computation.name, state.path, through is _MOVES
        if key not in self._kept:

            def sources_of(value: Value) -> list[Value]:
                sources = self._sources(value, through)
                return sources[-1:] if sources and _is_next(sources[-1], state) else sources

            made = reach(self._sources(state, through)[-1:], sources_of, _key)
            self._kept[key] = any(_key(value) == _key(state) for value in made)
        return self._kept[key]


def _key(value: Value) -> _Key:
    frame, instruction, path = value
    # The calls that lead to a frame identify it.
    return frame.calls, frame.computation.name, instruction.name, path


def _is_next(value: Value, state: Value) -> bool:
    """Return whether a value is that of the next iteration of the loop whose body has this state."""
    return value.frame is state.frame and value.instruction is state.frame.computation.root
