"""Bytes that one execution of an instruction reads and writes.

An instruction reads its operands and writes its result. A fusion is one instruction, whose inner values stay
in registers. A slice of an array, or an update of it, counts only the slice. Instructions that name, group
or await values move nothing.
"""

from collections.abc import Iterator, Mapping

from inspector.hlo import kernel_costs, ragged_rows
from inspector.hlo.flops import product_shape
from inspector.hlo.module import Computation, Instruction, operand_names, operand_shapes, operands_size
from inspector.hlo.opcodes import ANNOTATIONS, MOVES_NOTHING, SAME_DATA, TABLE, UPDATES
from inspector.hlo.shapes import Shape, bytes_of, elements_of, total_bytes
from inspector.records.statistics import sum_known

# These write only the first part of their result; the rest is the operand and a context.
_WRITES_THE_FIRST = frozenset({"copy-start", "recv"})
_SLICES = frozenset({"slice", "gather"})
_TRIANGULAR = frozenset({"cholesky", "triangular-solve"})


def moves_nothing(opcode: str) -> bool:
    """Return whether instructions with this opcode read and write nothing themselves."""
    return TABLE[opcode].does in MOVES_NOTHING or opcode == "async-start"


def accessed(
    computation: Computation, instruction: Instruction, results: Mapping[str, int | None]
) -> int | None:
    """Return the bytes that an instruction outside of fusions accesses; None if a shape is unknown.

    results: the bytes of each result of the computation by name.
    """
    opcode = instruction.opcode
    read, written = operands_size(results, instruction), bytes_of(instruction.shape_text)
    if instruction.does in (*_SLICES, *UPDATES):
        return _part(computation, instruction)
    if opcode == "send":
        return read
    if opcode == "custom-call" and instruction.target in ANNOTATIONS:
        return 0
    if opcode == "custom-call":
        if (moved := kernel_costs.stated_bytes(instruction)) is not None:
            return max(0, moved - ragged_rows.unused_bytes(computation, instruction))
        result = product_shape(instruction)
        written = None if result is None else result.bytes
    if opcode == "ragged-dot" and read is not None:
        read -= ragged_rows.unused_bytes(computation, instruction)
    if opcode in _TRIANGULAR:
        # Half of the triangular operand, and half of a Cholesky factor.
        triangle = total_bytes(operand_shapes(computation, instruction)[:1])
        if read is None or written is None or triangle is None:
            return None
        read -= triangle - triangle // 2
        written //= 2 if opcode == "cholesky" else 1
    if opcode in _WRITES_THE_FIRST:
        shape = instruction.shape
        if shape is not None and shape.parts is not None:
            written = shape.parts[0].bytes if shape.parts else None
    return None if read is None or written is None else read + written


def accessed_by_fusion(fused: Computation) -> int | None:
    """Return the bytes that a fusion of this computation accesses; None if a shape is unknown."""
    sources: dict[str, Instruction] = {}
    whole = True
    for instruction in fused.instructions:
        does = instruction.does
        if does == "parameter":
            sources[instruction.name] = instruction
        elif does == "constant":
            # A scalar is part of the code; other constants are read from memory.
            if elements_of(instruction.shape_text) != 1:
                sources[instruction.name] = instruction
        elif does in _SLICES or does in UPDATES:
            whole = False
    root = fused.root
    if root is None:
        return None
    if whole:
        return sum_known([bytes_of(source.shape_text) for source in (*sources.values(), root)])
    updates, written = _written(fused)
    users = _users(fused)
    return sum_known([written, *(_read(fused, users, updates, source) for source in sources.values())])


def _part(computation: Computation, instruction: Instruction) -> int | None:
    """Count a slice or update twice, as read and as written, and its start indices if they are computed."""
    opcode = instruction.opcode
    shapes = operand_shapes(computation, instruction)
    if instruction.does in UPDATES:
        update = _update(opcode, shapes)
        # A scatter reads the old values as well.
        times, at = (2, 2) if opcode == "dynamic-update-slice" else (3, 1)
        indices = shapes[at] if len(shapes) > 2 else None
        if update is None or update.bytes is None or indices is None:
            return None
        return sum_known([times * update.bytes, indices.bytes])
    cut = bytes_of(instruction.shape_text)
    if cut is None or opcode == "slice":
        return None if cut is None else 2 * cut
    start = shapes[1] if len(shapes) > 1 else None
    return None if start is None else sum_known([2 * cut, start.bytes])


def _update(opcode: str, shapes: list[Shape | None]) -> Shape | None:
    """Return the shape of the update operand; None for a scatter into several operands."""
    number = 1 if opcode == "dynamic-update-slice" else 2
    if len(shapes) <= number or (opcode == "scatter" and len(shapes) != 3):
        return None
    return shapes[number]


def updates_in_place(fused: Computation, output: Instruction | None) -> Iterator[Instruction]:
    """Yield the updates by which a fusion makes an output of an array, the last one first."""
    while output is not None and output.does in ("bitcast", *UPDATES):
        if output.does in UPDATES:
            yield output
        output = fused.operand(output)


def arrays_in_place(fused: Computation) -> dict[str, tuple[bool, Instruction]]:
    """Return the array that each update or bitcast has, by its name, and whether updates changed it."""
    arrays: dict[str, tuple[bool, Instruction]] = {}
    for instruction in fused.instructions:
        if instruction.does in ("bitcast", *UPDATES) and (operand := fused.operand(instruction)) is not None:
            updated, array = arrays.get(operand.name, (False, operand))
            arrays[instruction.name] = updated or instruction.does in UPDATES, array
    return arrays


def _written(fused: Computation) -> tuple[set[str], int | None]:
    """Return the names of updates that are done in place in a result, and all bytes written."""
    names: set[str] = set()
    sizes: list[int | None] = []
    for output in fused.outputs:
        parts: list[int | None] = []
        for instruction in updates_in_place(fused, output):
            update = _update(instruction.opcode, operand_shapes(fused, instruction))
            if update is None or instruction.name in names:
                break
            names.add(instruction.name)
            parts.append(update.bytes)
        sizes += parts or [bytes_of(output.shape_text) if output else None]
    return names, sum_known(sizes)


# Value name → (user, operand number, number of operands).
Users = dict[str, list[tuple[Instruction, int, int]]]


def _users(fused: Computation) -> Users:
    users: Users = {}
    for instruction in fused.instructions:
        if instruction.does not in ("parameter", "constant"):
            names = operand_names(instruction)
            for number, name in enumerate(names):
                if name:
                    users.setdefault(name, []).append((instruction, number, len(names)))
    return users


def _read(fused: Computation, users: Users, updates: set[str], source: Instruction) -> int | None:
    """Return the bytes that a fusion reads of a parameter: the slices, if only slices of it are used."""
    whole = bytes_of(source.shape_text)
    shape = source.shape
    if shape is None or shape.parts is not None or shape.element_bits is None:
        return whole
    count = 0
    waiting = [(source.name, True)]
    seen = {source.name}
    while waiting:
        name, same_layout = waiting.pop()
        for user, number, operands in users.get(name, ()):
            opcode, does = user.opcode, user.does
            if does in _SLICES and number == 0:
                part = elements_of(user.shape_text)
            elif does in UPDATES and number == 0 and same_layout and user.name in updates:
                update = _update(opcode, operand_shapes(fused, user))
                part = 0
                if opcode == "scatter":  # it reads the old values
                    part = None if update is None else update.elements
            elif does in SAME_DATA and operands == 1 and user is not fused.root:
                part = 0
                if user.name not in seen:
                    seen.add(user.name)
                    waiting.append((user.name, same_layout and opcode == "bitcast"))
            else:
                return whole
            if part is None:
                return None
            count += part
    return -(-count * shape.element_bits // 8)
