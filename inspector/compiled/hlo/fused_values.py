"""The buffers that a program will need, before a compiler has fused and scheduled it.

A propagated program is the model as JAX traced it, on one device. Compilers fuse most instructions into the
matrix products, collectives and loops around them. An instruction that computes each element from one
element of its operands then keeps them in registers. So here it has no buffer, unless several other
instructions or a collective read its result, or a loop carries it. The order of execution is that of the
program.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from inspector.compiled.hlo import live_values
from inspector.compiled.hlo.analysis import Analysis
from inspector.compiled.hlo.live_values import LiveValues, Tree, leaves_of
from inspector.compiled.hlo.module import Computation, Instruction, operand_names
from inspector.compiled.hlo.shapes import Shape
from inspector.core.collectives import BY_OPCODE

# Instructions whose operands and results are in memory.
WRITES = frozenset({
    "dot", "convolution", "gather", "scatter", "sort", "dynamic-update-slice", "custom-call",
    "rng-bit-generator", "fft", "cholesky", "triangular-solve", "reduce-window",
    "select-and-scatter", "concatenate", "parameter", *BY_OPCODE,
})  # fmt: skip
PRODUCTS = frozenset({"dot", "convolution"})
RUNS = frozenset({"while", "conditional", "call"})
# The data in another order, which products and fusions read and write directly.
ORDERS = frozenset({"transpose", "reshape", "bitcast"})
# Made wherever they are needed.
CONSTANTS = frozenset({"constant", "iota"})
# Their results are smaller than what they read, so that they run as soon as it is there.
_SHRINKS = frozenset({"reduce", "slice"})
# Dimensions of the scores in `models/dot_product.py`.
_SCORE_DIMENSIONS = 5
# A result that this many instructions with memory read is written once.
READERS = 2


class _Fused(list[Tree]):
    """The result of a fused instruction: the buffers that it is computed from."""


def fused_values(
    analysis: Analysis,
    donated: Mapping[int, int] | None = None,
    kernel_square: int | None = None,
) -> LiveValues | None:
    """Return the buffers of a program before a compile; None if its text is truncated or too large.

    Args:
      donated: number of each result that is written over an argument → number of the argument.
      kernel_square: length of the sequences whose square, the scores of attention, a kernel keeps on the
        chip. They have no buffer.
    """
    entry = analysis.module.complete_entry(largest=live_values.LARGEST_PROGRAM)
    if entry is None:
        return None
    live = _Reader(analysis, donated or {}).read(entry)
    if kernel_square is None:
        return live
    kept = (buffer for buffer in live.buffers if not are_scores(buffer.shape, kernel_square))
    return LiveValues(tuple(kept), live.instructions)


def are_scores(shape: Shape | None, seq: int) -> bool:
    """Return whether an array of this shape has a score for each pair of tokens of a sequence.

    Scores have dimensions for the sequences, the heads of keys, the queries of each of them, and two for the
    tokens. Activations and weights can have two dimensions of this size too, but they have at most four.
    """
    if shape is None or shape.parts is not None:
        return False
    return len(shape.dimensions) >= _SCORE_DIMENSIONS and shape.dimensions.count(seq) >= 2


class _Reader(live_values.Reader):
    """Follows the values of a program that is not fused yet."""

    def __init__(self, analysis: Analysis, donated: Mapping[int, int]) -> None:
        super().__init__(analysis)
        self._donated = donated
        self._analysis = analysis

    def _donate(self, entry: Computation, result: Tree) -> None:
        parameters = entry.parameters
        for number, leaf in enumerate(leaves_of(result)):
            parameter = parameters.get(self._donated.get(number, -1))
            if parameter is not None:
                self._join(self._trees[parameter.name], leaf)

    def _record(self, instruction: Instruction, operands: Sequence[Tree], tree: Tree, position: int) -> None:
        if isinstance(tree, _Fused) or instruction.opcode in ORDERS:
            return  # it runs as a part of the instructions that read its result
        if instruction.opcode in _SHRINKS:
            read = [self._buffers[self._find(leaf)].writers for leaf in leaves_of(list(operands))]
            position = max((writers[-1] for writers in read if writers), default=position)
        super()._record(instruction, operands, tree, position)

    def _instruction(
        self, computation: Computation, instruction: Instruction, operands: list[Tree], depth: int
    ) -> Tree:
        opcode = instruction.opcode
        users = self._analysis.users(computation)
        if opcode in ORDERS:
            return operands[0] if operands else []
        if opcode in CONSTANTS:
            return _Fused()
        if opcode in ("tuple", "opt-barrier", *RUNS):
            names = operand_names(instruction)
            passed = self._invariant(users.get(instruction.name, ()))
            operands = [
                operand
                if not isinstance(operand, _Fused)
                or number in passed
                or _opcode(computation, name) == "get-tuple-element"
                else self._new(_shape(computation, name), name or "")
                for number, (operand, name) in enumerate(zip(operands, names, strict=False))
            ]
        elif opcode in PRODUCTS:
            return self._new(written_shape(instruction, users), instruction.name)
        elif opcode == "dynamic-update-slice" and operands and isinstance(operands[0], _Fused):
            name = operand_names(instruction)[0]
            operands[0] = self._new(_shape(computation, name), name or "")
        elif opcode not in WRITES and opcode != "get-tuple-element":
            shape = instruction.shape
            if shape is not None and shape.parts is None:
                return self._fused(instruction, operands, shape, users)
        return super()._instruction(computation, instruction, operands, depth)

    def _fused(
        self,
        instruction: Instruction,
        operands: list[Tree],
        shape: Shape,
        users: Mapping[str, Sequence[Instruction]],
    ) -> Tree:
        """Return the result of an instruction between those with memory."""
        readers = users.get(instruction.name, ())
        written = [reader.opcode for reader in readers if reader.opcode in WRITES]
        if (
            instruction.opcode in _SHRINKS
            or len(written) >= READERS
            or any(opcode in BY_OPCODE for opcode in written)
        ):
            return self._new(shape, instruction.name)
        given = [operand for operand in operands if operand != []]
        if len(given) == 1 and isinstance(given[0], _Fused):
            return given[0]
        return _Fused(sorted(set(leaves_of(given))))

    def _invariant(self, users: Iterable[Instruction]) -> Collection[int]:
        """Return the positions in the state of a loop that its body passes on unchanged."""
        for user in users:
            for called in user.called if user.opcode == "while" else ():
                body = self._module.by_name.get(called.computation)
                if called.role == "body" and body is not None and body.root is not None:
                    parts = [body.by_name.get(name or "") for name in operand_names(body.root)]
                    return {
                        number
                        for number, part in enumerate(parts)
                        if part is not None
                        and part.opcode == "get-tuple-element"
                        and part.tuple_index == number
                    }
        return ()


def written_shape(instruction: Instruction, users: Mapping[str, Sequence[Instruction]]) -> Shape | None:
    """Return the shape that a product writes: that of the conversion that alone reads its result."""
    at = instruction
    while True:
        readers = users.get(at.name, ())
        if len(readers) != 1 or readers[0].opcode not in {"convert", *ORDERS}:
            return at.shape
        at = readers[0]


def _shape(computation: Computation, name: str | None) -> Shape | None:
    source = computation.by_name.get(name or "")
    return None if source is None else source.shape


def _opcode(computation: Computation, name: str | None) -> str:
    source = computation.by_name.get(name or "")
    return "" if source is None else source.opcode
