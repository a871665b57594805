"""Numbers of operations, by which an instruction of the partitioned program leads back to the program.

Each operation of a lowered module gets a number before propagation, which Shardy's passes keep. In the copy
that XLA partitions, the number is the operation's location, so XLA writes it as the `op_name` of every
instruction that it makes for this operation, collectives included. Their names and source lines are put back
into the text.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from jax.extend.mlir import ir

from inspector.hlo.module import Instruction, Module, operand_names, users_of
from inspector.hlo.opcodes import SAME_DATA
from inspector.hlo.shapes import Shape
from inspector.partition.history import NUMBER, erase_marks
from inspector.partition.shardings import MANUAL
from inspector.records.collectives import OPERATIONS
from inspector.tracing.mlir.locations import described
from inspector.tracing.mlir.walk import operations

_WRITTEN = re.compile(r'metadata=\{op_name="(\d+)"[^{}]*\}')
_ONE_DIMENSION = re.compile(r"\{(\d+)\}")
# An attribute of collectives in the text of JAX 0.12.
_OF_THE_PARTITIONER = "is_spmd_generated"
_PASS_ON = SAME_DATA | {"slice", "element", "collective"}
_COMPUTES = frozenset({"elementwise", "product", "reduce"})  # no helpers that move values, or are masks
_MOST_STEPS = 32  # from a collective to the operations that use its result
_FIELD = "operation_number"  # of the metadata of an instruction


def numbered(module: ir.Module) -> ir.Operation:
    """Return a copy of the operation of a module, in which each operation has a number."""
    with module.context, ir.Location.unknown():
        copy = module.operation.clone()
        kind = ir.IntegerType.get_signless(64)
        for number, operation in enumerate(operations(copy)):
            operation.attributes[NUMBER] = ir.IntegerAttr.get(kind, number)
    return copy


def for_partitioner(module: ir.Operation, with_numbers: bool = True) -> ir.Module:
    """Return a copy of a module with numbers, without marks and with each number as the location.

    with_numbers: without it, no operation has a location.
    """
    copy = module.clone().operation
    ops = operations(copy)
    for operation in ops:
        attributes = operation.attributes
        if NUMBER in attributes:
            number = ir.IntegerAttr(attributes[NUMBER]).value
            operation.location = ir.Location.name(str(number))
            del attributes[NUMBER]
    erase_marks(ops)
    text = str(copy.get_asm(enable_debug_info=with_numbers, large_elements_limit=None))
    return ir.Module.parse(text, copy.context)


class OperationNames:
    """Names and source lines of the operations of a module with numbers. Each is read once.

    JAX begins the name stack again inside of a `shard_map`: the name of this one comes before it, as XLA puts
    it there when it compiles. Only with it, the name has the phase of a step.
    """

    def __init__(self, module: ir.Module | ir.Operation) -> None:
        self._context = module.context
        self._locations: dict[str, ir.Location] = {}
        self._around: dict[str, str] = {}  # the shard_map, by the number of an operation in it
        for operation in operations(module.operation):
            number = _number_of(operation)
            if number is None:
                continue
            self._locations[number] = operation.location
            if operation.name == MANUAL:  # each operation comes before those inside of it
                inside = filter(None, map(_number_of, operations(operation)))
                self._around.update(dict.fromkeys(inside, number))
        self._known: dict[str, str] = {}

    def put_into(self, text: str) -> str:
        """Return the text of a partitioned program with names and lines instead of numbers."""
        with self._context:
            return _WRITTEN.sub(self._metadata, text)

    def _metadata(self, match: re.Match[str]) -> str:
        number = match[1]
        if number not in self._known:
            location = self._locations.get(number)
            stack = self._stack(self._around.get(number))
            self._known[number] = "" if location is None else _metadata(location, number, stack)
        return self._known[number]

    def _stack(self, number: str | None) -> str:
        """Return the whole name of a shard_map; empty without one."""
        if number is None:
            return ""
        return _joined(self._stack(self._around.get(number)), described(self._locations[number]).name)


@dataclass(frozen=True)
class Purpose:
    """For which operation the partitioner made a collective.

    Attributes:
      number: that of the operation. None if the collective moves an argument.
      users: numbers of the operations that use the moved values. Empty if `number` is theirs: JAX
        0.10 names the operation that needs the collective, JAX 0.12 the one whose result it moves.
      operand, result: shapes of the collective's first operand and of its result on one device.
      dimension: the one along which it gathers or splits; None without one.
      places: which operand its result is of each matrix product that uses it.
      moves_result: whether the operation of the number computes the operand.
    """

    number: int | None
    users: tuple[int, ...]
    operand: tuple[int, ...]
    result: tuple[int, ...]
    dimension: int | None
    places: frozenset[int]
    moves_result: bool

    @property
    def numbers(self) -> tuple[int, ...]:
        """The number, and those of the users."""
        return (*(() if self.number is None else (self.number,)), *self.users)


def purposes_of(module: Module) -> dict[str, Purpose]:
    """Return for which operation each collective of a partitioned program was made, by its name."""
    purposes = {}
    readers: dict[str, dict[str, list[Instruction]]] = {}
    for computation, instruction in module.instructions:
        if instruction.opcode not in OPERATIONS:
            continue
        number = _number(instruction)
        if computation.name not in readers:
            readers[computation.name] = users_of(computation.instructions)
        users, places = _users(instruction, number, readers[computation.name])
        users = users if _OF_THE_PARTITIONER in instruction.attributes_text else ()
        if number is None and not users:
            continue
        operand = next(map(computation.shape_of, instruction.operands), None)
        made = computation.operand(instruction)
        dimension = _ONE_DIMENSION.fullmatch(instruction.attributes.get("dimensions", ""))
        purposes[instruction.name] = Purpose(
            number,
            users,
            _dimensions(operand),
            _dimensions(instruction.shape),
            int(dimension[1]) if dimension else None,
            places,
            made is not None and made.does in _COMPUTES and _number(made) == number is not None,
        )
    return purposes


def _number(instruction: Instruction) -> int | None:
    written = instruction.metadata.get(_FIELD, "")
    return int(written) if written.isdigit() else None


def _users(
    collective: Instruction, number: int | None, readers: Mapping[str, list[Instruction]]
) -> tuple[tuple[int, ...], frozenset[int]]:
    """Return the numbers of the operations that use the result of a collective, also after copies of it.

    Also return which operand of matrix products it is.
    """
    numbers: dict[int, None] = {}
    places: set[int] = set()
    waiting, steps = [collective], 0
    while waiting and steps < _MOST_STEPS:
        steps += 1
        value = waiting.pop(0).name
        for reader in readers.get(value, ()):
            if reader.does == "product":
                places |= {place for place, name in enumerate(operand_names(reader)) if name == value}
            other = _number(reader)
            if other is not None and other != number:
                numbers.setdefault(other)
            elif reader.does in _PASS_ON:
                waiting.append(reader)
    return tuple(numbers), frozenset(places)


def _dimensions(shape: Shape | None) -> tuple[int, ...]:
    return () if shape is None else tuple(size or 0 for size in shape.dimensions)


def _number_of(operation: ir.Operation) -> str | None:
    attributes = operation.attributes
    return str(ir.IntegerAttr(attributes[NUMBER]).value) if NUMBER in attributes else None


def _joined(stack: str, name: str) -> str:
    """Return a name below the name stack of a shard_map. One that begins with its function is whole."""
    function = stack.partition("/")[0]
    if not stack or not name or name.partition("/")[0] == function:
        return name
    return f"{stack}/{name}"


def _metadata(location: ir.Location, number: str, stack: str) -> str:
    """Return the metadata of an operation. `stack`: the name of the shard_map around it, or ""."""
    name, line, library = described(location)
    name = _joined(stack, name)
    fields = [f'op_name="{_escaped(name)}"'] if name else []
    if line is not None:
        fields += [f'source_file="{_escaped(line.file)}"', f"source_line={line.line}"]
        fields.append(f"source_column={line.column}")
    if library is not None:
        fields += [f'library_file="{_escaped(library.file)}"', f"library_line={library.line}"]
        fields.append(f"library_column={library.column}")
    return f"metadata={{{' '.join((*fields, f'{_FIELD}={number}'))}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
