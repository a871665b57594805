"""Trip counts of while loops: the compiler's `known_trip_count`, or else derived from the condition.

A value is followed through copies, tuples, fusions and calls until it is a constant, or a linear function of
a part of the loop state. If that fails, the trip count is unknown.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from inspector.hlo.dataflow import Backward, CallFrame, CallSites, Value
from inspector.hlo.module import Computation, Instruction, Module, Path, StepLimit, TooLong
from inspector.hlo.opcodes import SAME_DATA
from inspector.records.typed_json import LARGEST

# In the backend_config, as JSON or as a string of JSON.
_KNOWN_TRIP_COUNT = re.compile(r'\\?"known_trip_count\\?"\s*+:\s*+\{\s*+\\?"n\\?"\s*+:\s*+\\?"?(\d{1,18})\b')
_INTEGER = re.compile(r"[({\s]*+(-?\d{1,20})[)}\s]*+\Z")
# Instructions with the value of their first operand, if it is a scalar.
_SAME_VALUE = SAME_DATA | {"broadcast", "fusion", "call"}
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


class Loops:
    """Trip counts of the loops of a module; each is derived once."""

    def __init__(self, module: Module, sites: CallSites) -> None:
        self._module = module
        self._sites = sites
        self._backward = Backward(module, sites)
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
                self._trip_counts[key] = self._trips(Value(CallFrame(computation), loop))
            except TooLong:
                self._trip_counts[key] = None
        return self._trip_counts[key]

    def most_trips(self, computation: Computation, loop: Instruction) -> int | None:
        """Return how often a while loop runs its body at most; None if its condition does not limit that.

        A loop that generates tokens ends at the last position of its cache, or earlier if data says so.
        """
        root = self._root_of(loop, "condition")
        try:
            conditions = [] if root is None else self._conjuncts(root)
            counts = [
                self._trips_of(Value(CallFrame(computation), loop), condition) for condition in conditions
            ]
        except TooLong:
            return None
        return min((count for count in counts if count is not None), default=None)

    def _conjuncts(self, value: Value) -> list[Value]:
        """Return the conditions that must all hold if a value is true."""
        with self._one_step(value.instruction):
            if value.instruction.opcode == "and":
                operands = self._backward.operands(value)
                return [condition for operand in operands for condition in self._conjuncts(operand)]
            if value.instruction.opcode in ("compare", "not"):
                return [value]
            sources = self._backward.sources(value, _SAME_VALUE)
            return self._conjuncts(sources[0]) if len(sources) == 1 else []

    def _trips(self, loop: Value) -> int | None:
        root = self._root_of(loop.instruction, "condition")
        return None if root is None else self._trips_of(loop, root)

    def _trips_of(self, loop: Value, condition: Value) -> int | None:
        compared = self._comparison(condition)
        if compared is None:
            return None
        left, right, direction, dtype = compared
        left_run, right_run = (self._run(loop, side) for side in (left, right))
        if left_run is None or right_run is None or (left_run[1] and right_run[1]):
            return None
        if right_run[1]:
            left_run, right_run, direction = right_run, left_run, _MIRRORED[direction]
        return _count(*left_run, right_run[0], direction, dtype)

    @contextlib.contextmanager
    def _one_step(self, instruction: Instruction) -> Iterator[None]:
        """Count a step into the value of an instruction."""
        self._limit.count(1, len(instruction.operands_text) + len(instruction.attributes_text))
        if self._depth >= _MAX_DEPTH:
            raise TooLong
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def _run(self, loop: Value, value: Linear) -> tuple[int, int] | None:
        """Return a value before the first iteration, and its increment per iteration."""
        if value.part is None:
            return value.constant, 0
        step = self._step(loop.instruction, value.part)
        start = self._only(self._backward.operands(loop, slice(1), value.part))
        if step is None or start is None or start.part is not None:
            return None
        return value.coefficient * start.constant + value.constant, value.coefficient * step

    def _step(self, loop: Instruction, part: Path) -> int | None:
        """Return the constant that each iteration adds to a part of the state; None if it does not."""
        root = self._root_of(loop, "body")
        after = None if root is None else self._value(root._replace(path=part))
        if after is None or after.part != part or after.coefficient != 1:
            return None
        return after.constant

    def _root_of(self, loop: Instruction, role: str) -> Value | None:
        """Return the result of the body or condition of a loop, whose parameter is the state."""
        computations = self._module.callees(loop, role)
        if len(computations) != 1 or computations[0].root is None:
            return None
        return Value(CallFrame(computations[0], open=False), computations[0].root)

    def _comparison(self, value: Value) -> tuple[Linear, Linear, str, str] | None:
        """(left, right, direction, type) of the comparison that a condition comes down to."""
        instruction = value.instruction
        with self._one_step(instruction):
            if instruction.opcode == "compare":
                operands = self._backward.operands(value)
                direction = instruction.attributes.get("direction", "")
                if len(operands) != 2 or direction not in _MIRRORED:
                    return None
                left, right = map(self._value, operands)
                shape = operands[0].instruction.shape
                if left is None or right is None:
                    return None
                return left, right, direction, shape.dtype if shape else ""
            negated = instruction.opcode == "not"
            sources = self._backward.sources(value, _SAME_VALUE | {"elementwise"} if negated else _SAME_VALUE)
            compared = self._comparison(sources[0]) if len(sources) == 1 else None
            return (*compared[:2], _NEGATED[compared[2]], compared[3]) if compared and negated else compared

    def _only(self, sources: Sequence[Value]) -> Linear | None:
        """Return the value of the only source; None if there are others."""
        return self._value(sources[0]) if len(sources) == 1 else None

    def _value(self, value: Value) -> Linear | None:
        """Return a value as a linear function."""
        frame, instruction, path = value
        with self._one_step(instruction):
            does = instruction.does
            if does == "constant":
                written = _INTEGER.match(instruction.operands_text)
                return Linear(None, 0, int(written[1])) if written and not path else None
            if does == "while":
                unchanged = self._step(instruction, path) == 0
                return self._only(self._backward.operands(value, slice(1), path)) if unchanged else None
            if does == "elementwise":
                return None if path else self._arithmetic(value)
            if does == "parameter" and not frame.open:
                return Linear(path, 1, 0) if instruction.number == 0 else None
            sources = self._backward.sources(value, _SAME_VALUE)
            if does == "parameter" and frame.caller is None:
                # Not entered by a call: the value is known only if there is one call site.
                sites = self._sites.get(frame.computation.name, ())
                loop = next((site.instruction for site in sites if site.role in ("body", "condition")), None)
                if loop is not None:  # the initial state, and perhaps that after an iteration
                    sources = sources[:1] if self._step(loop, path) == 0 else []
            return self._only(sources)

    def _arithmetic(self, value: Value) -> Linear | None:
        opcode = value.instruction.opcode
        if opcode not in ("add", "subtract", "multiply", "negate"):
            return None
        values = []
        for operand in self._backward.operands(value):
            operand_value = self._value(operand)
            if operand_value is None:
                return None
            values.append(operand_value)
        zero = Linear(None, 0, 0)
        if opcode == "negate":
            return _combined(zero, values[0], -1) if values else None
        if len(values) != 2:
            return None
        left, right = values
        if opcode != "multiply":
            return _combined(left, right, 1 if opcode == "add" else -1)
        if left.part is None:
            left, right = right, left
        return _combined(zero, left, right.constant) if right.part is None else None


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
