"""Instructions of a partitioned program that contribute to its results.

The partitioner keeps instructions that nothing uses, also inside of loops: the forward pass of an
initialization. Compilers remove them (`dce` and `while-loop-simplifier`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from inspector.compiled.hlo.module import Computation, Instruction, Module, operand_names

# They do something besides returning a result, so they stay.
_EFFECTS = frozenset({
    "infeed", "outfeed", "send", "send-done", "recv", "recv-done", "rng-get-and-update-state",
})  # fmt: skip

# They run computations with instructions of their own. Those of a reduction work on scalars.
_CALLS = frozenset({"call", "conditional", "fusion", "async-start", "custom-call"})

Key = tuple[str, str]  # (computation, instruction)


def needed(module: Module) -> frozenset[Key]:
    """Return the computation and the name of each instruction on which a result depends.

    A loop needs only those elements of its tuple that are used after it, that its condition reads, or from
    which its body computes these.
    """
    return frozenset(_Reader(module).read())


class _Reader:
    """Follows results back to the instructions from which they are computed."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._needed: set[Key] = set()
        self._waiting: list[tuple[Computation, Instruction]] = []
        self._elements: dict[Key, set[int]] = defaultdict(set)  # of each loop
        # The loop of which a computation is the body or the condition.
        self._loops: dict[str, tuple[Computation, Instruction]] = {
            called.computation: (computation, instruction)
            for computation, instruction in module.instructions
            if instruction.opcode == "while"
            for called in instruction.called
        }

    def read(self) -> set[Key]:
        for computation, instruction in self._module.instructions:
            is_root = computation.entry and instruction is computation.root
            if is_root or _has_effect(instruction):
                self._need(computation, instruction)
        while self._waiting:
            self._follow(*self._waiting.pop())
        return self._needed

    def _need(self, computation: Computation, instruction: Instruction | None) -> None:
        if instruction is not None and (key := (computation.name, instruction.name)) not in self._needed:
            self._needed.add(key)
            self._waiting.append((computation, instruction))

    def _need_root(self, name: str) -> None:
        called = self._module.by_name.get(name)
        if called is not None:
            self._need(called, called.root)

    def _follow(self, computation: Computation, instruction: Instruction) -> None:
        if instruction.opcode == "get-tuple-element":
            source = next(_operands(computation, instruction), None)
            loop = None if source is None else self._loop_of(computation, source)
            number = instruction.tuple_index
            if loop is not None and number is not None:
                self._need_element(*loop, number)
                return
        if instruction.opcode == "while" or (
            instruction.opcode == "parameter" and computation.name in self._loops
        ):
            loop = self._loop_of(computation, instruction)
            if loop is not None:
                for number in range(len(loop[1].shape.parts or ()) if loop[1].shape else 0):
                    self._need_element(*loop, number)
            return
        for operand in _operands(computation, instruction):
            self._need(computation, operand)
        if instruction.opcode in _CALLS:
            for called in instruction.called:
                self._need_root(called.computation)

    def _loop_of(
        self, computation: Computation, source: Instruction
    ) -> tuple[Computation, Instruction] | None:
        """Return the loop whose tuple a value is: that of the loop itself, or of its body or condition."""
        if source.opcode == "while":
            return computation, source
        return self._loops.get(computation.name) if source.opcode == "parameter" else None

    def _need_element(self, computation: Computation, loop: Instruction, number: int) -> None:
        elements = self._elements[computation.name, loop.name]
        if number in elements:
            return
        elements.add(number)
        self._needed.add((computation.name, loop.name))
        self._need_part(computation, next(_operands(computation, loop), None), number)
        for called in loop.called:
            inside = self._module.by_name.get(called.computation)
            if inside is not None and called.role == "body":
                self._need_part(inside, inside.root, number)
            elif called.role == "condition":
                self._need_root(called.computation)

    def _need_part(self, computation: Computation, value: Instruction | None, number: int) -> None:
        """Need one element of a tuple."""
        if value is None:
            return
        if value.opcode != "tuple":
            self._need(computation, value)
            return
        self._needed.add((computation.name, value.name))
        names = operand_names(value)
        if number < len(names):
            self._need(computation, computation.by_name.get(names[number] or ""))


def _operands(computation: Computation, instruction: Instruction) -> Iterator[Instruction]:
    if instruction.opcode in ("parameter", "constant"):
        return
    for name in operand_names(instruction):
        operand = computation.by_name.get(name or "")
        if operand is not None:
            yield operand


def _has_effect(instruction: Instruction) -> bool:
    if instruction.opcode != "custom-call":
        return instruction.opcode in _EFFECTS
    return instruction.attributes.get("custom_call_has_side_effect") == "true"
