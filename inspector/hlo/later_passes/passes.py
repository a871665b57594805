"""One computation during the passes: its groups, reductions and changes, and the text of its records."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from inspector.hlo import replica_groups
from inspector.hlo.later_passes.edited import EditedComputation
from inspector.hlo.module import Computation, Instruction, Module
from inspector.hlo.replica_groups import Groups
from inspector.hlo.shapes import element_bits
from inspector.hlo.text import VALUE
from inspector.records.collectives import OPERATIONS
from inspector.text.errors import InvalidInput

# Collectives that move elements and change none.
MOVES = tuple(operation.name for operation in OPERATIONS.values() if not operation.reduces)
# Operations whose result has elements of the operand and no others.
SAME_ELEMENTS = frozenset({"bitcast", "copy", "reshape", "slice", "transpose"})

_GROUPS = re.compile(rf"(,\s*+replica_groups\s*+=\s*+){VALUE}", re.S)
_METADATA = re.compile(rf",\s*+metadata\s*+=\s*+{VALUE}", re.S)
_PAIRS = re.compile(rf"(\bsource_target_pairs\s*+=\s*+){VALUE}", re.S)
_TO_APPLY = re.compile(r",\s*+to_apply\s*+=\s*+%?+([^\s,]++)")
_DIMENSIONS = re.compile(r"\bdimensions\s*+=\s*+\{([\d,]*+)\}")
_DTYPE = re.compile(r"[a-z]\w*+(?=\[)")


class SizedArray(NamedTuple):
    """Element type and sizes of an array of known size."""

    dtype: str
    sizes: tuple[int, ...]

    @property
    def text(self) -> str:
        """The shape in HLO text, with the row-major layout."""
        order = ",".join(map(str, reversed(range(len(self.sizes)))))
        return f"{self.dtype}[{','.join(map(str, self.sizes))}]{{{order}}}"

    def resized(self, sizes: Sequence[int]) -> SizedArray:
        return self._replace(sizes=tuple(sizes))


class Passes:
    """The passes on one computation.

    Attributes:
      slices: the number of the TPU slice of each partition; None for one slice.
      whole_rings: whether the compiler for TPUs joins all devices of a slice by one ring.
      repeated: all-gathers that were added because users of an array are far apart.
      merged: sums of transfers, of which each element has one summand that is not zero.
    """

    def __init__(
        self,
        module: Module,
        computation: Computation,
        slices: Sequence[int] | None,
        torus: Sequence[int] | None = None,
    ) -> None:
        self._module = module
        self.partitions = module.partitions or 1
        self.slices = slices if slices and len(set(slices)) > 1 else None
        sides = [side for side in torus or () if side > 1]
        if torus is None:
            # Slices of 16, 64 and 256 devices are square or three-dimensional in all generations.
            in_slice = self.partitions // (len(set(self.slices)) if self.slices else 1)
            sides = [math.isqrt(in_slice)] * 2 if math.isqrt(in_slice) ** 2 == in_slice else []
        square = len(sides) == 2 and sides[0] == sides[1] > 2
        self.whole_rings = not square and len(sides) < 3
        self.edited = EditedComputation(computation)
        self.repeated: set[str] = set()
        self.merged: set[str] = set()

    def apply(self, opcodes: Iterable[str], change: Callable[[Passes, Instruction], None]) -> None:
        """Apply a pass to the present instructions with these opcodes, in order, unless it removes them."""
        wanted = frozenset(opcodes)
        edited = self.edited.instructions
        for name in [name for name, op in edited.items() if op.opcode in wanted]:
            instruction = edited.get(name)
            if instruction is not None:
                change(self, instruction)

    def groups(self, collective: Instruction) -> Groups | None:
        """Return the groups of partitions, each in the order of the text; None if they are not known."""
        attributes = collective.attributes
        if "channel_id" not in attributes or (self._module.replicas or 1) != 1:
            return None
        try:
            groups = replica_groups.expand(attributes.get("replica_groups", "{}"))
        except InvalidInput:
            return None
        groups = groups or (tuple(range(self.partitions)),)
        known = all(0 <= member < self.partitions for group in groups for member in group)
        return groups if known and len({len(group) for group in groups}) == 1 else None

    def reduction(self, collective: Instruction) -> str | None:
        """Return the operation that a reduction applies, such as `add`."""
        applied = _TO_APPLY.search(collective.attributes_text)
        computation = self._module.by_name.get(applied[1]) if applied else None
        root = computation.root if computation is not None else None
        return root.opcode if root is not None else None

    def pairs(self, permute: Instruction) -> Groups | None:
        """Return the sender and receiver of each transfer of a collective-permute; None if unknown."""
        try:
            pairs = replica_groups.pairs(permute.attributes["source_target_pairs"])
        except (InvalidInput, KeyError):
            return None
        return pairs if all(end < self.partitions for pair in pairs for end in pair) else None

    def crosses_slices(self, collective: Instruction) -> bool:
        """Return whether devices of several slices communicate."""
        if self.slices is None:
            return False
        is_permute = collective.opcode == "collective-permute"
        groups = self.pairs(collective) if is_permute else self.groups(collective)
        return any(len({self.slices[member] for member in group}) > 1 for group in groups or ())

    def only_inner(self, outer: Instruction) -> Instruction | None:
        """Return the operand of a collective if it is the same operation and has no other user."""
        inner = self.edited.operand(outer)
        if inner.opcode != outer.opcode or self.edited.only_user(inner) is None:
            return None
        return inner if self.has_one_operand(inner) and self.has_one_operand(outer) else None

    def has_one_operand(self, collective: Instruction) -> bool:
        return len(self.edited.operands(collective)) == 1

    def converted(self, value: Instruction, dtype: str, at: Instruction) -> Instruction:
        """Return a new conversion of a value at the place of an instruction, with its metadata."""
        return self.edited.insert(
            "convert", with_type(value.shape_text, dtype), [value.name], metadata(at), at
        )

    def transposed(
        self,
        value: Instruction,
        sizes: Sequence[int],
        order: Sequence[int],
        shape_text: str | None,
        at: Instruction,
    ) -> Instruction:
        """Reshape a value to these sizes, permute its dimensions, and reshape it to the last shape."""
        edited, array = self.edited, SizedArray(dtype_of(value) or "", tuple(sizes))
        apart = edited.insert("reshape", array.text, [value.name], metadata(at), at)
        permuted = edited.insert(
            "transpose",
            array.resized([sizes[number] for number in order]).text,
            [apart.name],
            f", dimensions={{{','.join(map(str, order))}}}{metadata(at)}",
            at,
        )
        return edited.insert("reshape", shape_text or "", [permuted.name], metadata(at), at)


def array_of(instruction: Instruction) -> SizedArray | None:
    """Return the array of a result; None if it is a tuple or has a dynamic dimension."""
    shape = instruction.shape
    if shape is None or shape.parts is not None or shape.elements is None:
        return None
    return SizedArray(shape.dtype, tuple(size or 0 for size in shape.dimensions))


def dtype_of(instruction: Instruction) -> str | None:
    """Return the element type of an array; None for a tuple."""
    written = _DTYPE.match(instruction.shape_text or "")
    return written[0] if written else None


def bits_of(instruction: Instruction) -> int:
    """Return the bits of an element; 0 for a tuple."""
    return element_bits(dtype_of(instruction) or "") or 0


def with_type(shape_text: str | None, dtype: str) -> str:
    return _DTYPE.sub(dtype, shape_text or "", count=1)


def metadata(instruction: Instruction) -> str:
    """Return the metadata as the text of attributes."""
    written = instruction.attributes.get("metadata")
    return f", metadata={written}" if written else ""


def with_metadata(attributes_text: str, of: Instruction) -> str:
    """Return attributes with the metadata of another instruction, or with their own if it lacks any."""
    written = metadata(of)
    return _METADATA.sub("", attributes_text, count=1) + written if written else attributes_text


def with_groups(attributes_text: str, groups: Groups) -> str:
    written = ",".join("{" + ",".join(map(str, group)) + "}" for group in groups)
    return _GROUPS.sub(lambda match: f"{match[1]}{{{written}}}", attributes_text, count=1)


def with_pairs(attributes_text: str, pairs: Groups) -> str:
    written = ",".join(f"{{{sender},{receiver}}}" for sender, receiver in pairs)
    return _PAIRS.sub(lambda match: f"{match[1]}{{{written}}}", attributes_text, count=1)


def dimensions_of(instruction: Instruction) -> list[int]:
    """Return the attribute `dimensions`."""
    written = _DIMENSIONS.search(instruction.attributes_text)
    return [int(number) for number in written[1].split(",")] if written and written[1] else []


def with_dimension(attributes_text: str, dimension: int) -> str:
    return _DIMENSIONS.sub(f"dimensions={{{dimension}}}", attributes_text)


def scattered_attributes(attributes_text: str, dimension: int) -> str:
    """Return the attributes of a reduce-scatter in the groups of an all-reduce."""
    return _TO_APPLY.sub(lambda match: f", dimensions={{{dimension}}}{match[0]}", attributes_text, count=1)


def gathered_attributes(attributes_text: str, dimension: int) -> str:
    """Return the attributes of an all-gather in the groups of an all-reduce."""
    return _TO_APPLY.sub(f", dimensions={{{dimension}}}", attributes_text, count=1)


def renamed(name: str, opcode: str) -> str:
    """Return the name of the operation that replaces an all-reduce: `all-gather.7` for `all-reduce.7`."""
    return opcode + name.removeprefix("all-reduce") if name.startswith("all-reduce") else f"{opcode}.{name}"


def product_of_groups(inner: Groups | None, outer: Groups | None) -> Groups | None:
    """Return the groups of two collectives, one after the other; None if they count a device twice."""
    if inner is None or outer is None:
        return None
    group_of = {member: group for group in inner for member in group}
    products: dict[frozenset[int], tuple[int, ...]] = {}
    for group in outer:
        members = [member for partition in group for member in group_of.get(partition, ())]
        if len(set(members)) != len(members):
            return None
        products[frozenset(members)] = tuple(sorted(members))
    everyone = [member for group in products.values() for member in group]
    return tuple(products.values()) if len(set(everyone)) == len(everyone) else None
