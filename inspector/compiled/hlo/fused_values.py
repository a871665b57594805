"""The buffers that a program will need, before a compiler has fused and scheduled it.

A partitioned program is the model as JAX traced it, on one device. Compilers fuse most instructions into the
matrix products, collectives and loops around them. An instruction that computes each element from one
element of its operands then keeps them in registers. So here it has no buffer, unless several other
instructions or a collective read its result, or a loop carries it. The order of execution is that of the
program.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from inspector.compiled.hlo import live_values, opcodes
from inspector.compiled.hlo.analysis import Analysis
from inspector.compiled.hlo.attention_kernels import PlannedKernel
from inspector.compiled.hlo.dataflow import Tree, leaves
from inspector.compiled.hlo.live_values import LiveValues
from inspector.compiled.hlo.module import Computation, Instruction, operand_names
from inspector.compiled.hlo.opcodes import Does
from inspector.compiled.hlo.shapes import Shape
from inspector.compiled.hlo.step_limit import TooLong

# The data in another order, which products and fusions read and write directly.
ORDERS: frozenset[Does] = frozenset({"reorder", "bitcast"})
# Made wherever they are needed.
CONSTANTS: frozenset[Does] = frozenset({"constant", "iota"})
# A result that this many instructions with memory read is written once.
READERS = 2


class _Fused(tuple[int, ...]):
    """The result of a fused instruction: the buffers that it is computed from."""


def fused_values(
    analysis: Analysis, donated: Mapping[int, int] | None = None, kernel: PlannedKernel | None = None
) -> LiveValues | None:
    """Return the buffers of a program before a compile; None if its text is truncated or too large.

    Args:
      donated: number of each result that is written over an argument → number of the argument.
      kernel: keeps the scores of attention on the chip. They have no buffer.
    """
    entry = analysis.module.complete_entry(largest=live_values.LARGEST_PROGRAM)
    if entry is None:
        return None
    try:
        live = _Reader(analysis, donated or {}).read(entry)
    except TooLong:
        return None
    if kernel is None:
        return live
    kept = (buffer for buffer in live.buffers if not kernel.has_scores(buffer.shape))
    return LiveValues(tuple(kept), live.instructions)


class _Reader(live_values.Reader):
    """Follows the values of a program that is not fused yet."""

    def __init__(self, analysis: Analysis, donated: Mapping[int, int]) -> None:
        super().__init__(analysis)
        self._donated = donated
        self._analysis = analysis

    def _donate(self, result: Tree[int]) -> None:
        for number, leaf in enumerate(leaves(result)):
            argument = self._arguments.get(self._donated.get(number, -1))
            if argument is None:
                continue
            # On one device, values of one type can be shards of other sizes.
            if len({self._buffers[self._find(value)].bytes for value in (*leaves(argument), leaf)}) == 1:
                self.join(argument, leaf)

    def _record(
        self, instruction: Instruction, operands: Sequence[Tree[int]], value: Tree[int], position: int
    ) -> None:
        if isinstance(value, _Fused) or instruction.does in ORDERS:
            return  # it runs as a part of the instructions that read its result
        if _shrinks(instruction):
            read = [self._buffers[self._find(leaf)].writers for leaf in leaves(*operands)]
            position = max((writers[-1] for writers in read if writers), default=position)
        super()._record(instruction, operands, value, position)

    def follow(
        self, computation: Computation, instruction: Instruction, operands: list[Tree[int]]
    ) -> Tree[int]:
        if instruction.does != "element":
            names = operand_names(instruction)
            passed = self._invariant(self._analysis.users(computation).get(instruction.name, ()))
            operands = [
                operand
                if not isinstance(operand, _Fused)
                or number in passed
                # An element of a tuple has a buffer already.
                or ((source := computation.by_name.get(name or "")) is not None and source.does == "element")
                else self._written(computation, name)
                for number, (operand, name) in enumerate(zip(operands, names, strict=False))
            ]
        return super().follow(computation, instruction, operands)

    def transfer(
        self, computation: Computation, instruction: Instruction, operands: list[Tree[int]]
    ) -> Tree[int]:
        row, shape = opcodes.TABLE[instruction.opcode], instruction.shape
        if row.does in ORDERS:
            return operands[0] if operands else ()
        if row.does in CONSTANTS:
            return _Fused()
        users = self._analysis.users(computation)
        if row.does == "product":
            return self._new(written_shape(instruction, users), instruction.name)
        if row.does == "update" and operands and isinstance(operands[0], _Fused):
            operands[0] = self._written(computation, operand_names(instruction)[0])
        elif not row.memory and shape is not None and shape.parts is None:
            return self._fused(instruction, operands, shape, users)
        return super().transfer(computation, instruction, operands)

    def _written(self, computation: Computation, name: str | None) -> Tree[int]:
        """Return a new buffer for the result of an instruction."""
        source = computation.by_name.get(name or "")
        return self._new(None if source is None else source.shape, name or "")

    def _fused(
        self,
        instruction: Instruction,
        operands: list[Tree[int]],
        shape: Shape,
        users: Mapping[str, Sequence[Instruction]],
    ) -> Tree[int]:
        """Return the result of an instruction between those with memory."""
        written = [opcodes.TABLE[user.opcode] for user in users.get(instruction.name, ())]
        written = [row for row in written if row.memory]
        if _shrinks(instruction) or len(written) >= READERS or any(r.does == "collective" for r in written):
            return self._new(shape, instruction.name)
        given = [operand for operand in operands if operand != ()]
        if len(given) == 1 and isinstance(given[0], _Fused):
            return given[0]
        return _Fused(sorted(set(leaves(*given))))

    def _invariant(self, users: Iterable[Instruction]) -> Collection[int]:
        """Return the positions in the state of a loop that its body passes on unchanged."""
        bodies = (self._module.callee(user, "body") for user in users if user.does == "while")
        return next((body.unchanged for body in bodies if body is not None), ())


def _shrinks(instruction: Instruction) -> bool:
    """Return whether a result is smaller than its operands, so that it is computed as soon as they are."""
    return instruction.opcode in ("reduce", "slice")


def written_shape(instruction: Instruction, users: Mapping[str, Sequence[Instruction]]) -> Shape | None:
    """Return the shape that a product writes: that of the conversion that alone reads its result."""
    at = instruction
    while True:
        readers = users.get(at.name, ())
        if len(readers) != 1 or readers[0].does not in {"convert", *ORDERS}:
            return at.shape
        at = readers[0]
