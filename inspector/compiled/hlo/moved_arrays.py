"""The arguments and results of a program that its collectives move.

A collective moves an argument if its operand is that argument or a slice of it. It moves a result if the
result is made from its output. Both are found by following values backwards through instructions that move
or convert data. For results in the train state, elementwise arithmetic is followed too, because an
optimizer applies it to gradients. A matrix product or a reduction ends the search.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from inspector.compiled.hlo.analysis import Analysis
from inspector.compiled.hlo.asynchronous import DONE, begun
from inspector.compiled.hlo.module import Computation, Instruction, Module, Path, operand_names
from inspector.compiled.hlo.step_limit import StepLimit, TooLong
from inspector.core.array_groups import group_of_path
from inspector.core.collectives import BY_OPCODE

_ALL, _FIRST = slice(None), slice(1)
# Instructions that move, slice or convert data → the operands with the data.
MOVES: Mapping[str, slice] = {
    **dict.fromkeys(
        (
            "copy", "bitcast", "reshape", "transpose", "convert", "bitcast-convert", "reverse", "slice",
            "concatenate",
        ),
        _ALL,
    ),
    **dict.fromkeys(
        ("copy-start", "dynamic-slice", "pad", "reduce-precision", "stochastic-convert"), _FIRST
    ),
    "dynamic-update-slice": slice(2),  # the array and the update; the rest are indices
}  # fmt: skip
# Custom calls of the partitioner and of host offloading, which keep the data.
SAME_DATA = frozenset({
    "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "MoveToHost", "MoveToDevice",
    "annotate_device_placement", "LayoutConstraint",
})  # fmt: skip
_CALL_STARTS = frozenset({"async-start", "call-start", "fusion-start"})
# Elementwise arithmetic → the operands with values.
ELEMENTWISE: Mapping[str, slice] = {
    **dict.fromkeys(
        (
            "add", "subtract", "multiply", "divide", "maximum", "minimum", "negate", "abs",
            "exponential", "exponential-minus-one", "log", "log-plus-one", "tanh", "tan", "sine",
            "cosine", "sqrt", "rsqrt", "cbrt", "power", "sign", "logistic", "erf", "floor", "ceil",
            "round-nearest-even", "round-nearest-afz", "clamp", "remainder", "atan2",
            "and", "or", "xor", "not", "shift-left", "shift-right-logical", "shift-right-arithmetic",
        ),
        slice(None),
    ),
    "select": slice(1, 3),
}  # fmt: skip
_STATE = ("params", "opt_state")  # the groups of arrays that an optimizer updates

# Limits for hostile text: steps in proportion to the length of the text, and nested calls.
_MIN_STEPS = 20_000
_STEPS_PER_INSTRUCTION = 20
_MAX_DEPTH = 50


class _Frame(NamedTuple):
    """A computation and the call by which it was entered; None if the search started inside it."""

    computation: Computation
    caller: _Frame | None = None
    call: Instruction | None = None
    depth: int = 0


class _Value(NamedTuple):
    """The result of an instruction, or the part of it at `path`."""

    frame: _Frame
    instruction: Instruction
    path: Path


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
) -> dict[tuple[str, str], tuple[Moved, ...]] | None:
    """Return (computation, instruction) of each collective → the arrays that each operand moves, in order.

    A reduction of a gradient has the path of the parameter, not of the optimizer's moments. Paths are empty
    if nothing is certain. Return None if the paths do not match the program, or the search is too long.

    Args:
      arguments: paths of the flattened arguments that the program uses, in order.
      results: paths of its flattened results, in order.
    """
    entry = module.by_name.get(module.entry or "")
    if entry is None or entry.root is None or module.truncated:
        return None
    shape = entry.root.shape
    parts: list[Path] = [()]
    if shape is not None and shape.parts is not None:
        parts = [(number,) for number in range(len(shape.parts))]
    parameters = sum(instruction.opcode == "parameter" for instruction in entry.instructions)
    if len(parts) != len(results) or parameters != len(arguments):
        return None
    try:
        return _Search(analysis or Analysis(module), entry).run(arguments, results, parts)
    except TooLong:
        return None


def paths_of(operands: Sequence[Moved], order: Iterable[str]) -> tuple[str, ...]:
    """Return the paths of all operands of a collective, each once, in the order of the given ones."""
    moved = {path for operand in operands for paths in operand for path in paths}
    return tuple(path for path in dict.fromkeys(order) if path in moved)


class _Search:
    """One search through a module."""

    def __init__(self, analysis: Analysis, entry: Computation) -> None:
        self._analysis = analysis
        self._module = module = analysis.module
        self._entry = entry
        self._operands_of: dict[tuple[str, str], list[Instruction]] = {}
        self._limit = StepLimit(module, _MIN_STEPS, _STEPS_PER_INSTRUCTION)

    def run(
        self, arguments: Sequence[str], results: Sequence[str], parts: Sequence[Path]
    ) -> dict[tuple[str, str], tuple[Moved, ...]]:
        inputs: dict[tuple[str, str], list[set[str]]] = {}
        for computation, instruction in self._module.instructions:
            if instruction.opcode in BY_OPCODE:
                frame = _Frame(computation)
                inputs[computation.name, instruction.name] = [
                    {
                        arguments[number]
                        for number in self._arguments_of(frame, instruction, operand)
                        if number < len(arguments)
                    }
                    for operand in range(max(len(self._operands(frame, instruction)), 1))
                ]
        if not inputs:
            return {}
        outputs = {key: [set[str]() for _ in operands] for key, operands in inputs.items()}
        top = _Frame(self._entry)
        assert self._entry.root is not None
        seen_of_state: set[_Key] = set()
        # Parameters come first, so that values that lead to them are not followed from their moments.
        for params in (True, False):
            for path, part in zip(results, parts, strict=True):
                group = group_of_path(path)
                if (group == "params") != params:
                    continue
                seen: set[_Key] = set() if params or group not in _STATE else seen_of_state
                values = self._behind([_Value(top, self._entry.root, part)], group in _STATE, seen)
                for value in values:
                    if value.instruction.opcode in BY_OPCODE:
                        key = (value.frame.computation.name, value.instruction.name)
                        for operand in outputs[key][_operand_of(value, len(outputs[key]))]:
                            operand.add(path)
                if params:
                    seen_of_state |= seen
        for moved in (inputs, outputs):
            for key, starts in self._analysis.chains.carried_on.items():
                operands = moved.pop(key, [])
                for start in starts:
                    for whole, piece in zip(moved.get(start, ()), operands, strict=False):
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

    def _arguments_of(self, frame: _Frame, collective: Instruction, operand: int) -> Iterator[int]:
        """Yield the numbers of the program's arguments from which an operand of a collective is made."""
        starts = self._at(frame, collective, slice(operand, operand + 1), ())
        for value in self._behind(starts, False, set()):
            number = value.instruction.number if value.frame.computation is self._entry else None
            if value.instruction.opcode == "parameter" and number is not None:
                yield number

    def _behind(self, starts: Sequence[_Value], elementwise: bool, seen: set[_Key]) -> Iterator[_Value]:
        """Yield all values from which these are made, including these, each once."""
        waiting = list(starts)
        while waiting:
            value = waiting.pop()
            frame, instruction, path = value
            # The calls that lead to a frame identify it.
            key = (_calls(frame), frame.computation.name, instruction.name, path)
            if key in seen:
                continue
            seen.add(key)
            yield value
            sources = self._sources(value, elementwise)
            self._limit.count(1 + len(sources))
            if self._limit.exceeded or len(path) > _MAX_DEPTH:
                raise TooLong
            waiting += sources

    def _sources(self, value: _Value, elementwise: bool) -> list[_Value]:
        """Return the values from which this one is made by one instruction."""
        frame, instruction, path = value
        opcode = instruction.opcode
        if opcode == "parameter":
            return self._given(value)
        if opcode == "get-tuple-element":
            index = instruction.tuple_index
            return [] if index is None else self._at(frame, instruction, _FIRST, (index, *path))
        if opcode == "tuple":
            return self._at(frame, instruction, _slice_at(path), path[1:]) if path else []
        if opcode in ("add-dependency", "domain"):  # tuples as they are
            return self._at(frame, instruction, _FIRST, path)
        if opcode in ("opt-barrier", "optimization-barrier"):
            # A barrier with several operands returns a tuple of them.
            if path and len(self._operands(frame, instruction)) > 1:
                return self._at(frame, instruction, _slice_at(path), path[1:])
            return self._at(frame, instruction, _FIRST, path)
        if opcode in MOVES:
            return self._at(frame, instruction, MOVES[opcode], ())
        if elementwise and opcode in ELEMENTWISE:
            return self._at(frame, instruction, ELEMENTWISE[opcode], ())
        if opcode in BY_OPCODE:
            return self._through_collective(value)
        if opcode.endswith(("-done", "-update")):
            return self._through_done(value)
        if opcode in ("fusion", "call"):
            return self._root_of(frame, instruction, "call", path)
        if opcode.endswith("-start"):
            # (operands, results, context …)
            if path[:1] == (0,):
                return self._at(frame, instruction, _slice_at(path[1:]), path[2:])
            if not path:
                return []
            if opcode not in _CALL_STARTS:
                return self._sources(_Value(frame, begun(instruction), path[1:]), elementwise)
            return self._root_of(frame, instruction, "call", path[1:])
        if opcode == "while":
            return [
                *self._root_of(frame, instruction, "body", path),
                *self._at(frame, instruction, _FIRST, path),
            ]
        if opcode == "conditional":
            return self._root_of(frame, instruction, "branch", path)
        if opcode == "broadcast":
            sources = self._at(frame, instruction, _FIRST, ())
            before, after = (sources[0].instruction.shape if sources else None), instruction.shape
            same_size = before is not None and after is not None and before.bytes == after.bytes
            return sources if same_size else []
        target = instruction.target if "call" in opcode else None
        if target == DONE:
            operands = self._at(frame, instruction, _ALL, path)
            return [operand for operand in operands if operand.instruction.opcode in BY_OPCODE]
        return self._at(frame, instruction, _FIRST, path) if target in SAME_DATA else []

    def _through_collective(self, value: _Value) -> list[_Value]:
        """Return the operands from which a collective, or its start, makes this part of its result."""
        frame, instruction, path = value
        operation = BY_OPCODE[instruction.opcode]
        if instruction.opcode != operation.name and operation.start_returns_operands:
            path = path[1:]  # of (operands, results, context …)
        several = len(self._operands(frame, instruction)) > 1
        # Each result of an all-to-all contains parts of all operands.
        if several and path and operation.route != "all-to-all":
            return self._at(frame, instruction, _slice_at(path), path[1:])
        return self._at(frame, instruction, _ALL, ())

    def _through_done(self, value: _Value) -> list[_Value]:
        frame, instruction, path = value
        started = next((operand.opcode for operand in self._operands(frame, instruction)), "")
        operation = BY_OPCODE.get(started)
        result_alone = operation is not None and not operation.start_returns_operands
        if not (instruction.opcode.endswith("-update") or result_alone):
            path = () if started == "copy-start" else (1, *path)
        return self._at(frame, instruction, _FIRST, path)

    def _given(self, value: _Value) -> list[_Value]:
        """Return the value of a parameter, from the call that entered its computation or the only call."""
        frame, instruction, path = value
        number = instruction.number
        if number is None or frame.computation is self._entry:
            return []
        outer, call, branch = frame.caller, frame.call, None
        if outer is None or call is None:
            sites = self._analysis.call_sites.get(frame.computation.name, [])
            if len({(site.caller.name, site.instruction.name) for site in sites}) != 1:
                return []  # depends on the call
            outer, call, branch = _Frame(sites[0].caller), sites[0].instruction, sites[0].number
        if call.opcode == "while":
            given = self._at(outer, call, _FIRST, path)
            body = self._called(call, "body")
            if body and body[0] is frame.computation and frame.computation.root is not None:
                # The result of the previous iteration.
                given.append(_Value(frame, frame.computation.root, path))
            return given
        if call.opcode == "conditional":
            return [
                value
                for n, callee in enumerate(self._called(call, "branch"))
                if (callee is frame.computation if branch is None else n == branch)
                for value in self._at(outer, call, slice(n + 1, n + 2), path)
            ]
        if call.opcode in ("fusion", "call") or call.opcode.endswith("-start"):
            return self._at(outer, call, slice(number, number + 1), path)
        return []

    def _root_of(self, frame: _Frame, call: Instruction, role: str, path: Path) -> list[_Value]:
        """Return the results of the computations that an instruction calls."""
        if frame.depth >= _MAX_DEPTH:
            raise TooLong
        return [
            _Value(_Frame(callee, frame, call, frame.depth + 1), callee.root, path)
            for callee in self._called(call, role)
            if callee.root is not None
        ]

    def _called(self, instruction: Instruction, role: str) -> list[Computation]:
        by_name = self._module.by_name
        return [
            by_name[called.computation]
            for called in instruction.called
            if called.role == role and called.computation in by_name
        ]

    def _at(self, frame: _Frame, instruction: Instruction, which: slice, path: Path) -> list[_Value]:
        return [_Value(frame, operand, path) for operand in self._operands(frame, instruction)[which]]

    def _operands(self, frame: _Frame, instruction: Instruction) -> list[Instruction]:
        """Return the instructions of all operands; none if one is missing in the text."""
        key = (frame.computation.name, instruction.name)
        operands = self._operands_of.get(key)
        if operands is None:
            self._limit.count(characters=len(instruction.operands_text))
            by_name = frame.computation.by_name
            named = [by_name.get(name or "") for name in operand_names(instruction)]
            operands = [operand for operand in named if operand is not None]
            self._operands_of[key] = operands = operands if len(operands) == len(named) else []
        return operands


def _operand_of(value: _Value, count: int) -> slice:
    """Return the operand of a collective that becomes this part of its result, of `count`; all if unknown."""
    _, instruction, path = value
    operation = BY_OPCODE[instruction.opcode]
    if instruction.opcode != operation.name and operation.start_returns_operands:
        path = path[1:]  # of (operands, results, context …)
    known = path and path[0] < count and operation.route != "all-to-all"
    return _slice_at(path) if count > 1 and known else _ALL


def _calls(frame: _Frame) -> tuple[int, ...]:
    calls = []
    while frame.call is not None and frame.caller is not None:
        calls.append(id(frame.call))
        frame = frame.caller
    return tuple(calls)


def _slice_at(path: Path) -> slice:
    """Return the slice of one operand, by default the first."""
    number = path[0] if path else 0
    return slice(number, number + 1)
