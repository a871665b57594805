"""The arguments and results of a program that its collectives move.

A collective moves an argument if its operand is that argument or a slice of it. It moves a result if the
result is made from its output. Both are found by following values backwards through instructions that move
or convert data. For results in the train state, elementwise arithmetic is followed too, because an
optimizer applies it to gradients. A matrix product or a reduction ends the search.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from inspector.compiled.hlo.analysis import Analysis
from inspector.compiled.hlo.asynchronous import DONE, begun
from inspector.compiled.hlo.loops import CallSite
from inspector.compiled.hlo.module import Computation, Instruction, Module
from inspector.core.collectives import BY_OPCODE

# Instructions that move, slice or convert data → the operands with the data.
_MOVES: Mapping[str, slice] = {
    **dict.fromkeys(
        ("copy", "bitcast", "reshape", "transpose", "convert", "bitcast-convert", "reverse"),
        slice(None),
    ),
    **dict.fromkeys(("slice", "concatenate", "opt-barrier", "optimization-barrier"), slice(None)),
    **dict.fromkeys(("dynamic-slice", "pad", "add-dependency", "domain"), slice(1)),
    **dict.fromkeys(("reduce-precision", "stochastic-convert"), slice(1)),
    "dynamic-update-slice": slice(2),  # the array and the update; the rest are indices
}
_PASSED_ON = {
    "opt-barrier",
    "optimization-barrier",
    "add-dependency",
    "domain",
}  # tuples as they are
# Custom calls of the partitioner and of host offloading, which keep the data.
_SAME_DATA = frozenset({
    '"Sharding"', '"SPMDFullToShardShape"', '"SPMDShardToFullShape"', '"MoveToHost"',
    '"MoveToDevice"', '"annotate_device_placement"', '"LayoutConstraint"',
})  # fmt: skip
_CALL_STARTS = frozenset({"async-start", "call-start", "fusion-start"})
_DONE = f'"{DONE}"'
# Elementwise arithmetic → the operands with values.
_ELEMENTWISE: Mapping[str, slice] = {
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
_CHARACTERS_PER_STEP = 64
_MAX_DEPTH = 50

# Indices into nested tuples, outermost first.
Path = tuple[int, ...]


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


class _TooLong(Exception):
    """The search exceeds its limit."""


def moved_arrays(
    module: Module,
    arguments: Sequence[str],
    results: Sequence[str],
    analysis: Analysis | None = None,
) -> dict[tuple[str, str], tuple[str, ...]] | None:
    """Return (computation, instruction) of each collective → paths of the arrays that it moves, in order.

    A reduction of a gradient has the path of the parameter, not of the optimizer's moments. Paths are empty
    if nothing is certain. Return None if the paths do not match the program, or the search is too long.

    Args:
      arguments: paths of the flattened arguments that the program uses, in order.
      results: paths of its flattened results, in order.
    """
    entry = module.by_name.get(module.entry or "")
    if entry is None or entry.root is None or module.truncated:
        return None
    parts = _results(entry, len(results))
    if parts is None or _arguments(entry) != len(arguments):
        return None
    try:
        return _Search(analysis or Analysis(module), entry).run(arguments, results, parts)
    except _TooLong:
        return None


def _arguments(entry: Computation) -> int:
    return sum(instruction.opcode == "parameter" for instruction in entry.instructions)


def _results(entry: Computation, count: int) -> list[Path] | None:
    """Return the position of each of `count` arrays in the program's result; None if the count differs."""
    assert entry.root is not None
    shape = entry.root.shape
    if shape is None or shape.parts is None:
        return [()] if count == 1 else None
    return [(number,) for number in range(count)] if len(shape.parts) == count else None


class _Search:
    """One search through a module."""

    def __init__(self, analysis: Analysis, entry: Computation) -> None:
        self._analysis = analysis
        self._module = module = analysis.module
        self._entry = entry
        self._operand_names: dict[tuple[str, str], tuple[str, ...]] = {}
        count = sum(len(computation.instructions) for computation in module.computations)
        self._steps_left = _MIN_STEPS + _STEPS_PER_INSTRUCTION * count

    def run(
        self, arguments: Sequence[str], results: Sequence[str], parts: Sequence[Path]
    ) -> dict[tuple[str, str], tuple[str, ...]]:
        found: dict[tuple[str, str], set[str]] = {
            (computation.name, instruction.name): set()
            for computation in self._module.computations
            for instruction in computation.instructions
            if instruction.opcode in BY_OPCODE
        }
        if not found:
            return {}
        for computation in self._module.computations:
            for instruction in computation.instructions:
                if instruction.opcode in BY_OPCODE:
                    found[computation.name, instruction.name] = {
                        arguments[number]
                        for number in self._arguments_of(_Frame(computation), instruction)
                        if number < len(arguments)
                    }
        top = _Frame(self._entry)
        assert self._entry.root is not None
        seen_of_state: set[_Key] = set()
        # Parameters come first, so that values that lead to them are not followed from their moments.
        for params in (True, False):
            for path, part in zip(results, parts, strict=True):
                group = path.partition("/")[0]
                if (group == "params") != params:
                    continue
                seen: set[_Key] = set() if params or group not in _STATE else seen_of_state
                values = self._behind([_Value(top, self._entry.root, part)], group in _STATE, seen)
                for value in values:
                    if value.instruction.opcode in BY_OPCODE:
                        key = (value.frame.computation.name, value.instruction.name)
                        found[key].add(path)
                if params:
                    seen_of_state |= seen
        for key, starts in self._analysis.chains.carried_on.items():
            moved = found.pop(key, set())
            for start in starts:
                if start in found:
                    found[start] |= moved
        order = {path: number for number, path in enumerate((*arguments, *results))}
        return {key: tuple(sorted(paths, key=order.__getitem__)) for key, paths in found.items()}

    def _arguments_of(self, frame: _Frame, collective: Instruction) -> Iterator[int]:
        """Yield the numbers of the program's arguments from which a collective's operands are made."""
        starts = [_Value(frame, source, ()) for source in self._operands(frame, collective)]
        for value in self._behind(starts, False, set()):
            if value.instruction.opcode == "parameter" and value.frame.computation is self._entry:
                number = value.instruction.number
                if number is not None:
                    yield number

    def _behind(
        self, starts: Sequence[_Value], elementwise: bool, seen: set[_Key]
    ) -> Iterator[_Value]:
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
            self._steps_left -= 1 + len(sources)
            if self._steps_left < 0 or len(path) > _MAX_DEPTH:
                raise _TooLong
            waiting += sources

    def _sources(self, value: _Value, elementwise: bool) -> list[_Value]:
        """Return the values from which this one is made by one instruction."""
        frame, instruction, path = value
        opcode = instruction.opcode
        if opcode == "parameter":
            return self._given(value)
        if opcode == "get-tuple-element":
            index = instruction.index
            return [] if index is None else self._at(frame, instruction, slice(1), (index, *path))
        if opcode == "tuple":
            if not path:
                return []
            return self._at(frame, instruction, slice(path[0], path[0] + 1), path[1:])
        if opcode in _PASSED_ON:
            if opcode in ("add-dependency", "domain") or not path:
                return self._at(frame, instruction, slice(1), path)
            # A barrier with several operands returns a tuple of them.
            several = len(self._operands(frame, instruction)) > 1
            which = slice(path[0], path[0] + 1) if several else slice(1)
            return self._at(frame, instruction, which, path[1:] if several else path)
        if opcode in _MOVES:
            return self._at(frame, instruction, _MOVES[opcode], ())
        if elementwise and opcode in _ELEMENTWISE:
            return self._at(frame, instruction, _ELEMENTWISE[opcode], ())
        if opcode in BY_OPCODE:
            return self._through_collective(value)
        if opcode.endswith(("-done", "-update")):
            return self._through_done(value)
        if opcode == "copy-start":  # (copy, original, context)
            return self._at(frame, instruction, slice(1), ())
        if opcode in ("fusion", "call"):
            return self._root_of(frame, instruction, "call", path)
        if opcode.endswith("-start"):
            # (operands, results, context …)
            if path[:1] == (0,):
                return self._at(frame, instruction, _one(path[1:2]), path[2:])
            if not path:
                return []
            if opcode not in _CALL_STARTS:
                return self._sources(_Value(frame, begun(instruction), path[1:]), elementwise)
            return self._root_of(frame, instruction, "call", path[1:])
        if opcode == "while":
            return [
                *self._root_of(frame, instruction, "body", path),
                *self._at(frame, instruction, slice(1), path),
            ]
        if opcode == "conditional":
            return self._root_of(frame, instruction, "branch", path)
        if opcode == "broadcast" and self._same_size(frame, instruction):
            return self._at(frame, instruction, slice(1), ())
        target = instruction.attributes.get("custom_call_target") if "call" in opcode else None
        if target == _DONE:
            held = self._operands(frame, instruction)
            return [_Value(frame, one, path) for one in held if one.opcode in BY_OPCODE]
        return self._at(frame, instruction, slice(1), path) if target in _SAME_DATA else []

    def _through_collective(self, value: _Value) -> list[_Value]:
        """Return the operands from which a collective, or its start, makes this part of its result."""
        frame, instruction, path = value
        operation = BY_OPCODE[instruction.opcode]
        if (
            instruction.opcode != operation.name and operation.start_returns_operands
        ):  # (operands, results, context …)
            path = path[1:]
        several = len(self._operands(frame, instruction)) > 1
        # Each result of an all-to-all contains parts of all operands.
        if several and path and operation.route != "all-to-all":
            return self._at(frame, instruction, _one(path[:1]), path[1:])
        return self._at(frame, instruction, slice(None), ())

    def _through_done(self, value: _Value) -> list[_Value]:
        frame, instruction, path = value
        sources = self._operands(frame, instruction)[:1]
        if not sources:
            return []
        started = sources[0].opcode
        operation = BY_OPCODE.get(started)
        result_alone = operation is not None and not operation.start_returns_operands
        if instruction.opcode.endswith("-update") or result_alone:
            inner = path
        elif started == "copy-start":
            inner = ()
        else:
            inner = (1, *path)
        return [_Value(frame, sources[0], inner)]

    def _given(self, value: _Value) -> list[_Value]:
        """Return the value of a parameter, from the call that entered its computation or the only call."""
        frame, instruction, path = value
        number = instruction.number
        if number is None or frame.computation is self._entry:
            return []
        if frame.call is not None and frame.caller is not None:
            return self._given_by(frame, frame.caller, frame.call, None, number, path)
        sites = self._analysis.call_sites.get(frame.computation.name, [])
        callers = {(site.caller.name, site.instruction.name) for site in sites}
        if len(callers) != 1:
            return []  # depends on the call
        return self._given_by(
            frame, _Frame(sites[0].caller), sites[0].instruction, sites[0], number, path
        )

    def _given_by(
        self,
        frame: _Frame,
        outer: _Frame,
        call: Instruction,
        site: CallSite | None,
        number: int,
        path: Path,
    ) -> list[_Value]:
        if call.opcode == "while":
            given = self._at(outer, call, slice(1), path)
            body = self._called(call, "body")
            if body and body[0] is frame.computation and frame.computation.root is not None:
                # The result of the previous iteration.
                given.append(_Value(frame, frame.computation.root, path))
            return given
        if call.opcode == "conditional":
            branches = self._called(call, "branch")
            if site is None:
                places = [n for n, one in enumerate(branches) if one is frame.computation]
            else:
                places = [site.number]
            return [
                value for n in places for value in self._at(outer, call, slice(n + 1, n + 2), path)
            ]
        if call.opcode in ("fusion", "call") or call.opcode.endswith("-start"):
            return self._at(outer, call, slice(number, number + 1), path)
        return []

    def _root_of(self, frame: _Frame, call: Instruction, role: str, path: Path) -> list[_Value]:
        """Return the results of the computations that an instruction calls."""
        if frame.depth >= _MAX_DEPTH:
            raise _TooLong
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

    def _at(
        self, frame: _Frame, instruction: Instruction, which: slice, path: Path
    ) -> list[_Value]:
        return [_Value(frame, one, path) for one in self._operands(frame, instruction)[which]]

    def _operands(self, frame: _Frame, instruction: Instruction) -> list[Instruction]:
        """Return the instructions of all operands; none if one is missing in the text."""
        computation = frame.computation
        key = (computation.name, instruction.name)
        names = self._operand_names.get(key)
        if names is None:
            self._steps_left -= len(instruction.operands_text) // _CHARACTERS_PER_STEP
            names = tuple(operand.name or "" for operand in instruction.operands)
            self._operand_names[key] = names
        by_name = computation.by_name
        return [by_name[name] for name in names] if all(n in by_name for n in names) else []

    def _same_size(self, frame: _Frame, instruction: Instruction) -> bool:
        sources = self._operands(frame, instruction)
        before = sources[0].shape if sources else None
        after = instruction.shape
        return before is not None and after is not None and before.bytes == after.bytes


def _calls(frame: _Frame) -> tuple[int, ...]:
    calls = []
    while frame.call is not None and frame.caller is not None:
        calls.append(id(frame.call))
        frame = frame.caller
    return tuple(calls)


def _one(path: Path) -> slice:
    """Return the slice of one operand, by default the first."""
    number = path[0] if path else 0
    return slice(number, number + 1)
