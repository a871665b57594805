"""The uses of collectives that decide how often they must run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inspector.hlo.analysis import Analysis
from inspector.hlo.dataflow import CallFrame, Forward, Tree, Value, as_tuple, leaves
from inspector.hlo.module import Computation, Instruction, Module
from inspector.hlo.opcodes import RUNS, SAME_DATA
from inspector.records.snapshot import CollectiveUse

Key = tuple[str, str]  # the computation and the name of a collective

# Operations that commute with a sum over devices, if their other operands are the same in every iteration.
_LINEAR = frozenset({"negate", "multiply", "divide", "slice"})
_REDUCTIONS = frozenset({"all-reduce", "all-reduce-start", "reduce-scatter"})
_COPIES = frozenset({"bitcast", "copy"})
_OF_CONSTANTS = SAME_DATA | {"broadcast"}
_MOST_STEPS = 200


def uses(analysis: Analysis) -> dict[Key, CollectiveUse]:
    """Return the uses of the collectives of which one is known.

    condition: the collective runs in the condition of a loop.
    loop-end: and the body of the loop runs no collective.
    callback: its result is an argument of a function on the host.
    accumulation: each iteration of a loop adds its result to a sum, and reads the sum for nothing else.
    """
    found: dict[Key, CollectiveUse] = {}
    module = analysis.module
    for computation, instruction in module.instructions:
        if instruction.opcode == "while":
            body, condition = (module.callee(instruction, role) for role in ("body", "condition"))
            # In a loop whose body communicates, devices wait for each other in any case.
            alone = not _inside(module, body)
            found |= dict.fromkeys(_inside(module, condition), "loop-end" if alone else "condition")
            if body is not None and any(i.opcode in _REDUCTIONS for i in body.instructions):
                for key in _Accumulation(module).of(body):
                    found.setdefault(key, "accumulation")
        elif is_callback(instruction):
            for source in analysis.backward.operands(Value(CallFrame(computation), instruction)):
                gathered = _gathered(analysis, source)
                if gathered is not None:
                    found.setdefault(gathered, "callback")
    return found


def is_callback(instruction: Instruction) -> bool:
    """Return whether an instruction calls a Python function on the host, or sends to one."""
    if instruction.opcode == "send":
        return instruction.attributes.get("is_host_transfer") == "true"
    if instruction.opcode != "custom-call":
        return False
    target = instruction.target
    return "callback" in target and target.startswith(("xla_python", "xla_ffi_python"))


def _inside(module: Module, start: Computation | None) -> list[Key]:
    """Return the collectives that a computation runs outside of its loops."""
    return [
        (computation.name, instruction.name)
        for computation in (() if start is None else module.executed(start, RUNS - {"while"}))
        for instruction in computation.instructions
        if instruction.does == "collective"
    ]


def _gathered(analysis: Analysis, source: Value) -> Key | None:
    """Return the all-gather that makes a value, through calls, tuples, branches and copies."""
    for frame, instruction, _ in analysis.backward.chain(source, SAME_DATA, _MOST_STEPS):
        if instruction.opcode in ("all-gather", "all-gather-start"):
            return frame.computation.name, instruction.name
    return None


@dataclass(frozen=True)
class _Sum:
    """A value in the body of a loop: an element of the state, plus multiples of reduced values.

    element: None without one. constant: whether it has neither and is known before the loop.
    """

    element: int | None = None
    reduced: frozenset[Key] = frozenset()
    constant: bool = False


_OTHER = _Sum()


class _Accumulation(Forward[_Sum]):
    """Finds the reductions of a loop body whose result is only added to an element of the loop's state."""

    enters = frozenset({"call", "fusion"})

    def __init__(self, module: Module) -> None:
        super().__init__(module)
        self._read: list[_Sum] = []  # by other operations than sums

    def of(self, body: Computation) -> frozenset[Key]:
        state = body.parameters.get(0)
        shape = None if state is None else state.shape
        given = tuple(_Sum(number) for number in range(len((shape and shape.parts) or ())))
        added: dict[int, frozenset[Key]] = {}
        for number, value in enumerate(as_tuple(self.result_of(body, [given]))):
            if isinstance(value, _Sum) and value.element == number:
                added[number] = value.reduced
            else:
                self._read += leaves(value)
        others = frozenset(key for value in self._read for key in value.reduced)
        elements = {value.element for value in self._read}
        return frozenset().union(*(keys for n, keys in added.items() if n not in elements)) - others

    def unknown(self, instruction: Instruction | None) -> _Sum:
        return _OTHER

    def join(self, value: Tree[_Sum], other: Tree[_Sum]) -> Tree[_Sum]:
        return value if value == other else self._other([value, other])

    def loop(self, computation: Computation, instruction: Instruction, state: Tree[_Sum]) -> Tree[_Sum]:
        return self._other([state])

    def branches(self, instruction: Instruction, operands: list[Tree[_Sum]]) -> Tree[_Sum]:
        return self._other(operands)

    def transfer(
        self, computation: Computation, instruction: Instruction, operands: list[Tree[_Sum]]
    ) -> Tree[_Sum]:
        does, values = instruction.does, leaves(*operands)
        if does in _COPIES or does == "done":
            return operands[0] if operands else _OTHER
        elements = [value.element for value in values if value.element is not None]
        is_sum = all(value.element is not None or value.reduced for value in values)
        if instruction.opcode == "add" and is_sum and len(elements) < 2:
            reduced = frozenset().union(*(value.reduced for value in values))
            return _Sum(elements[0] if elements else None, reduced)
        if all(value.constant for value in values) and (does in _OF_CONSTANTS or does == "constant"):
            return _Sum(constant=True)
        changing = [value for value in values if not value.constant]
        is_linear = instruction.opcode in _LINEAR or does in SAME_DATA
        if is_linear and len(changing) == 1 and changing[0].element is None:
            return changing[0]
        self._other(operands)
        reduces = instruction.opcode in _REDUCTIONS and len(operands) == 1
        return _Sum(reduced=frozenset({(computation.name, instruction.name)})) if reduces else _OTHER

    def _other(self, operands: Sequence[Tree[_Sum]]) -> _Sum:
        """Record values that another operation reads."""
        self._read += leaves(*operands)
        return _OTHER
