"""Trip counts of while loops: the compiler's `known_trip_count`, or else derived from the condition.

A value is followed through copies, tuples, fusions and calls until it is a constant, or a linear function of
a part of the loop state. If that fails, the trip count is unknown.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from inspector.compiled.hlo.module import Computation, Instruction, Module, Path
from inspector.compiled.hlo.step_limit import StepLimit, TooLong
from inspector.core.collectives import OPERATIONS
from inspector.core.typed_json import LARGEST

# In the backend_config, as JSON or as a string of JSON.
_KNOWN_TRIP_COUNT = re.compile(r'\\?"known_trip_count\\?"\s*+:\s*+\{\s*+\\?"n\\?"\s*+:\s*+\\?"?(\d{1,18})\b')
_INTEGER = re.compile(r"[({\s]*+(-?\d{1,20})[)}\s]*+\Z")
# Instructions with the value of their first operand.
_SAME_VALUE = frozenset({
    "copy", "copy-start", "copy-done", "bitcast", "convert", "reshape", "broadcast",
    "transpose", "opt-barrier", "optimization-barrier", "add-dependency", "domain",
})  # fmt: skip
_CALLS = frozenset({"fusion", "call"})
_MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "EQ": "EQ", "NE": "NE"}
_NEGATED = {"LT": "GE", "LE": "GT", "GT": "LE", "GE": "LT", "EQ": "NE", "NE": "EQ"}
_BOUNDS = {
    f"{sign}{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if sign == "s" else (0, 2**bits - 1)
    for sign in "su"
    for bits in (2, 4, 8, 16, 32, 64)
}
# Limits for hostile text: depth of one search, and steps of all searches in proportion to the text.
_MAX_DEPTH = 100
_MIN_STEPS = 100_000
_STEPS_PER_INSTRUCTION = 50


class Linear(NamedTuple):
    """coefficient × state[part] + constant; `part` is None for a constant."""

    part: Path | None
    coefficient: int
    constant: int


@dataclass(frozen=True)
class CallSite:
    """One place where an instruction calls a computation."""

    caller: Computation
    instruction: Instruction
    role: str
    number: int


CallSites = Mapping[str, list[CallSite]]

# Instructions without called computations, whose attributes need not be parsed, and later parts of calls.
_NEVER_CALL = frozenset({
    "parameter", "constant", "get-tuple-element", "tuple", "bitcast", "copy", "broadcast",
    "reshape", "transpose", "convert", "iota", "add", "subtract", "multiply", "divide",
    "maximum", "minimum", "negate", "abs", "exponential", "log", "tanh", "sqrt", "rsqrt",
    "power", "sine", "cosine", "logistic", "compare", "select", "and", "or", "xor", "not",
    "clamp", "slice", "dynamic-slice", "dynamic-update-slice", "concatenate", "pad", "gather",
    "dot", "convolution", "reverse", "is-finite", "floor", "ceil", "sign", "remainder",
    "bitcast-convert", "shift-left", "shift-right-logical", "shift-right-arithmetic",
    "copy-start", "copy-done", "partition-id", "replica-id", "async-update", "async-done",
    *(operation.name for operation in OPERATIONS.values() if not operation.reduces),
})  # fmt: skip


def call_sites(module: Module) -> dict[str, list[CallSite]]:
    """Return the call sites of each computation; an asynchronous call counts at its start."""
    sites: dict[str, list[CallSite]] = defaultdict(list)
    for computation, instruction in module.instructions:
        if instruction.opcode not in _NEVER_CALL:
            for called in instruction.called:
                site = CallSite(computation, instruction, called.role, called.number)
                sites[called.computation].append(site)
    return dict(sites)


@dataclass(frozen=True)
class _Frame:
    """A computation and the call by which the search entered it, if any."""

    computation: Computation
    caller: _Frame | None = None
    call: Instruction | None = None
    loop: bool = False  # the parameter is the loop state


class Loops:
    """Trip counts of the loops of a module; each is derived once."""

    def __init__(self, module: Module, sites: CallSites) -> None:
        self._module = module
        self._sites = sites
        self._trip_counts: dict[tuple[str, str], int | None] = {}
        self._depth = 0
        self._limit = StepLimit(module, _MIN_STEPS, _STEPS_PER_INSTRUCTION)

    def trip_count(self, computation: Computation, loop: Instruction) -> int | None:
        """Return how often a while loop of a computation runs its body; None if unknown."""
        printed = _KNOWN_TRIP_COUNT.search(loop.attributes_text)
        if printed:
            return int(printed[1])
        key = (computation.name, loop.name)
        if key not in self._trip_counts:
            try:
                self._trip_counts[key] = self._trips(_Frame(computation), loop)
            except TooLong:
                self._trip_counts[key] = None
        return self._trip_counts[key]

    def _trips(self, outer: _Frame, loop: Instruction) -> int | None:
        condition = self._called(loop, "condition")
        root = condition.root if condition else None
        if condition is None or root is None:
            return None
        compared = self._comparison(_Frame(condition, loop=True), root)
        if compared is None:
            return None
        left, right, direction, dtype = compared
        left_run, right_run = (self._run(outer, loop, side) for side in (left, right))
        if left_run is None or right_run is None or (left_run[1] and right_run[1]):
            return None
        if right_run[1]:
            left_run, right_run, direction = right_run, left_run, _MIRRORED[direction]
        return _count(*left_run, right_run[0], direction, dtype)

    def _go_deeper(self, instruction: Instruction) -> None:
        self._limit.count(1, len(instruction.operands_text) + len(instruction.attributes_text))
        self._depth += 1
        if self._limit.exceeded or self._depth > _MAX_DEPTH:
            self._depth -= 1
            raise TooLong

    def _run(self, outer: _Frame, loop: Instruction, value: Linear) -> tuple[int, int] | None:
        """Return a value before the first iteration, and its increment per iteration."""
        if value.part is None:
            return value.constant, 0
        step = self._step(loop, value.part)
        start = self._operand(outer, loop, 0, value.part)
        if step is None or start is None or start.part is not None:
            return None
        return value.coefficient * start.constant + value.constant, value.coefficient * step

    def _step(self, loop: Instruction, part: Path) -> int | None:
        """Return the constant that each iteration adds to a part of the state; None if it does not."""
        body = self._called(loop, "body")
        if body is None or body.root is None:
            return None
        after = self._value(_Frame(body, loop=True), body.root, part)
        if after is None or after.part != part or after.coefficient != 1:
            return None
        return after.constant

    def _comparison(self, frame: _Frame, instruction: Instruction) -> tuple[Linear, Linear, str, str] | None:
        """(left, right, direction, type) of the comparison that a condition comes down to."""
        self._go_deeper(instruction)
        try:
            opcode = instruction.opcode
            if opcode == "compare":
                operands = instruction.operands
                direction = instruction.attributes.get("direction", "")
                if len(operands) != 2 or direction not in _MIRRORED:
                    return None
                left, right = (self._operand(frame, instruction, n, ()) for n in (0, 1))
                shape = frame.computation.shape_of(operands[0])
                if left is None or right is None:
                    return None
                return left, right, direction, shape.dtype if shape else ""
            if opcode == "not" or opcode in _SAME_VALUE:
                inner = self._instruction(frame, instruction, 0)
                compared = self._comparison(frame, inner) if inner else None
                if compared and opcode == "not":
                    compared = (*compared[:2], _NEGATED[compared[2]], compared[3])
                return compared
            if opcode == "parameter" and frame.caller and frame.call:
                inner = self._instruction(frame.caller, frame.call, instruction.number)
                return self._comparison(frame.caller, inner) if inner else None
            if opcode in _CALLS:
                entered = self._enter(frame, instruction)
                return self._comparison(*entered) if entered else None
            return None
        finally:
            self._depth -= 1

    def _instruction(self, frame: _Frame, instruction: Instruction, number: int | None) -> Instruction | None:
        """Return the instruction that is an operand; None if the text lacks it."""
        operands = instruction.operands
        name = operands[number].name if number is not None and number < len(operands) else None
        return frame.computation.by_name.get(name) if name else None

    def _operand(self, frame: _Frame, instruction: Instruction, number: int, path: Path) -> Linear | None:
        source = self._instruction(frame, instruction, number)
        return self._value(frame, source, path) if source else None

    def _value(self, frame: _Frame, instruction: Instruction, path: Path) -> Linear | None:
        """Return the part at `path` of an instruction's result as a linear function."""
        self._go_deeper(instruction)
        try:
            opcode = instruction.opcode
            if opcode == "constant":
                written = _INTEGER.match(instruction.operands_text)
                return Linear(None, 0, int(written[1])) if written and not path else None
            if opcode == "parameter":
                return self._parameter(frame, instruction, path)
            if opcode == "tuple":
                return self._operand(frame, instruction, path[0], path[1:]) if path else None
            if opcode == "get-tuple-element":
                index = instruction.tuple_index
                return None if index is None else self._operand(frame, instruction, 0, (index, *path))
            if opcode == "copy-start":  # (copy, original, context)
                if not path or path[0] > 1:
                    return None
                return self._operand(frame, instruction, 0, path[1:])
            if opcode == "copy-done":
                return self._operand(frame, instruction, 0, (0, *path))
            if opcode in _SAME_VALUE:
                return self._operand(frame, instruction, 0, path)
            if opcode in _CALLS:
                entered = self._enter(frame, instruction)
                return self._value(*entered, path) if entered else None
            if opcode == "while" and self._step(instruction, path) == 0:
                return self._operand(frame, instruction, 0, path)
            if opcode in ("add", "subtract", "multiply", "negate") and not path:
                return self._arithmetic(frame, instruction)
            return None
        finally:
            self._depth -= 1

    def _arithmetic(self, frame: _Frame, instruction: Instruction) -> Linear | None:
        values = []
        for number in range(len(instruction.operands)):
            value = self._operand(frame, instruction, number, ())
            if value is None:
                return None
            values.append(value)
        zero = Linear(None, 0, 0)
        if instruction.opcode == "negate":
            return _combined(zero, values[0], -1) if values else None
        if len(values) != 2:
            return None
        left, right = values
        if instruction.opcode != "multiply":
            return _combined(left, right, 1 if instruction.opcode == "add" else -1)
        if left.part is None:
            left, right = right, left
        return _combined(zero, left, right.constant) if right.part is None else None

    def _parameter(self, frame: _Frame, instruction: Instruction, path: Path) -> Linear | None:
        number = instruction.number
        if number is None:
            return None
        if frame.loop:
            return Linear(path, 1, 0) if number == 0 else None
        if frame.caller and frame.call:
            return self._operand(frame.caller, frame.call, number, path)
        # Not entered by a call: the value is known only if there is one call site.
        sites = self._sites.get(frame.computation.name, [])
        if len(sites) != 1 or frame.computation.entry:
            return None
        (site,) = sites
        call, role = site.instruction, site.role
        if role == "branch" and number == 0:
            number = site.number + 1
        elif role in ("body", "condition"):
            if number != 0 or self._step(call, path) != 0:
                return None
        elif role != "call" or call.opcode not in _CALLS:
            return None
        return self._operand(_Frame(site.caller), call, number, path)

    def _enter(self, frame: _Frame, call: Instruction) -> tuple[_Frame, Instruction] | None:
        callee = self._called(call, "call")
        if callee is None or callee.root is None:
            return None
        return _Frame(callee, frame, call), callee.root

    def _called(self, instruction: Instruction, role: str) -> Computation | None:
        names = [called.computation for called in instruction.called if called.role == role]
        return self._module.by_name.get(names[0]) if len(names) == 1 else None


def _combined(left: Linear, right: Linear, factor: int) -> Linear | None:
    """Return left + factor × right; None if they depend on different parts of the state."""
    constant = left.constant + factor * right.constant
    if left.part is not None and right.part is not None and left.part != right.part:
        return None
    coefficient = left.coefficient + factor * right.coefficient
    if not coefficient:
        return Linear(None, 0, constant)
    return Linear(left.part if left.part is not None else right.part, coefficient, constant)


def _count(first: int, step: int, limit: int, direction: str, dtype: str) -> int | None:
    """Return how often `value DIRECTION limit` holds for first, first + step, … before it fails."""
    lowest, highest = _BOUNDS.get(dtype, (-LARGEST, LARGEST))
    if direction in ("GT", "GE"):
        first, step, limit, lowest, highest = -first, -step, -limit, -highest, -lowest
        direction = _MIRRORED[direction]
    if direction == "EQ":
        return 0 if first != limit else 1 if step else None
    if direction == "NE":
        if first == limit:
            return 0
        if not step or (limit - first) % step or (limit - first) // step < 0:
            return None
        return (limit - first) // step
    if direction == "LE":
        limit += 1
    if first >= limit:
        return 0
    if step <= 0:
        return None  # ends by integer overflow, if at all
    count = -(-(limit - first) // step)
    return count if lowest <= first and first + count * step <= highest else None
