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
from typing import TypeAlias

from inspector.compiled.hlo.analysis import Analysis
from inspector.compiled.hlo.asynchronous import begun
from inspector.compiled.hlo.module import Computation, Instruction, Path, operand_names
from inspector.compiled.hlo.shapes import Shape
from inspector.core.collectives import BY_OPCODE

# XLA's numbers of memory spaces.
DEVICE, VMEM, HOST = 0, 1, 5

# Instructions that return their first operand.
_SAME = frozenset({"bitcast", "add-dependency", "domain", "opt-barrier", "optimization-barrier"})
_UPDATES = frozenset({"dynamic-update-slice", "scatter"})
# These pass values on without reading them.
_PASS_ON = _SAME | {"tuple", "get-tuple-element", "parameter"}
_WHOLE_ROLES = {"while": ("condition", "body"), "conditional": ("branch",), "call": ("call",)}
_DEEPEST = 50
LARGEST_PROGRAM = 400_000  # instructions
# Values below this share of the largest one are not placed into results.
_SMALL = 1e-4
# `{1}: (0, {2}, may-alias)` of a module, and `{}: (3, {})` of an instruction.
_ALIAS = re.compile(r"\{([\d,\s]*+)\}\s*+:\s*+\(\s*+(\d{1,6})\s*+,\s*+\{([\d,\s]*+)\}")
# Operands that an operation for TPUs overwrites with its results, in the backend_config.
_OVERWRITTEN = re.compile(r'"aliasing_operands":\{"lists":\[((?:\{"indices":\[[^\]]*+\]\},?+)++)\]')
_INDICES = re.compile(r'\{"indices":\[([^\]]*+)\]\}')
_NUMBER = re.compile(r"\d{1,6}")

# The number of a value, or the parts of a tuple.
Tree: TypeAlias = "int | list[Tree]"


@dataclass
class Buffer:
    """Memory that one value, or several values after each other, occupy.

    Attributes:
      shape: Shape of its largest value. None if unknown.
      value: Name of the instruction with this value as result, or as part of its result.
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
    return Reader(analysis, reuse).read(entry)


class Reader:
    """Follows the values of a program in the order of execution."""

    def __init__(self, analysis: Analysis, reuse: bool = True) -> None:
        self._module = analysis.module
        self._reuse = reuse
        self._buffers: list[Buffer] = []
        self._same: list[int] = []  # value → a value in the same buffer, itself for the first
        self._order: list[tuple[str, Instruction]] = []
        self._entered: set[str] = set()

    def read(self, entry: Computation) -> LiveValues:
        result = self._computation(entry, None, 0)
        for number, leaf in enumerate(leaves_of(result)):
            buffer = self._buffers[self._find(leaf)]
            buffer.result, buffer.last = number, len(self._order) - 1
        self._donate(entry, result)
        kept = [self._buffers[value] for value, same in enumerate(self._same) if same == value]
        if self._reuse:
            _reuse_results(kept)
        return LiveValues(tuple(kept), tuple(self._order))

    def _donate(self, entry: Computation, result: Tree) -> None:
        """Join the results with the arguments whose memory they reuse."""
        parameters = entry.parameters
        written = self._module.attributes.get("input_output_alias", "")
        for output, number, inside in _ALIAS.findall(written):
            parameter = parameters.get(int(number))
            given = None if parameter is None else self._trees[parameter.name]
            to, source = _at(result, _path(output)), _at(given, _path(inside))
            if to is not None and source is not None:
                self._join(to, source)

    def _computation(self, computation: Computation, given: Sequence[Tree] | None, depth: int) -> Tree:
        """Follow the instructions of a computation and return the tree of its result.

        given: the trees of its parameters; None for the entry.
        """
        trees: dict[str, Tree] = {}
        for instruction in computation.instructions:
            operands = [trees.get(name or "", []) for name in operand_names(instruction)]
            if instruction.opcode in ("parameter", "constant"):
                operands = []
            if instruction.opcode == "parameter":
                tree = self._parameter(instruction, given)
            else:
                tree = self._instruction(computation, instruction, operands, depth)
            trees[instruction.name] = tree
            self._order.append((computation.name, instruction))
            self._record(instruction, operands, tree, len(self._order) - 1)
        if given is None:
            self._trees = trees
        root = computation.root
        return trees.get(root.name, []) if root is not None else []

    def _record(self, instruction: Instruction, operands: Sequence[Tree], tree: Tree, position: int) -> None:
        """Record that an instruction at this position reads its operands and writes its result."""
        passes_on = instruction.opcode in _PASS_ON
        for leaf in leaves_of(list(operands)) if not passes_on else ():
            buffer = self._buffers[self._find(leaf)]
            buffer.last = max(buffer.last, position)
            if buffer.readers[-1:] != [position]:
                buffer.readers.append(position)
        passes_on |= instruction.opcode.endswith("-done")
        for leaf in leaves_of(tree):
            buffer = self._buffers[self._find(leaf)]
            if passes_on and buffer.first >= 0:
                continue
            if buffer.first < 0:
                buffer.first = position
            buffer.last = max(buffer.last, position)
            if buffer.writers[-1:] != [position]:
                buffer.writers.append(position)

    def _parameter(self, instruction: Instruction, given: Sequence[Tree] | None) -> Tree:
        """Return the tree of a parameter. `given` has those of its computation; None for the entry."""
        number = instruction.number or 0
        if given is not None and number < len(given):
            return given[number]
        tree = self._new(instruction.shape, instruction.name)
        if given is None:
            for leaf in leaves_of(tree):
                self._buffers[leaf].parameter = number
        return tree

    def _instruction(
        self, computation: Computation, instruction: Instruction, operands: list[Tree], depth: int
    ) -> Tree:
        """Return the tree of the result of an instruction that is not a parameter."""
        opcode = instruction.opcode
        first = _first(operands)
        if opcode == "tuple":
            return operands
        if opcode == "get-tuple-element":
            index = instruction.tuple_index
            element = _at(first, (index,)) if index is not None else None
            return self._new(instruction.shape, instruction.name) if element is None else element
        if opcode in _SAME:
            return operands if len(operands) > 1 else first
        if opcode.endswith(("-done", "-update")):
            return self._later(instruction, first)
        if opcode in _WHOLE_ROLES and depth < _DEEPEST:
            return self._called(instruction, operands, depth)
        if opcode.endswith("-start") or opcode in ("send", "recv"):
            return self._start(instruction, operands, depth)
        tree = self._new(instruction.shape, instruction.name)
        if opcode == "constant":
            for leaf in leaves_of(tree):
                self._buffers[leaf].constant = True
            return tree
        self._overwrite(instruction, operands, tree)
        return tree

    def _start(self, instruction: Instruction, operands: list[Tree], depth: int) -> Tree:
        """Return (operands, results, context …) of the beginning of an asynchronous operation."""
        opcode = instruction.opcode
        tree = self._new(instruction.shape, instruction.name)
        if opcode == "copy-start":
            return [*_parts(tree)[:1], *operands[:1], *_parts(tree)[2:]]
        if opcode == "recv":
            return tree
        if opcode == "send":
            return [*operands[:1], *_parts(tree)[1:]]
        operation = BY_OPCODE.get(opcode)
        if operation is not None and not operation.start_returns_operands:
            return tree  # the results alone
        whole: Tree = operands if len(operands) > 1 or _is_nested(tree) else _first(operands)
        parts = _parts(tree)
        results = parts[1] if len(parts) > 1 else []
        if opcode == "async-start":
            self._join(results, self._called(instruction, operands, depth))
        else:
            self._overwrite(begun(instruction), operands, results)
        return [whole, results, *parts[2:]]

    def _later(self, instruction: Instruction, first: Tree) -> Tree:
        """Return the result of a `-done` or `-update` from the tree of its start."""
        if instruction.opcode.endswith("-update") or isinstance(first, int):
            return first
        if instruction.opcode == "copy-done":
            return first[0] if first else []
        if instruction.opcode in ("send-done", "recv-done"):
            return [first[0]] if first else []
        shape = instruction.shape
        if len(first) > 1 and _fits(first[1], shape):
            return first[1]
        return first if _fits(first, shape) else self._new(shape, instruction.name)

    def _called(self, instruction: Instruction, operands: list[Tree], depth: int) -> Tree:
        """Follow the computations that an instruction executes, and return its result."""
        opcode = instruction.opcode
        roles = _WHOLE_ROLES.get(opcode, ("call",))
        called = [call for role in roles for call in instruction.called if call.role == role]
        results: list[Tree] = []
        for number, call in enumerate(called):
            computation = self._module.by_name.get(call.computation)
            if computation is None or call.computation in self._entered:
                results.append(self._new(instruction.shape, instruction.name))
                continue
            self._entered.add(call.computation)
            given = operands[number + 1 : number + 2] if opcode == "conditional" else operands
            results.append(self._computation(computation, given, depth + 1))
        if opcode == "while":
            state = _first(operands)
            if results:
                self._join(state, results[-1])
            return state
        if not results:
            return self._new(instruction.shape, instruction.name)
        for other in results[1:]:
            self._join(results[0], other)
        return results[0]

    def _overwrite(self, instruction: Instruction, operands: list[Tree], tree: Tree) -> None:
        """Join results with the operands whose buffers they overwrite."""
        for to, number in self._in_place(instruction):
            source = operands[number] if number < len(operands) else None
            result = _at(tree, to)
            if isinstance(result, int) and isinstance(source, int):
                self._join(result, source)

    def _in_place(self, instruction: Instruction) -> Iterator[tuple[Path, int]]:
        """Yield (part of the result, number of the operand) of each result that is written in place."""
        opcode, written = instruction.opcode, instruction.attributes_text
        if opcode in _UPDATES:
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
        elif opcode == "fusion":
            for called in instruction.called:
                fused = self._module.by_name.get(called.computation)
                if fused is not None:
                    yield from _updated_parameters(fused)

    def _new(self, shape: Shape | None, value: str) -> Tree:
        """Return the tree of new values of a shape, which the instruction `value` has as its result."""
        if shape is not None and shape.parts is not None:
            return [self._new(part, value) for part in shape.parts]
        self._same.append(len(self._same))
        self._buffers.append(Buffer(shape, value))
        return len(self._same) - 1

    def _find(self, value: int) -> int:
        while self._same[value] != value:
            self._same[value] = value = self._same[self._same[value]]
        return value

    def _join(self, tree: Tree, other: Tree) -> None:
        """Put the values of two trees into the same buffers."""
        if isinstance(tree, int) and isinstance(other, int):
            self._join_values(self._find(tree), self._find(other))
        elif isinstance(tree, list) and isinstance(other, list):
            for left, right in zip(tree, other, strict=False):
                self._join(left, right)

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
            kept.shape, kept.value = gone.shape, gone.value
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


def _updated_parameters(fused: Computation) -> Iterator[tuple[Path, int]]:
    """Yield (part of the result, number of the parameter) of the arrays that a fusion updates in place."""
    root = fused.root
    if root is None:
        return
    outputs: list[tuple[Path, Instruction | None]] = [((), root)]
    if root.opcode == "tuple":
        outputs = [
            ((number,), fused.by_name.get(name or "")) for number, name in enumerate(operand_names(root))
        ]
    for path, output in outputs:
        at, updated = output, False
        while at is not None and (at.opcode == "bitcast" or at.opcode in _UPDATES):
            updated |= at.opcode in _UPDATES
            at = fused.operand(at)
        if updated and at is not None and at.opcode == "parameter" and at.number is not None:
            yield path, at.number


def leaves_of(tree: Tree) -> list[int]:
    """Return the values of a tree, in order."""
    if isinstance(tree, int):
        return [tree]
    leaves: list[int] = []
    for part in tree:
        leaves += [part] if isinstance(part, int) else leaves_of(part)
    return leaves


def _at(tree: Tree | None, path: Sequence[int]) -> Tree | None:
    for index in path:
        if not isinstance(tree, list) or index >= len(tree):
            return None
        tree = tree[index]
    return tree


def _parts(tree: Tree) -> list[Tree]:
    return tree if isinstance(tree, list) else [tree]


def _first(trees: Sequence[Tree]) -> Tree:
    return trees[0] if trees else []


def _is_nested(tree: Tree) -> bool:
    """Return whether the operands of a start are a tuple of one."""
    return isinstance(tree, list) and bool(tree) and isinstance(tree[0], list)


def _fits(tree: Tree, shape: Shape | None) -> bool:
    """Return whether a tree has the parts of a shape."""
    if shape is None or shape.parts is None:
        return isinstance(tree, int)
    return isinstance(tree, list) and len(tree) == len(shape.parts)


def _path(written: str) -> Path:
    return tuple(int(index) for index in written.split(",") if index.strip())
