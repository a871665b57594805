"""The bytes that one run of an instruction reads and writes.

An instruction reads its operands and writes its result; a fusion is one instruction, which keeps what is
between in registers. A part that is cut out of an array, or written into one, counts as the part alone.
Instructions that only name, group or await what others have made move nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from inspector.compiled.hlo.flops import target
from inspector.compiled.hlo.module import Computation, Instruction
from inspector.compiled.hlo.shapes import Shape
from inspector.compiled.hlo.sizes import (
    elements,
    elements_of_text,
    operand_names,
    operand_shapes,
    operands_size,
    size,
    size_of_text,
)

# What these call counts where it is called.
_MOVES_NOTHING = frozenset({
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "add-dependency",
    "domain", "opt-barrier", "optimization-barrier", "get-dimension-size", "set-dimension-size",
    "while", "conditional", "call", "async-start",
})  # fmt: skip
# Of the pieces of an asynchronous operation all but the start.
_LATER = ("-done", "-update")
# Of whose result the first part is written; the others are the operand and bookkeeping.
_WRITES_THE_FIRST = frozenset({"copy-start", "recv"})
# Marks of the partitioner and of memory planning, which become nothing in the program that runs.
_MARKS = frozenset({
    "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "AllocateBuffer", "CreateBuffer",
    "AssumeGatherIndicesInBound", "LayoutConstraint", "xla.sdy.FuncResultSharding", "Pin", "Unpin",
    "ConcatBitcast",
})  # fmt: skip
_CUTS = frozenset({"slice", "dynamic-slice", "gather"})
_PUTS = frozenset({"dynamic-update-slice", "scatter"})
_TRIANGULAR = frozenset({"cholesky", "triangular-solve"})
_OTHERWISE = _CUTS | _PUTS | _TRIANGULAR | _WRITES_THE_FIRST | {"send", "custom-call"}
# One element of the result for each one of the operand: to read a part of the one is to read as much of the
# other.
_SAME_ELEMENTS = frozenset({"bitcast", "reshape", "transpose", "copy", "convert"})


def moves_nothing(opcode: str) -> bool:
    """Whether no instruction with this opcode reads or writes anything itself."""
    return opcode in _MOVES_NOTHING or opcode.endswith(_LATER)


def accessed(
    computation: Computation, instruction: Instruction, results: Mapping[str, int | None]
) -> int | None:
    """Bytes that an instruction outside of fusions reads and writes, if it is none that moves nothing.

    None where a shape is not known. `results` are the bytes of each result of the computation, by name.
    """
    opcode = instruction.opcode
    read, written = operands_size(results, instruction), size_of_text(instruction.shape_text)
    if opcode in _OTHERWISE:
        if opcode in _CUTS or opcode in _PUTS:
            return _part(computation, instruction)
        if opcode == "send":
            return read
        if opcode in _TRIANGULAR:
            return _triangle(computation, instruction, read, written)
        if opcode == "custom-call" and target(instruction) in _MARKS:
            return 0
        if opcode in _WRITES_THE_FIRST:
            shape = instruction.shape
            if shape is not None and shape.parts is not None:
                written = size(shape.parts[0]) if shape.parts else None
    return None if read is None or written is None else read + written


def accessed_by_fusion(fused: Computation) -> int | None:
    """Bytes that a fusion of this computation reads and writes; None where a shape is not known."""
    sources: dict[str, Instruction] = {}
    whole = True
    for instruction in fused.instructions:
        opcode = instruction.opcode
        if opcode == "parameter":
            sources[instruction.name] = instruction
        elif opcode == "constant":
            # One element is part of the code, more of them are read from memory.
            if elements_of_text(instruction.shape_text) != 1:
                sources[instruction.name] = instruction
        elif opcode in _CUTS or opcode in _PUTS:
            whole = False
    root = fused.root
    if root is None:
        return None
    if whole:
        return _total([size_of_text(each.shape_text) for each in (*sources.values(), root)])
    puts, written = _written(fused, root)
    users = _users(fused)
    return _total([written, *(_read(fused, users, puts, each) for each in sources.values())])


def _triangle(
    computation: Computation, instruction: Instruction, read: int | None, written: int | None
) -> int | None:
    """Of a triangular operand one half is read, and of a Cholesky factor one half is written."""
    sources = operand_shapes(computation, instruction)
    triangle = size(sources[0]) if sources else None
    if read is None or written is None or triangle is None:
        return None
    if instruction.opcode == "cholesky":
        written //= 2
    return read - triangle + triangle // 2 + written


def _part(computation: Computation, instruction: Instruction) -> int | None:
    """A part is read, and written elsewhere; so are the places of its beginning, where they are computed."""
    opcode = instruction.opcode
    shapes = operand_shapes(computation, instruction)
    if opcode in _PUTS:
        update = _update(opcode, shapes)
        places = shapes[2 if opcode == "dynamic-update-slice" else 1] if len(shapes) > 2 else None
        # A scatter also reads what it changes.
        times = 2 if opcode == "dynamic-update-slice" else 3
        moved = size(update)
        return _total([None if moved is None else times * moved, size(places)])
    cut = size_of_text(instruction.shape_text)
    if cut is None or opcode == "slice":
        return None if cut is None else 2 * cut
    return _total([2 * cut, size(shapes[1])]) if len(shapes) > 1 else None


def _update(opcode: str, shapes: list[Shape | None]) -> Shape | None:
    """The operand that is put into the first one; None for a scatter into several at once."""
    number = 1 if opcode == "dynamic-update-slice" else 2
    if len(shapes) <= number or (opcode == "scatter" and len(shapes) != 3):
        return None
    return shapes[number]


def _written(fused: Computation, root: Instruction) -> tuple[set[str], int | None]:
    """The instructions that put a part into an operand that becomes a result, and the bytes written in all.

    What is so put leaves the rest of the operand where it is.
    """
    made: list[Instruction | None] = [root]
    if root.opcode == "tuple":
        made = [fused.by_name.get(name) if name else None for name in operand_names(root)]
    puts: set[str] = set()
    sizes: list[int | None] = []
    seen: set[str] = set()
    for output in made:
        parts: list[int | None] = []
        at = output
        while at is not None and at.name not in seen and at.opcode in ("bitcast", *_PUTS):
            seen.add(at.name)
            if at.opcode in _PUTS:
                update = _update(at.opcode, operand_shapes(fused, at))
                if update is None:
                    break
                puts.add(at.name)
                parts.append(size(update))
            names = operand_names(at)
            at = fused.by_name.get(names[0]) if names and names[0] else None
        sizes += parts or [size_of_text(output.shape_text) if output else None]
    return puts, _total(sizes)


# Who uses each value, as which operand, and of how many.
Users = dict[str, list[tuple[Instruction, int, int]]]


def _users(fused: Computation) -> Users:
    users: Users = {}
    for instruction in fused.instructions:
        if instruction.opcode not in ("parameter", "constant"):
            names = operand_names(instruction)
            for number, name in enumerate(names):
                if name:
                    users.setdefault(name, []).append((instruction, number, len(names)))
    return users


def _read(fused: Computation, users: Users, puts: set[str], source: Instruction) -> int | None:
    """What a fusion reads of a parameter: the parts that are cut out of it, if no more is used of it."""
    whole = size_of_text(source.shape_text)
    shape = source.shape
    if shape is None or shape.parts is not None or shape.element_bits is None:
        return whole
    count = 0
    waiting = [(source.name, True)]
    seen = {source.name}
    while waiting:
        name, as_it_lies = waiting.pop()
        for user, number, operands in users.get(name, ()):
            opcode = user.opcode
            if opcode in _CUTS and number == 0:
                part = elements_of_text(user.shape_text)
            elif opcode in _PUTS and number == 0 and as_it_lies and user.name in puts:
                # A scatter reads what it changes.
                update = _update(opcode, operand_shapes(fused, user))
                part = elements(update) if opcode == "scatter" else 0
            elif opcode in _SAME_ELEMENTS and operands == 1 and user is not fused.root:
                part = 0
                if user.name not in seen:
                    seen.add(user.name)
                    waiting.append((user.name, as_it_lies and opcode == "bitcast"))
            else:
                return whole
            if part is None:
                return None
            count += part
    return -(-count * shape.element_bits // 8)


def _total(sizes: Iterable[int | None]) -> int | None:
    total = 0
    for each in sizes:
        if each is None:
            return None
        total += each
    return total
