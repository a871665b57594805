"""The bytes that a program will read and write in HBM, before a compiler has fused it.

The values in memory are those of `fused_values`: results of matrix products, collectives, reductions and
updates, values that several of these read, and the state of loops. An instruction with memory reads each
value from which its operands are computed once, however many fused instructions are between, and writes its
result. A slice, or an update of a part, moves that part alone. The results of a loop body and of the program
are written by fusions that read each value once.

Compilers fuse less where it does not pay, and keep some values on the chip, so this is an estimate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from inspector.compiled.hlo import live_values
from inspector.compiled.hlo.analysis import Analysis
from inspector.compiled.hlo.flops import product
from inspector.compiled.hlo.fused_values import (
    CONSTANTS,
    ORDERS,
    PRODUCTS,
    READERS,
    RUNS,
    WRITES,
    are_scores,
    written_shape,
)
from inspector.compiled.hlo.module import (
    Computation,
    Instruction,
    operand_names,
    operand_shapes,
)
from inspector.compiled.hlo.shapes import Shape, total_bytes
from inspector.core.collectives import BY_OPCODE

_SLICES = frozenset({"slice", "dynamic-slice", "gather"})
# Position of the operand with the new part.
_UPDATES = {"dynamic-update-slice": 1, "scatter": 2}
_BARRIERS = frozenset({"opt-barrier", "optimization-barrier"})
_DEEPEST = 50


@dataclass(eq=False)
class _Value:
    """An array in memory, or a part of it. `name` is that of an instruction with it as its result."""

    name: str
    shape: Shape | None

    @property
    def bytes(self) -> float:
        return float((self.shape.bytes or 0) if self.shape is not None else 0)


# Bytes that an instruction reads, by the array.
_Reads: TypeAlias = dict[_Value, float]


@dataclass(eq=False)
class _Computed:
    """An array that has no memory: whoever reads it reads the arrays from which it is computed."""

    name: str
    shape: Shape | None
    reads: _Reads


_Tree: TypeAlias = "_Value | _Computed | list[_Tree]"


@dataclass
class FusedTraffic:
    """The traffic of one run on one device.

    Attributes:
      bytes: Bytes of HBM that are read and written, by the name of an instruction with the array as its
        result. Those of collectives are not counted, because links are slower than HBM.
      fusions: Number of matrix products and fusions that run.
      attention: FLOPs of the matrix products that a kernel of attention replaces, by name.
      parts: Bytes and fusions by the loops with an unknown trip count and the branches around them
        (`Runs.within`), if each runs once.
    """

    bytes: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    fusions: int = 0
    attention: dict[str, float] = field(default_factory=dict)
    parts: dict[tuple[str, ...], list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0, 0.0]))

    @property
    def is_whole(self) -> bool:
        """Whether no trip count is unknown."""
        return all(":" in name for within in self.parts for name in within)

    @property
    def total(self) -> float:
        return sum(self.bytes.values())


def fused_traffic(
    analysis: Analysis, kernel_square: int | None = None, fuses_products: bool = True
) -> FusedTraffic | None:
    """Return the traffic of a propagated program.

    Return None if its text is truncated or too large. A loop with an unknown trip count runs once.

    Args:
      kernel_square: as for `fused_values`.
      fuses_products: whether other instructions are fused into matrix products. Those of GPUs are calls of
        a library, which reads its operands from memory.
    """
    entry = analysis.module.complete_entry(largest=live_values.LARGEST_PROGRAM)
    if entry is None:
        return None
    reader = _Reader(analysis, kernel_square, READERS if fuses_products else 1)
    reader.run(entry, None, 0)
    return None if reader.unknown else reader.traffic


class _Reader:
    """Follows the arrays of a program that is not fused yet."""

    def __init__(self, analysis: Analysis, kernel_square: int | None, readers: int) -> None:
        self._analysis = analysis
        self._module = analysis.module
        self._runs = analysis.runs
        self._square = kernel_square
        self._readers = readers
        self._entered: set[str] = set()
        self._times = 0  # executions of the computation that is followed
        self._within: tuple[str, ...] = ()
        self.traffic = FusedTraffic()
        self.unknown = False

    def run(self, computation: Computation, given: Sequence[_Tree] | None, depth: int) -> _Tree:
        """Count the instructions of a computation, and return the tree of its result in memory.

        given: the trees of its parameters; None for the entry.
        """
        runs = self._runs.get(computation.name)
        if runs is None or runs.per_iteration is None or runs.within is None or depth > _DEEPEST:
            self.unknown = True
            return []
        caller = self._times, self._within
        self._times, self._within = runs.per_iteration, runs.within
        users = self._analysis.users(computation)
        trees: dict[str, _Tree] = {}
        for instruction in computation.instructions:
            operands = [trees.get(name or "", []) for name in operand_names(instruction)]
            if instruction.opcode == "parameter":
                number = instruction.number or 0
                if given is not None and number < len(given):
                    tree = given[number]
                else:
                    tree = _leaves(instruction.name, instruction.shape)
            else:
                tree = self._instruction(computation, instruction, operands, users, depth)
            trees[instruction.name] = tree
        root = computation.root
        result = self._in_memory([trees[root.name]])[0] if root is not None else []
        self._times, self._within = caller
        return result

    def _instruction(
        self,
        computation: Computation,
        instruction: Instruction,
        operands: list[_Tree],
        users: Mapping[str, Sequence[Instruction]],
        depth: int,
    ) -> _Tree:
        opcode, shape = instruction.opcode, instruction.shape
        first: _Tree = operands[0] if operands else []
        if opcode in CONSTANTS:
            return _Computed(instruction.name, shape, {})
        if opcode in ORDERS:
            return first
        if opcode == "tuple":
            return operands
        if opcode == "get-tuple-element":
            return _part(instruction, first)
        if opcode in _BARRIERS:
            kept = self._in_memory(operands)
            return kept if len(kept) != 1 else kept[0]
        if opcode in RUNS:
            return self._called(instruction, self._in_memory(operands), depth)
        if opcode in BY_OPCODE:
            self._in_memory(operands)
            return _leaves(instruction.name, shape)
        if opcode in PRODUCTS:
            result = _Value(instruction.name, written_shape(instruction, users))
            if any(map(self._is_kept, (result, *_reads(operands)))):
                matmul = product(computation, instruction)
                flops = (matmul and matmul.flops) or 0.0
                self.traffic.attention[instruction.name] = self._times * flops
            return self._executed(operands, result)
        if opcode in _UPDATES and len(operands) > _UPDATES[opcode]:
            return self._updated(computation, instruction, operands)
        if opcode in _SLICES:
            return self._sliced(computation, instruction, operands)
        if shape is None or shape.parts is not None or opcode in WRITES or opcode == "reduce":
            return self._executed(operands, _leaves(instruction.name, shape))
        readers = sum(user.opcode in WRITES for user in users.get(instruction.name, ()))
        if readers >= self._readers:
            return self._executed(operands, _Value(instruction.name, shape))
        return _Computed(instruction.name, shape, _reads(operands))

    def _executed(self, operands: Sequence[_Tree], result: _Tree) -> _Tree:
        """Count an instruction that reads its operands and writes its result."""
        self._count_fusion()
        self._add(_reads(operands))
        self._add(_reads([result]))
        return result

    def _called(self, instruction: Instruction, operands: Sequence[_Tree], depth: int) -> _Tree:
        """Count the computations that an instruction runs, and return the tree of its result."""
        for called in instruction.called:
            inner = self._module.by_name.get(called.computation)
            if inner is None or inner.name in self._entered or called.role == "condition":
                continue
            self._entered.add(inner.name)
            given = operands
            if called.role == "branch":
                given = operands[called.number + 1 : called.number + 2]
            result = self.run(inner, given, depth + 1)
            if instruction.opcode == "call":
                return result
        return _leaves(instruction.name, instruction.shape)

    def _updated(self, computation: Computation, instruction: Instruction, operands: list[_Tree]) -> _Tree:
        """Count an update in place: it reads the new part and writes it."""
        at = _UPDATES[instruction.opcode]
        base = self._in_memory(operands[:1])[0]
        value = base if isinstance(base, _Value) else _Value(instruction.name, instruction.shape)
        part = float(total_bytes(operand_shapes(computation, instruction)[at : at + 1]) or 0)
        self._count_fusion()
        self._add(_reads(operands[1:]))
        # A scatter adds to the old part.
        self._add({value: part * (2 if instruction.opcode == "scatter" else 1)})
        return value

    def _sliced(self, computation: Computation, instruction: Instruction, operands: list[_Tree]) -> _Tree:
        """Return a slice. Its reader reads that share of each array."""
        whole = total_bytes(operand_shapes(computation, instruction)[:1])
        part = None if instruction.shape is None else instruction.shape.bytes
        share = min(1.0, part / whole) if part is not None and whole else 1.0
        reads = {value: count * share for value, count in _reads(operands[:1]).items()}
        reads = _merged([reads, _reads(operands[1:])])
        return _Computed(instruction.name, instruction.shape, reads)

    def _in_memory(self, trees: Sequence[_Tree]) -> list[_Tree]:
        """Write the arrays that have no memory yet, with fusions that read each array once."""
        reads: list[_Reads] = []
        kept = [self._kept(tree, reads) for tree in trees]
        self._add(_merged(reads))
        return kept

    def _kept(self, tree: _Tree, reads: list[_Reads]) -> _Tree:
        if isinstance(tree, list):
            return [self._kept(part, reads) for part in tree]
        if isinstance(tree, _Value) or not tree.reads:
            return tree  # in memory, or made of constants wherever it is needed, such as a mask
        value = _Value(tree.name, tree.shape)
        self._count_fusion()
        reads += [tree.reads, {value: value.bytes}]
        return value

    def _add(self, reads: _Reads) -> None:
        for value, count in reads.items():
            if not self._is_kept(value):
                self.traffic.bytes[value.name] += self._times * count
                self.traffic.parts[self._within][0] += self._times * count

    def _count_fusion(self) -> None:
        self.traffic.fusions += self._times
        self.traffic.parts[self._within][1] += self._times

    def _is_kept(self, value: _Value) -> bool:
        """Return whether a kernel keeps an array on the chip."""
        return self._square is not None and are_scores(value.shape, self._square)


def _leaves(name: str, shape: Shape | None) -> _Tree:
    """Return the tree of arrays in memory with this shape."""
    if shape is not None and shape.parts is not None:
        return [_leaves(name, part) for part in shape.parts]
    return _Value(name, shape)


def _part(instruction: Instruction, whole: _Tree) -> _Tree:
    """Return a part of a tuple. An array in memory gets the name of the part, which is its own."""
    index = instruction.tuple_index
    if not isinstance(whole, list) or index is None or index >= len(whole):
        return _leaves(instruction.name, instruction.shape)
    part = whole[index]
    if isinstance(part, _Value):
        part.name = instruction.name
    return part


def _reads(trees: Iterable[_Tree]) -> _Reads:
    """Return the bytes that a reader of these trees reads of each array."""
    reads: list[_Reads] = []
    for tree in trees:
        if isinstance(tree, list):
            reads.append(_reads(tree))
        elif isinstance(tree, _Value):
            reads.append({tree: tree.bytes})
        else:
            reads.append(tree.reads)
    return _merged(reads)


def _merged(parts: Sequence[_Reads]) -> _Reads:
    """Return the reads of one fusion, which reads each array once."""
    merged: _Reads = {}
    for reads in parts:
        for value, count in reads.items():
            merged[value] = max(merged.get(value, 0.0), count)
    return merged
