"""The flow of data through a program: back from a value to those it is made from, and forward from arguments.

Tuples, calls, fusions, loops, conditionals and asynchronous operations are followed here. An analysis names
the kinds of operations that `Backward` follows, or gives `Forward` a transfer function.
"""

from __future__ import annotations

import contextlib
import functools
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from inspector.hlo import opcodes
from inspector.hlo.asynchronous import DONE, begun
from inspector.hlo.module import Computation, Instruction, Module, Path, StepLimit, TooLong, operand_names
from inspector.hlo.opcodes import ELEMENTWISE, KEEPS_DATA, MOVES, Does, may_call
from inspector.hlo.shapes import Shape
from inspector.records.collectives import BY_OPCODE

_ALL, _FIRST = slice(None), slice(1)
_MAX_DEPTH = 100  # of nested calls
_LEAST_STEPS, _STEPS_PER_INSTRUCTION = 20_000, 40  # for hostile text
# Equal operands give equal results.
_NAMELESS = MOVES | {"constant", "iota", "broadcast", "element"}
_PURE = _NAMELESS | ELEMENTWISE | {"compare", "reduce", "gather", "device"}


@dataclass(frozen=True)
class CallSite:
    """A call of a computation by an instruction."""

    caller: Computation
    instruction: Instruction
    role: str
    number: int


CallSites = Mapping[str, list[CallSite]]


def call_sites(module: Module) -> dict[str, list[CallSite]]:
    """Return the call sites of each computation; an asynchronous call counts at its start."""
    sites: dict[str, list[CallSite]] = defaultdict(list)
    for computation, instruction in module.instructions:
        if may_call(instruction.opcode):
            for called in instruction.called:
                site = CallSite(computation, instruction, called.role, called.number)
                sites[called.computation].append(site)
    return dict(sites)


def clones(module: Module, sites: CallSites) -> dict[str, set[str]]:
    """Return, by computation, the instructions whose value another instruction computes as well.

    A compiler clones cheap operations into each fusion that uses them. A clone has the attributes, the name
    in the model and the operands of the other one. An operation that the model repeats has another name.
    The result is empty if fusions run each other too often.
    """
    inside = {
        name for name, calls in sites.items() if all(call.instruction.does == "fusion" for call in calls)
    }
    limit = StepLimit(module, _LEAST_STEPS, _STEPS_PER_INSTRUCTION)
    numbers: dict[Hashable, int] = {}  # of values: equal for equal ones
    tuples: dict[int, tuple[int, ...]] = {}  # the values in those that are tuples
    cloned: dict[str, set[str]] = defaultdict(set)
    needed: set[tuple[str, str]] = set()

    def number(*key: Hashable) -> int:
        return numbers.setdefault(key, len(numbers))

    def value(computation: Computation, given: Sequence[int], seen: set[int], depth: int = 0) -> int:
        """Return the number of the result."""
        values: dict[str | None, int] = {}
        for instruction in computation.instructions:
            does = instruction.does
            constant = instruction.operands_text if does == "constant" else ""
            names = () if constant else operand_names(instruction)
            limit.count(1 + len(names))
            operands = tuple([values[n] if n in values else number(computation.name, n) for n in names])
            fused = module.callee(instruction, "call") if does == "fusion" else None
            whole = tuples.get(operands[0], ()) if operands else ()
            element = instruction.tuple_index if whole else None
            if does == "parameter" and instruction.number in range(len(given)):
                result = given[instruction.number or 0]
            elif does == "tuple":
                tuples[result := number("tuple", operands)] = operands
            elif element is not None and element < len(whole):
                result = whole[element]
            elif fused is not None and depth < _MAX_DEPTH:
                result = value(fused, operands, seen, depth + 1)
            else:
                key: tuple[Hashable, ...] = (computation.name, instruction.name)
                if does in _PURE:
                    # The layout is that of the fusion, and a moved value can have the name of its user.
                    shape = (instruction.shape_text or "").partition("{")[0]
                    text = instruction.attributes_text.partition("metadata=")[0].strip(", ")
                    computes = does not in _NAMELESS or opcodes.TABLE[instruction.opcode].flops
                    name = instruction.metadata.get("op_name") if computes else None
                    key = (instruction.opcode, shape, operands, text, name, constant)
                result = number(*key)
                if result in seen:
                    cloned[computation.name].add(instruction.name)
                else:
                    seen.add(result)
                    needed.add((computation.name, instruction.name))
            values[instruction.name] = result
        root = None if computation.root is None else computation.root.name
        return values[root] if root in values else number(computation.name, root)

    with contextlib.suppress(TooLong):
        for computation in module.computations:
            if computation.name not in inside and any(op.does == "fusion" for op in computation.instructions):
                value(computation, (), set())
        # Equal fusions can share a computation.
        return {name: {n for n in names if (name, n) not in needed} for name, names in cloned.items()}
    return {}


class CallFrame(NamedTuple):
    """A computation and the call by which it was entered; None if the search started inside it.

    open: whether the search leaves the computation for those that call it.
    """

    computation: Computation
    caller: CallFrame | None = None
    call: Instruction | None = None
    depth: int = 0
    open: bool = True

    @property
    def calls(self) -> tuple[int, ...]:
        """The identity of the calls that lead to this frame, the innermost first."""
        calls, frame = [], self
        while frame.call is not None and frame.caller is not None:
            calls.append(id(frame.call))
            frame = frame.caller
        return tuple(calls)


class Value(NamedTuple):
    """The result of an instruction, or the part of it at `path`."""

    frame: CallFrame
    instruction: Instruction
    path: Path = ()

    def key(self) -> tuple[str, str, Path]:
        """Return the computation, the instruction and the path, by whichever calls it was reached."""
        return self.frame.computation.name, self.instruction.name, self.path


class Backward:
    """Follows values of a program back to those that they are made from.

    limit: counts the text that the search reads.

    >>> from inspector import hlo
    >>> from inspector.hlo.analysis import Analysis
    >>> (module,) = hlo.parser.parse('''HloModule m
    ... ENTRY main {
    ...   x = f32[8,4] parameter(0)
    ...   y = f32[4,8] transpose(x), dimensions={1,0}
    ...   ROOT z = (f32[4,8], f32[8,4]) tuple(y, x)
    ... }''')
    >>> backward = Analysis(module).backward
    >>> first, _ = backward.results(2)
    >>> [value.instruction.name for value in backward.chain(first, opcodes.SAME_DATA)]
    ['z', 'y', 'x']
    """

    def __init__(self, module: Module, sites: CallSites, limit: StepLimit | None = None) -> None:
        self._module = module
        self._sites = sites
        self._limit = limit
        self._operands_of: dict[tuple[str, str], list[Instruction]] = {}

    def chain(self, value: Value, through: Container[str], steps: int = 12) -> Iterator[Value]:
        """Yield a value, the one that has its data, and so on, as long as there is one alone.

        Of an array in which a part is updated, the new part is the next one.
        """
        for _ in range(steps):
            yield value
            if value.instruction.does == "update" and "update" in through:
                sources = self.operands(value, slice(1, 2))
            else:
                sources = self.sources(value, through)
            if len(sources) != 1:
                return
            (value,) = sources

    def sources(self, value: Value, through: Container[str]) -> list[Value]:
        """Return the values that one instruction makes this one from.

        Tuples, barriers, parameters, asynchronous operations and dimensions of size 1 are always followed.

        Args:
          through: the other kinds of operations that are followed, such as `collective` and `fusion`.

        Raises:
          TooLong: calls or tuples are nested too deeply.
        """
        instruction, path = value.instruction, value.path
        row = opcodes.TABLE[instruction.opcode]
        structural = _STRUCTURAL.get(row.does)
        if structural is not None:
            return structural(self, value, through)
        if row.does == "collective":
            return self.operands(value, self.operand_of_collective(value)) if "collective" in through else []
        if row.does == "custom":
            return self._of_custom_call(value)
        if row.does in ("broadcast", "reduce") and row.does not in through:
            sources = self.operands(value, _FIRST)
            before, after = (sources[0].instruction.shape if sources else None), instruction.shape
            same_size = before is not None and after is not None and before.bytes == after.bytes
            return sources if same_size else []
        if instruction.opcode.endswith("-start"):
            return self._of_start(value, through)
        if row.does not in through:
            return []
        if row.does in ("fusion", "call"):
            return self._roots(value, "call", path)
        if row.does == "while":
            return [*self._roots(value, "body", path), *self.operands(value, _FIRST, path)]
        if row.does == "conditional":
            return self._roots(value, "branch", path)
        return self.operands(value, row.data)

    def results(self, count: int) -> list[Value] | None:
        """Return the program's results; None if it is truncated, or does not have this number of them."""
        entry = self._module.complete_entry()
        if entry is None or entry.root is None:
            return None
        shape = entry.root.shape
        paths: list[Path] = [()]
        if shape is not None and shape.parts is not None:
            paths = [(number,) for number in range(len(shape.parts))]
        values = [Value(CallFrame(entry), entry.root, path) for path in paths]
        return values if len(values) == count else None

    def operands(self, value: Value, which: slice = _ALL, path: Path = ()) -> list[Value]:
        """Return operands of the instruction, at `path`; none if one is missing in the text."""
        frame, instruction, _ = value
        key = (frame.computation.name, instruction.name)
        operands = self._operands_of.get(key)
        if operands is None:
            if self._limit is not None:
                self._limit.count(characters=len(instruction.operands_text))
            by_name = frame.computation.by_name
            named = [by_name.get(name or "") for name in operand_names(instruction)]
            operands = [operand for operand in named if operand is not None]
            self._operands_of[key] = operands = operands if len(operands) == len(named) else []
        return [Value(frame, operand, path) for operand in operands[which]]

    def operand_of_collective(self, value: Value) -> slice:
        """Return the operand that becomes this part of a collective's result; all if several do."""
        instruction, path = value.instruction, value.path
        operation = BY_OPCODE[instruction.opcode]
        if instruction.opcode != operation.name and operation.start_returns_operands:
            path = path[1:]  # of (operands, results, context …)
        # Each result of an all-to-all contains parts of all operands.
        several = len(self.operands(value)) > 1 and operation.route != "all-to-all"
        return _at(path) if several and path else _ALL

    def _of_element(self, value: Value, through: Container[str]) -> list[Value]:
        index = value.instruction.tuple_index
        return [] if index is None else self.operands(value, _FIRST, (index, *value.path))

    def _of_tuple(self, value: Value, through: Container[str]) -> list[Value]:
        path = value.path
        return self.operands(value, _at(path), path[1:]) if path else []

    def _of_pass(self, value: Value, through: Container[str]) -> list[Value]:
        barrier = value.instruction.opcode.endswith("barrier")
        # A barrier with several operands returns a tuple of them.
        if barrier and value.path and len(self.operands(value)) > 1:
            return self._of_tuple(value, through)
        return self.operands(value, _FIRST, value.path)

    def _of_start(self, value: Value, through: Container[str]) -> list[Value]:
        """Return the sources of a part of (operands, results, context …)."""
        frame, instruction, path = value
        if path[:1] == (0,):
            return self.operands(value, _at(path[1:]), path[2:])
        if not path:
            return []
        if instruction.does != "start":
            return self.sources(Value(frame, begun(instruction), path[1:]), through)
        return self._roots(value, "call", path[1:]) if "start" in through else []

    def _of_copy_start(self, value: Value, through: Container[str]) -> list[Value]:
        """Return the operand for the copy and the original in (copy, original, context)."""
        return self.operands(value, _FIRST, value.path[1:]) if value.path[:1] < (2,) else []

    def _of_done(self, value: Value, through: Container[str]) -> list[Value]:
        instruction, path = value.instruction, value.path
        started = next((operand.instruction.opcode for operand in self.operands(value)), "")
        operation = BY_OPCODE.get(started)
        result_alone = operation is not None and not operation.start_returns_operands
        if not (instruction.opcode.endswith("-update") or result_alone):
            path = (0, *path) if started == "copy-start" else (1, *path)
        return self.operands(value, _FIRST, path)

    def _of_custom_call(self, value: Value) -> list[Value]:
        target = value.instruction.target
        if target == DONE:
            operands = self.operands(value, _ALL, value.path)
            return [operand for operand in operands if operand.instruction.opcode in BY_OPCODE]
        return self.operands(value, _FIRST, value.path) if target in KEEPS_DATA else []

    def _of_parameter(self, value: Value, through: Container[str]) -> list[Value]:
        """Return the value of a parameter, from the call that entered its computation or the only call."""
        frame, instruction, path = value
        number = instruction.number
        if number is None or frame.computation.entry or not frame.open:
            return []
        outer, call, branch = frame.caller, frame.call, None
        if outer is None or call is None:
            sites = self._sites.get(frame.computation.name, [])
            if len({(site.caller.name, site.instruction.name) for site in sites}) != 1:
                return []  # depends on the call
            outer, call, branch = CallFrame(sites[0].caller), sites[0].instruction, sites[0].number
        called = Value(outer, call)
        if call.does == "while":
            given = self.operands(called, _FIRST, path)
            if self._module.callee(call, "body") is frame.computation and frame.computation.root is not None:
                # The result of the previous iteration.
                given.append(Value(frame, frame.computation.root, path))
            return given
        if call.does == "conditional":
            return [
                operand
                for n, callee in enumerate(self._module.callees(call, "branch"))
                if (callee is frame.computation if branch is None else n == branch)
                for operand in self.operands(called, slice(n + 1, n + 2), path)
            ]
        if call.does in opcodes.CALLS or call.opcode.endswith("-start"):
            return self.operands(called, slice(number, number + 1), path)
        return []

    def _roots(self, value: Value, role: str, path: Path) -> list[Value]:
        """Return the results of the computations that an instruction calls."""
        frame, call, _ = value
        if frame.depth >= _MAX_DEPTH:
            raise TooLong
        return [
            Value(CallFrame(callee, frame, call, frame.depth + 1), callee.root, path)
            for callee in self._module.callees(call, role)
            if callee.root is not None
        ]


_STRUCTURAL: Mapping[Does, Callable[[Backward, Value, Container[str]], list[Value]]] = {
    "parameter": Backward._of_parameter,
    "element": Backward._of_element,
    "tuple": Backward._of_tuple,
    "pass": Backward._of_pass,
    "copy-start": Backward._of_copy_start,
    "done": Backward._of_done,
}


def _at(path: Path) -> slice:
    """Return the slice of one operand, by default the first."""
    number = path[0] if path else 0
    return slice(number, number + 1)


_FOLLOWED: frozenset[Does] = frozenset({"tuple", "element", "pass", "while", "conditional"})

T = TypeVar("T")
# The fact about a value; of a tuple, the facts about its elements.
Tree: TypeAlias = "T | tuple[Tree[T], ...]"


class Forward(ABC, Generic[T]):
    """Finds a fact of type T about each array of a program, in the order of the text.

    Attributes:
      enters: kinds of operations whose computations are followed, in addition to loops and conditionals.
      rounds: the most iterations of a loop that are followed until no fact changes.
      once: whether a computation is followed only for the first of its calls.
    """

    enters: frozenset[Does] = opcodes.CALLS
    rounds = 8
    once = False

    def __init__(self, module: Module) -> None:
        self._module = module
        self._depth = 0
        self._followed = _FOLLOWED | self.enters
        self._entered: set[str] = set()

    @abstractmethod
    def unknown(self, instruction: Instruction | None) -> Tree[T]:
        """Return the fact about an unknown result; `instruction` is None if the text lacks it."""

    @abstractmethod
    def transfer(
        self, computation: Computation, instruction: Instruction, operands: list[Tree[T]]
    ) -> Tree[T]:
        """Return the fact about the result of an instruction, from those about its operands."""

    @abstractmethod
    def join(self, value: Tree[T], other: Tree[T]) -> Tree[T]:
        """Return the fact about a value that is one of two."""

    def note(
        self, computation: Computation, instruction: Instruction, operands: list[Tree[T]], value: Tree[T]
    ) -> None:
        """Visit an instruction after the fact about its result is found."""

    def result_of(self, computation: Computation, given: Sequence[Tree[T]]) -> Tree[T]:
        """Return the result of a computation. `given` are its arguments.

        Raises:
          TooLong: calls are nested too deeply.
        """
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise TooLong
        missing = self.unknown(None)
        values: dict[str, Tree[T]] = {}
        for instruction in computation.instructions:
            does = instruction.does
            operands: list[Tree[T]] = []
            if does == "parameter":
                number = instruction.number or 0
                value = given[number] if number < len(given) else self.unknown(instruction)
            else:
                if does != "constant":
                    operands = [values.get(name or "", missing) for name in operand_names(instruction)]
                if does in self._followed:
                    value = self.follow(computation, instruction, operands)
                else:
                    value = self.transfer(computation, instruction, operands)
            values[instruction.name] = value
            self.note(computation, instruction, operands, value)
        self._depth -= 1
        root = computation.root
        return missing if root is None else values[root.name]

    def follow(self, computation: Computation, instruction: Instruction, operands: list[Tree[T]]) -> Tree[T]:
        """Return the fact about an instruction that groups or passes on values, or runs computations."""
        does = instruction.does
        if does == "tuple":
            return tuple(operands)
        if not operands and does in _FOLLOWED:
            return self.unknown(instruction)
        if does == "element":
            return self.element(instruction, operands[0])
        if does == "pass":
            several = len(operands) > 1 and instruction.opcode.endswith("barrier")
            return tuple(operands) if several else operands[0]
        if does == "while":
            return self.loop(computation, instruction, operands[0])
        if does == "conditional":
            return self.branches(instruction, operands)
        callee = self._module.callee(instruction, "call")
        return self.unknown(instruction) if callee is None else self.call(callee, instruction, operands)

    def element(self, instruction: Instruction, whole: Tree[T]) -> Tree[T]:
        """Return an element of a tuple."""
        index = instruction.tuple_index
        part = None if index is None else at(whole, (index,))
        return self.unknown(instruction) if part is None else part

    def call(self, callee: Computation, instruction: Instruction, operands: list[Tree[T]]) -> Tree[T]:
        """Return the result of a call, also of a branch."""
        if self.once and callee.name in self._entered:
            return self.unknown(instruction)
        self._entered.add(callee.name)
        return self.result_of(callee, operands)

    def loop(self, computation: Computation, instruction: Instruction, state: Tree[T]) -> Tree[T]:
        """Return the state after any number of iterations."""
        body = self._module.callee(instruction, "body")
        if body is None:
            return self.unknown(instruction)
        for _ in range(self.rounds):
            after = self.join(state, self.call(body, instruction, [state]))
            if after == state:
                return state
            state = after
        return self.unknown(instruction)

    def branches(self, instruction: Instruction, operands: list[Tree[T]]) -> Tree[T]:
        """Return the result of one of the branches."""
        results = [
            self.call(branch, instruction, operands[number : number + 1])
            for number, branch in enumerate(self._module.callees(instruction, "branch"), 1)
        ]
        return functools.reduce(self.join, results) if results else self.unknown(instruction)


def at(tree: Tree[T] | None, path: Path) -> Tree[T] | None:
    """Return the part of a tree at a path; None if there is no such part."""
    for index in path:
        if not isinstance(tree, tuple) or index >= len(tree):
            return None
        tree = tree[index]
    return tree


def as_tuple(tree: Tree[T]) -> tuple[Tree[T], ...]:
    """Return the elements of a tuple, or the only array."""
    return tree if isinstance(tree, tuple) else (tree,)


def leaves(*trees: Tree[T]) -> list[T]:
    """Return the facts about all arrays in trees, in order."""
    found: list[T] = []
    for tree in trees:
        if isinstance(tree, tuple):
            found += leaves(*tree)
        else:
            found.append(tree)
    return found


def tree_of(shape: Shape | None, new: Callable[[Shape | None], T]) -> Tree[T]:
    """Return a tree with a new fact for each array of a shape."""
    if shape is not None and shape.parts is not None:
        return tuple(tree_of(part, new) for part in shape.parts)
    return new(shape)
