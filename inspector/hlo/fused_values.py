"""Values that a compiler fuses into their readers, and the traffic of HBM that remains.

A partitioned program is the model as JAX traced it, on one device. Compilers fuse most instructions into the
matrix products, collectives and loops around them. An instruction that computes each element from one
element of its operands then keeps them in registers. So here it has no buffer, unless several other
instructions or a collective read its result, or a loop carries it. The order of execution is that of the
program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from inspector.hlo import kernel_costs, live_values, opcodes, ragged_rows
from inspector.hlo.analysis import Analysis
from inspector.hlo.attention_kernels import PlannedKernel
from inspector.hlo.dataflow import Forward, Tree, leaves, tree_of
from inspector.hlo.flops import group_of, is_grouped, product
from inspector.hlo.live_values import LiveValues
from inspector.hlo.module import Computation, Instruction, TooLong, operand_names, operand_shapes
from inspector.hlo.opcodes import Does
from inspector.hlo.shapes import Shape, total_bytes

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


class _Reader(live_values.LiveValueReader):
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


# The bytes that a program will read and write in HBM, before a compiler has fused it.
#
# The values in memory are those of `fused_values`: results of matrix products, collectives, reductions and
# updates, values that several of these read, and the state of loops. An instruction with memory reads each
# value from which its operands are computed once, however many fused instructions are between, and writes its
# result. A slice, or an update of a part, moves that part alone. The results of a loop body and of the
# program are written by fusions that read each value once. A sum outside of loops is written by a fusion that
# runs anyway, if all its readers would read more.
#
# Compilers fuse less if fusion is slower, and keep some values on the chip, so this is an estimate.


# Rows of a tile of a kernel for products of groups. Groups begin and end within a tile, so each uses a
# tile more than its rows need. With this number, tuned kernels on tpu7x reach 51% to 62% of the peak with
# groups of 256 to 4,096 rows (openxla/tokamax, data/autotuning); their tiles have 128 to 1,024 rows.
ROWS_OF_A_TILE = 256
LANES = 128  # of a vector register of a TPU
# A sum outside of loops that is computed from so many times its bytes is in memory if that is less traffic.
# Otherwise the readers of a residual stream of N unrolled layers would read N² arrays. The efficiencies of
# `prediction/accuracy.json` are fitted to loops in which each reader of a sum reads its terms.
_TERMS = 3
# Position of the operand with the new part.
_UPDATES: Mapping[Does, int] = {"update": 1, "scatter": 2}


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
    """An array without memory: its readers read the arrays from which it is computed."""

    name: str
    shape: Shape | None
    reads: _Reads


_Array: TypeAlias = _Value | _Computed
_Tree: TypeAlias = "Tree[_Array]"


@dataclass
class FusedTraffic:
    """The traffic of one run on one device.

    Attributes:
      bytes: Bytes of HBM that are read and written, by the name of an instruction with the array as its
        result. Those of collectives are not counted, because links are slower than HBM.
      product_bytes: Bytes among them that matrix products read and write.
      fusions: Number of matrix products and fusions that run.
      attention: FLOPs of the matrix products that a kernel of attention replaces, by name.
      attention_types: The same FLOPs by operand type, that of queries and keys first.
      grouped: FLOPs by operand type of products of groups of rows with a matrix for each group.
      grouped_tiles, grouped_masked: as in `Work`.
      parts: Bytes, fusions and bytes of products by the loops with an unknown trip count and the branches
        around them (`Runs.within`), if each runs once.
    """

    bytes: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    product_bytes: float = 0.0
    fusions: int = 0
    attention: dict[str, float] = field(default_factory=dict)
    attention_types: dict[str, float] = field(default_factory=dict)
    grouped: dict[str, float] = field(default_factory=dict)
    grouped_tiles: dict[str, float] = field(default_factory=dict)
    grouped_masked: dict[str, float] = field(default_factory=dict)
    parts: dict[tuple[str, ...], list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0] * 3))

    @property
    def is_whole(self) -> bool:
        """Whether no trip count is unknown."""
        return all(":" in name for within in self.parts for name in within)

    @property
    def total(self) -> float:
        return sum(self.bytes.values())


def fused_traffic(
    analysis: Analysis,
    kernel: PlannedKernel | None = None,
    fuses_products: bool = True,
    groups: bool = False,
    sums: bool = False,
) -> FusedTraffic | None:
    """Return the traffic of a partitioned program.

    Return None if its text is truncated or too large. A loop with an unknown trip count runs once.

    Args:
      kernel: as for `fused_values`.
      fuses_products: whether other instructions are fused into matrix products. Those of GPUs are calls of
        a library, which reads its operands from memory.
      groups: whether a kernel will compute products of groups of rows that are dots here. Those of a
        ragged-dot are always a kernel's.
      sums: whether any sum is in memory if that is less traffic, as it is after a collective that adds the
        sums of devices. Otherwise only one outside of loops, of three arrays or more.
    """
    entry = analysis.module.complete_entry(largest=live_values.LARGEST_PROGRAM)
    if entry is None:
        return None
    reader = _TrafficReader(analysis, kernel, READERS if fuses_products else 1, groups, sums)
    try:
        reader.result_of(entry, ())
    except TooLong:
        return None
    return reader.traffic


class _TrafficReader(Forward[_Array]):
    """Follows the arrays of a program that is not fused yet."""

    enters = frozenset({"call"})
    rounds = 1
    once = True

    def __init__(
        self, analysis: Analysis, kernel: PlannedKernel | None, readers: int, groups: bool, sums: bool
    ) -> None:
        super().__init__(analysis.module)
        self._analysis = analysis
        self._runs = analysis.runs
        self._kernel = kernel
        self._readers = readers
        self._groups = groups
        self._sums = sums
        self._times = 0  # executions of the computation that is followed
        self._within: tuple[str, ...] = ()
        self.traffic = FusedTraffic()

    def result_of(self, computation: Computation, given: Sequence[_Tree]) -> _Tree:
        """Count the instructions of a computation, and return the tree of its result in memory.

        Raises:
          TooLong: the executions are unknown.
        """
        runs = self._runs.get(computation.name)
        if runs is None or runs.per_iteration is None or runs.within is None:
            raise TooLong
        caller = self._times, self._within
        self._times, self._within = runs.per_iteration, runs.within
        (result,) = self._in_memory([super().result_of(computation, given)])
        self._times, self._within = caller
        return result

    def unknown(self, instruction: Instruction | None) -> _Tree:
        return () if instruction is None else _new(instruction.name, instruction.shape)

    def join(self, value: _Tree, other: _Tree) -> _Tree:
        return value

    def follow(self, computation: Computation, instruction: Instruction, operands: list[_Tree]) -> _Tree:
        if instruction.does not in ("tuple", "element"):
            operands = self._in_memory(operands)
        result = super().follow(computation, instruction, operands)
        return self.unknown(instruction) if instruction.does in ("while", "conditional") else result

    def element(self, instruction: Instruction, whole: _Tree) -> _Tree:
        """Return a part of a tuple. An array in memory gets the name of the part, which is its own."""
        part = super().element(instruction, whole)
        if isinstance(part, _Value):
            part.name = instruction.name
        return part

    def transfer(self, computation: Computation, instruction: Instruction, operands: list[_Tree]) -> _Tree:
        row, shape = opcodes.TABLE[instruction.opcode], instruction.shape
        users = self._analysis.users(computation)
        if row.does in CONSTANTS:
            return _Computed(instruction.name, shape, {})
        if row.does in ORDERS:
            return operands[0] if operands else ()
        if row.does == "collective":
            self._in_memory(operands)
            return self.unknown(instruction)
        if row.does == "product":
            result = _Value(instruction.name, written_shape(instruction, users))
            matmul = product(computation, instruction)
            flops = self._times * ((matmul and matmul.flops) or 0.0)
            dtype = matmul and matmul.dtype
            if any(map(self._is_kept, (result, *_reads(operands)))):
                self.traffic.attention[instruction.name] = flops
                _add_flops(self.traffic.attention_types, dtype, flops)
            elif is_grouped(instruction):
                _add_flops(self.traffic.grouped, dtype, flops)
                if self._groups or instruction.opcode == "ragged-dot":
                    group = group_of(computation, instruction)
                    tiles = flops * (1.0 if group is None else 1 + ROWS_OF_A_TILE / group.rows)
                    _add_flops(self.traffic.grouped_tiles, dtype, tiles)
                    if group is not None and any(side % LANES for side in group.sides):
                        _add_flops(self.traffic.grouped_masked, dtype, tiles)
            unused = float(ragged_rows.unused_bytes(computation, instruction))
            self._add({_Value(instruction.name, None): -unused} if unused else {}, of_product=True)
            return self._executed(operands, result, of_product=True)
        if row.does == "custom" and (moved := kernel_costs.stated_bytes(instruction)) is not None:
            self._count_fusion()
            self._add({_Value(instruction.name, None): float(moved)})
            return self.unknown(instruction)
        if row.does in _UPDATES and len(operands) > _UPDATES[row.does]:
            return self._updated(computation, instruction, operands)
        if row.does in ("slice", "gather"):
            return self._sliced(computation, instruction, operands)
        if shape is None or shape.parts is not None or row.memory or instruction.opcode == "reduce":
            return self._executed(operands, self.unknown(instruction))
        readers = sum(opcodes.TABLE[user.opcode].memory for user in users.get(instruction.name, ()))
        value = _Value(instruction.name, shape)
        if readers >= self._readers:
            return self._executed(operands, value)
        if not self._is_less_in_memory(instruction, operands, users):
            return _Computed(instruction.name, shape, _reads(operands))
        self._add(_reads([value, *operands]))  # by the fusion of its last term or of a reader
        return value

    def _is_less_in_memory(
        self, added: Instruction, operands: Sequence[_Tree], users: Mapping[str, Sequence[Instruction]]
    ) -> bool:
        """Return whether a sum is written and read in less time than all readers read what is added."""
        following = [*users.get(added.name, ())]
        if added.opcode != "add" or [user.opcode for user in following] == ["add"]:
            return False  # one more term of a larger sum
        terms, sum_bytes = sum(_reads(operands).values()), (added.shape and added.shape.bytes) or 0
        if not self._sums and (self._times != 1 or terms < _TERMS * sum_bytes):
            return False
        readers, fused = set(), {added.name}
        for user in following:  # grows by those of fused instructions
            if opcodes.TABLE[user.opcode].memory or user.opcode in ("reduce", "tuple"):
                readers.add(user.name)
            elif user.name not in fused:
                fused.add(user.name)
                following += users.get(user.name, ())
            if (len(readers) - 1) * terms > (len(readers) + 1) * sum_bytes:
                return True
        return False

    def _executed(self, operands: Sequence[_Tree], result: _Tree, of_product: bool = False) -> _Tree:
        """Count an instruction that reads its operands and writes its result."""
        self._count_fusion()
        self._add(_reads([result, *operands]), of_product)
        return result

    def _updated(self, computation: Computation, instruction: Instruction, operands: list[_Tree]) -> _Tree:
        """Count an update in place: it reads the new part and writes it."""
        at = _UPDATES[instruction.does]
        base = self._in_memory(operands[:1])[0]
        value = base if isinstance(base, _Value) else _Value(instruction.name, instruction.shape)
        part = float(total_bytes(operand_shapes(computation, instruction)[at : at + 1]) or 0)
        self._count_fusion()
        self._add(_reads(operands[1:]))
        # A scatter adds to the old part.
        self._add({value: part * (2 if instruction.does == "scatter" else 1)})
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
        if isinstance(tree, tuple):
            return tuple(self._kept(part, reads) for part in tree)
        if isinstance(tree, _Value) or not tree.reads:
            return tree  # in memory, or made of constants wherever it is needed, such as a mask
        value = _Value(tree.name, tree.shape)
        self._count_fusion()
        reads += [tree.reads, {value: value.bytes}]
        return value

    def _add(self, reads: _Reads, of_product: bool = False) -> None:
        for value, count in reads.items():
            if not self._is_kept(value):
                moved = self._times * count
                self.traffic.bytes[value.name] += moved
                self.traffic.parts[self._within][0] += moved
                if of_product:
                    self.traffic.product_bytes += moved
                    self.traffic.parts[self._within][2] += moved

    def _count_fusion(self) -> None:
        self.traffic.fusions += self._times
        self.traffic.parts[self._within][1] += self._times

    def _is_kept(self, value: _Value) -> bool:
        """Return whether a kernel keeps an array on the chip."""
        return self._kernel is not None and self._kernel.has_scores(value.shape)


def _new(name: str, shape: Shape | None) -> _Tree:
    """Return the tree of arrays in memory with this shape."""
    return tree_of(shape, lambda part: _Value(name, part))


def _reads(trees: Iterable[_Tree]) -> _Reads:
    """Return the bytes that a reader of these trees reads of each array."""
    arrays: list[_Array] = leaves(*trees)
    return _merged([{a: a.bytes} if isinstance(a, _Value) else a.reads for a in arrays])


def _merged(parts: Sequence[_Reads]) -> _Reads:
    """Return the reads of one fusion, which reads each array once."""
    merged: _Reads = {}
    for reads in parts:
        for value, count in reads.items():
            merged[value] = max(merged.get(value, 0.0), count)
    return merged


def _add_flops(types: dict[str, float], dtype: str | None, flops: float) -> None:
    if dtype is not None:
        types[dtype] = types.get(dtype, 0.0) + flops
