"""The buffers of a scheduled program, and from which instruction to which each is in use.

XLA prints a scheduled module in the order of execution. A value occupies its buffer from the instruction
that defines it to the last one that uses it. Values that XLA keeps in one buffer count as one: the parts of a
tuple, the state of a loop, an array that is updated in place, and both ends of an asynchronous operation.
Arguments, results and constants occupy memory during the whole program. Before a result is written, its
memory can hold other values; the newest compiler for TPUs does without.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from inspector.hlo.accesses import arrays_in_place
from inspector.hlo.analysis import Analysis
from inspector.hlo.asynchronous import begun
from inspector.hlo.dataflow import Forward, Tree, as_tuple, at, leaves, tree_of
from inspector.hlo.entry import layouts
from inspector.hlo.module import Computation, Instruction, Path, TooLong, operand_names
from inspector.hlo.opcodes import UPDATES
from inspector.hlo.shapes import Shape
from inspector.records.collectives import BY_OPCODE

# XLA's numbers of memory spaces.
DEVICE, VMEM, HOST = 0, 1, 5

# These pass values on without reading them.
_PASS_ON = frozenset({"bitcast", "pass", "tuple", "element", "parameter"})
LARGEST_PROGRAM = 400_000  # instructions
# Values below this share of the largest one are not placed into results.
_SMALL = 1e-4
# `{1}: (0, {2}, may-alias)` of a module, and `{}: (3, {})` of an instruction.
_ALIAS = re.compile(r"\{([\d,\s]*+)\}\s*+:\s*+\(\s*+(\d{1,6})\s*+,\s*+\{([\d,\s]*+)\}")
# Operands that an operation for TPUs overwrites with its results, in the backend_config.
_OVERWRITTEN = re.compile(r'"aliasing_operands":\{"lists":\[((?:\{"indices":\[[^\]]*+\]\},?+)++)\]')
_INDICES = re.compile(r'\{"indices":\[([^\]]*+)\]\}')
_NUMBER = re.compile(r"\d{1,6}")


@dataclass
class Buffer:
    """Memory that one value, or several values after each other, occupy.

    Attributes:
      shape: Shape of its largest value. None if unknown.
      value: Name of the instruction with this value as result, or as part of its result.
      part: Number of this value among the arrays of that result.
      first: Position of the first instruction that writes it.
      last: Position of the last instruction that uses it.
      writers: Positions of the instructions that write it.
      readers: Positions of the instructions that read it.
      parameter: Number of the program's parameter. None if it is not an argument.
      result: Number of the program's result in it. None if the program does not return it.
      constant: Whether it is a constant of the program.
      inside: Whether it is in the memory of a result, before the result is written.
    """

    shape: Shape | None
    value: str = ""
    first: int = -1
    last: int = -1
    writers: list[int] = field(default_factory=list)
    readers: list[int] = field(default_factory=list)
    parameter: int | None = None
    result: int | None = None
    constant: bool = False
    inside: bool = False
    part: int = 0

    @property
    def bytes(self) -> int:
        """Bytes with the padding of the layout; 0 if unknown."""
        return (self.shape.padded_bytes or 0) if self.shape is not None else 0

    @property
    def space(self) -> int:
        """XLA's number of the memory: DEVICE, VMEM, HOST or another one."""
        return DEVICE if self.shape is None else self.shape.memory_space

    @property
    def whole_program(self) -> bool:
        """Whether its memory is in use from the first to the last instruction."""
        return self.parameter is not None or self.result is not None or self.constant


@dataclass(frozen=True)
class LiveValues:
    """All buffers of a program, and its instructions in the order of execution.

    A loop body occurs once, before the loop itself.
    """

    buffers: tuple[Buffer, ...]
    instructions: tuple[tuple[str, Instruction], ...]  # (computation, instruction)


def live_values(analysis: Analysis, reuse: bool = True) -> LiveValues | None:
    """Return the buffers of a module; None if its text is truncated, not scheduled or too large.

    reuse: whether the memory of a result holds other values before the result is written.
    """
    entry = analysis.module.complete_entry(scheduled=True, largest=LARGEST_PROGRAM)
    if entry is None:
        return None
    try:
        return LiveValueReader(analysis, reuse).read(entry)
    except TooLong:
        return None


class LiveValueReader(Forward[int]):
    """Follows the values of a program, as numbers, in the order of execution."""

    enters = frozenset({"call"})
    rounds = 1
    once = True

    def __init__(self, analysis: Analysis, reuse: bool = True) -> None:
        super().__init__(analysis.module)
        self._reuse = reuse
        self._buffers: list[Buffer] = []
        self._same: list[int] = []  # value → a value in the same buffer, itself for the first
        self._order: list[tuple[str, Instruction]] = []
        self._arguments: dict[int, Tree[int]] = {}

    def read(self, entry: Computation) -> LiveValues:
        result = self.result_of(entry, ())
        for number, leaf in enumerate(leaves(result)):
            buffer = self._buffers[self._find(leaf)]
            buffer.result, buffer.last = number, len(self._order) - 1
        given = [leaf for _, value in sorted(self._arguments.items()) for leaf in leaves(value)]
        # The instructions of a program for CPUs do not have the memory spaces of arguments and results.
        for values, shapes in zip((given, leaves(result)), layouts(self._module), strict=True):
            for leaf, shape in zip(values, shapes, strict=False):
                if shape.memory_space == HOST:
                    self._buffers[self._find(leaf)].shape = shape
        self._donate(result)
        kept = [self._buffers[value] for value, same in enumerate(self._same) if same == value]
        if self._reuse:
            _reuse_results(kept)
        return LiveValues(tuple(kept), tuple(self._order))

    def _donate(self, result: Tree[int]) -> None:
        """Join the results with the arguments whose memory they reuse."""
        written = self._module.attributes.get("input_output_alias", "")
        for output, number, inside in _ALIAS.findall(written):
            to, argument = at(result, _path(output)), self._arguments.get(int(number), ())
            source = at(argument, _path(inside))
            if to is not None and source is not None:
                self.join(to, source)

    def unknown(self, instruction: Instruction | None) -> Tree[int]:
        return () if instruction is None else self._new(instruction.shape, instruction.name)

    def note(
        self, computation: Computation, instruction: Instruction, operands: list[Tree[int]], value: Tree[int]
    ) -> None:
        if instruction.does == "parameter" and self._depth == 1:
            number = instruction.number or 0
            self._arguments[number] = value
            for leaf in leaves(value):
                self._buffers[leaf].parameter = number
        self._order.append((computation.name, instruction))
        self._record(instruction, operands, value, len(self._order) - 1)

    def _record(
        self, instruction: Instruction, operands: Sequence[Tree[int]], value: Tree[int], position: int
    ) -> None:
        """Record that an instruction at this position reads its operands and writes its result."""
        passes_on = instruction.does in _PASS_ON
        for leaf in leaves(*operands) if not passes_on else ():
            buffer = self._buffers[self._find(leaf)]
            buffer.last = max(buffer.last, position)
            if buffer.readers[-1:] != [position]:
                buffer.readers.append(position)
        passes_on |= instruction.opcode.endswith("-done")
        for leaf in leaves(value):
            buffer = self._buffers[self._find(leaf)]
            if passes_on and buffer.first >= 0:
                continue
            if buffer.first < 0:
                buffer.first = position
            buffer.last = max(buffer.last, position)
            if buffer.writers[-1:] != [position]:
                buffer.writers.append(position)

    def loop(self, computation: Computation, instruction: Instruction, state: Tree[int]) -> Tree[int]:
        for condition in self._module.callees(instruction, "condition"):
            self.call(condition, instruction, [state])
        return super().loop(computation, instruction, state)

    def join(self, value: Tree[int], other: Tree[int]) -> Tree[int]:
        """Put the values of two trees into the same buffers."""
        if isinstance(value, int) and isinstance(other, int):
            self._join_values(self._find(value), self._find(other))
        elif isinstance(value, tuple) and isinstance(other, tuple):
            for left, right in zip(value, other, strict=False):
                self.join(left, right)
        return value

    def transfer(
        self, computation: Computation, instruction: Instruction, operands: list[Tree[int]]
    ) -> Tree[int]:
        opcode, does = instruction.opcode, instruction.does
        if does == "bitcast":
            return _first(operands)
        if does == "done":
            return self._later(instruction, _first(operands))
        if opcode.endswith("-start") or opcode in ("send", "recv"):
            return self._start(instruction, operands)
        value = self.unknown(instruction)
        if does == "constant":
            for leaf in leaves(value):
                self._buffers[leaf].constant = True
        else:
            self._overwrite(instruction, operands, value)
        return value

    def _start(self, instruction: Instruction, operands: list[Tree[int]]) -> Tree[int]:
        """Return (operands, results, context …) of the beginning of an asynchronous operation."""
        opcode = instruction.opcode
        value = self.unknown(instruction)
        parts = as_tuple(value)
        if opcode == "copy-start":
            return (*parts[:1], *operands[:1], *parts[2:])
        if opcode == "recv":
            return value
        if opcode == "send":
            return (*operands[:1], *parts[1:])
        operation = BY_OPCODE.get(opcode)
        if operation is not None and not operation.start_returns_operands:
            return value  # the results alone
        nested = bool(parts) and isinstance(value, tuple) and isinstance(parts[0], tuple)
        whole = tuple(operands) if len(operands) > 1 or nested else _first(operands)
        results: Tree[int] = parts[1] if len(parts) > 1 else ()
        callee = self._module.callee(instruction, "call") if opcode == "async-start" else None
        if callee is not None:
            self.join(results, self.call(callee, instruction, operands))
        else:
            self._overwrite(begun(instruction), operands, results)
        return (whole, results, *parts[2:])

    def _later(self, instruction: Instruction, first: Tree[int]) -> Tree[int]:
        """Return the result of a `-done` or `-update` from the tree of its start."""
        if instruction.opcode.endswith("-update") or isinstance(first, int):
            return first
        if instruction.opcode == "copy-done":
            return first[0] if first else ()
        if instruction.opcode in ("send-done", "recv-done"):
            return first[:1]
        shape = instruction.shape
        if len(first) > 1 and _fits(first[1], shape):
            return first[1]
        return first if _fits(first, shape) else self.unknown(instruction)

    def _overwrite(self, instruction: Instruction, operands: list[Tree[int]], value: Tree[int]) -> None:
        """Join results with the operands whose buffers they overwrite."""
        for to, number in self._in_place(instruction):
            source = operands[number] if number < len(operands) else None
            result = at(value, to)
            if isinstance(result, int) and isinstance(source, int):
                self.join(result, source)

    def _in_place(self, instruction: Instruction) -> Iterator[tuple[Path, int]]:
        """Yield (part of the result, number of the operand) of each result that is written in place."""
        written = instruction.attributes_text
        if instruction.does in UPDATES:
            yield (), 0
        if "output_to_operand_aliasing" in written:
            aliasing = instruction.attributes.get("output_to_operand_aliasing", "")
            for output, number, inside in _ALIAS.findall(aliasing):
                if not _path(inside):
                    yield _path(output), int(number)
        # The compiler for TPUs writes it down. The numbers of the results follow those of the operands.
        if overwritten := _OVERWRITTEN.search(written):
            count = len(operand_names(instruction))
            alone = not (instruction.shape_text or "").startswith("(")
            for indices in _INDICES.findall(overwritten[1]):
                numbers = [int(digits) for digits in _NUMBER.findall(indices)]
                sources = [source for source in numbers if source < count]
                for to in numbers:
                    if to >= count and sources:
                        yield () if alone else (to - count,), sources[0]
        elif instruction.does == "fusion":
            for fused in self._module.callees(instruction):
                is_tuple = fused.root is not None and fused.root.does == "tuple"
                arrays = arrays_in_place(fused)
                for number, output in enumerate(fused.outputs):
                    updated, array = arrays.get(output.name if output else "", (False, None))
                    if updated and array and array.does == "parameter" and array.number is not None:
                        yield (number,) if is_tuple else (), array.number

    def _new(self, shape: Shape | None, value: str) -> Tree[int]:
        """Return the tree of new values of a shape, which the instruction `value` has as its result."""
        start = len(self._same)

        def buffer(part: Shape | None) -> int:
            self._same.append(len(self._same))
            self._buffers.append(Buffer(part, value, part=len(self._buffers) - start))
            return len(self._same) - 1

        return tree_of(shape, buffer)

    def _find(self, value: int) -> int:
        while self._same[value] != value:
            self._same[value] = value = self._same[self._same[value]]
        return value

    def _join_values(self, value: int, other: int) -> None:
        if value == other:
            return
        kept, gone = self._buffers[value], self._buffers[other]
        self._same[other] = value
        defined = [buffer for buffer in (kept, gone) if buffer.first >= 0]
        kept.first = min((buffer.first for buffer in defined), default=-1)
        kept.last = max((buffer.last for buffer in defined), default=-1)
        kept.writers = sorted({*kept.writers, *gone.writers})
        kept.readers = sorted({*kept.readers, *gone.readers})
        if gone.bytes > kept.bytes:
            kept.shape, kept.value, kept.part = gone.shape, gone.value, gone.part
        if kept.parameter is None:
            kept.parameter = gone.parameter
        if kept.result is None:
            kept.result = gone.result
        kept.constant = kept.constant and gone.constant


def _reuse_results(buffers: Sequence[Buffer]) -> None:
    """Put other values into the memory of results that are written later, as XLA does.

    XLA places the largest values first, each into the smallest result that has room for it while it is in
    use (`BufferAssigner::MaybeAssignBuffer`).
    """
    largest = max((buffer.bytes for buffer in buffers), default=0)
    results = [
        buffer
        for buffer in buffers
        if buffer.result is not None and buffer.parameter is None and buffer.first > 0 and buffer.bytes
    ]
    results.sort(key=lambda result: result.bytes)
    # By memory: the bytes of each result, and the times at which its memory is taken.
    places: dict[int, tuple[list[int], list[list[tuple[int, int]]]]] = {}
    for result in results:
        sizes, taken = places.setdefault(result.space, ([], []))
        sizes.append(result.bytes)
        taken.append([(result.first, result.last)])
    for buffer in sorted(buffers, key=lambda value: -value.bytes):
        if buffer.bytes < _SMALL * largest or not buffer.bytes or not results:
            break
        if buffer.whole_program or buffer.first < 0:
            continue
        sizes, taken = places.get(buffer.space, ([], []))
        first, last = use = (buffer.first, buffer.last)
        for times in taken[bisect.bisect_left(sizes, buffer.bytes) :]:
            place = bisect.bisect_left(times, use)
            if (place == 0 or times[place - 1][1] < first) and (
                place == len(times) or last < times[place][0]
            ):
                times.insert(place, use)
                buffer.inside = True
                break


def _first(trees: Sequence[Tree[int]]) -> Tree[int]:
    return trees[0] if trees else ()


def _fits(tree: Tree[int], shape: Shape | None) -> bool:
    """Return whether a tree has the parts of a shape."""
    if shape is None or shape.parts is None:
        return isinstance(tree, int)
    return isinstance(tree, tuple) and len(tree) == len(shape.parts)


def _path(written: str) -> Path:
    return tuple(int(index) for index in written.split(",") if index.strip())
