"""Who asks for a collective: the operation that needs it, and the code, autodiff, or the partitioner.

The text names the operation, and the flow of data proves it. Compilers combine several collectives into one
with several operands. Its text has the name and the line of one of them. What takes a result has those of
the collective that it was. If the partitioner added it, the operation is the one that makes the operand, if
the collective reduces, and else one that uses the result.
"""

import functools
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from inspector.hlo import opcodes
from inspector.hlo.analysis import Analysis
from inspector.hlo.asynchronous import begun
from inspector.hlo.dataflow import CallFrame, Value
from inspector.hlo.flops import product
from inspector.hlo.module import Computation, Instruction, Module, operand_names, operand_shapes
from inspector.hlo.op_name import FUNCTIONS, PRODUCTS, READS, RETURN, UPDATES, parse_op_name, with_first
from inspector.hlo.opcodes import SAME_DATA
from inspector.hlo.source_calls import CALLS, PRIMITIVES, written_at
from inspector.records.collectives import BY_OPCODE
from inspector.records.snapshot import CollectivePart, Requester
from inspector.records.typed_json import LARGEST

_MOST_USERS = 64  # that are looked at for the name of one collective, or of one of its parts
_PASS_ON = SAME_DATA | {"pad"}
_INTO = _PASS_ON | {"fusion", "call"}
_MOVED = _PASS_ON | {"element", "pass", "done", "copy-start", "collective", "slice", "concatenate"}
_REDUCES = {
    "add": "reduce_sum",
    "maximum": "reduce_max",
    "minimum": "reduce_min",
    "and": "reduce_and",
    "or": "reduce_or",
    "multiply": "reduce_prod",
}
_NAMES = {"product": PRODUCTS, "gather": READS, "scatter": UPDATES}
_IN_PIECES = frozenset({"split", "slice", "rev"})  # the partitioner joins the pieces of their results
_OF_OPCODES = {"split": "slice", "squeeze": "reshape", "expand_dims": "reshape", "rev": "reverse"}


def metadata_of(analysis: Analysis, computation: Computation, instruction: Instruction) -> Mapping[str, str]:
    """Return the metadata. Of a collective with the name of an argument, the name is that of its first user.

    The partitioner of JAX 0.12 names a collective after the value that it moves, that of JAX 0.10 after the
    operation that needs it. The name of an argument says neither the phase nor the layer.
    """
    metadata = _of_largest_part(analysis, computation, instruction)
    names = analysis.argument_names(computation)
    if metadata.get("op_name") not in names - {None}:
        return metadata
    user = first_user(analysis, computation, instruction, names, iter(range(_MOST_USERS)))
    return metadata if user is None else {**user, **metadata, "op_name": user["op_name"]}


def first_user(
    analysis: Analysis,
    computation: Computation,
    value: Instruction,
    names: Collection[str | None],
    visits: Iterator[int],
) -> Mapping[str, str] | None:
    """Return the metadata of the first operation with another name that reads a value or its copy.

    It can be inside a fusion.

    Args:
      names: those of arguments, and None, which what copies or converts the value can have.
      visits: ends when enough users were looked at.
    """
    for user in analysis.users(computation).get(value.name, ()):
        if next(visits, None) is None:
            return None
        named = None
        for inner in analysis.module.callees(user) if user.does == "fusion" else ():
            place = operand_names(user).index(value.name)
            if place in inner.parameters:
                named = first_user(analysis, inner, inner.parameters[place], names, visits)
        if named is None and user.metadata.get("op_name") not in names:
            named = user.metadata
        named = named or first_user(analysis, computation, user, names, visits)
        if named is not None:
            return named
    return None


def made_by(
    analysis: Analysis, computation: Computation, instruction: Instruction, operand: int = 0
) -> Mapping[str, str] | None:
    """Return the metadata of the operation that makes an operand, also before a fusion that takes it."""
    collective = Value(CallFrame(computation), instruction)
    for source in analysis.backward.operands(collective, slice(operand, operand + 1)):
        for value in analysis.backward.chain(source, _PASS_ON):
            made = value.instruction
            if made.does != "parameter" and made.metadata.get("op_name"):
                return made.metadata
    return None


def _of_largest_part(
    analysis: Analysis, computation: Computation, instruction: Instruction
) -> Mapping[str, str]:
    """Return the metadata. Of merged collectives, the operation with the largest operand comes first.

    The compiler writes the names of merged operations in its own order, and the source line of one of them.
    Some reductions have no name.
    """
    metadata = instruction.metadata
    named = metadata.get("op_name", "")
    sizes = [(shape and shape.bytes) or 0 for shape in operand_shapes(computation, instruction)]
    reduces = BY_OPCODE[instruction.opcode].reduces
    if len(sizes) < 2 and (named or not reduces):
        return metadata
    largest = max(range(len(sizes)), key=sizes.__getitem__, default=0)
    own = made_by(analysis, computation, instruction, largest) or {}
    first = own.get("op_name", "")
    ordered = with_first(named, first) if named else first
    return {**metadata, **own, "op_name": ordered} if ordered else metadata


def operation_of(
    analysis: Analysis,
    computation: Computation,
    instruction: Instruction,
    metadata: Mapping[str, str],
    operand: int | None = None,
) -> str | None:
    """Return the operation that the flow of data proves to need a collective; None if none is proved alone.

    Of a reduction, it is the one whose partial results are combined. Of others, it is the one that reads the
    result: what the collective is named after, if that reads it, or else the only one. What reads as much of
    a gathered value as a device had can be of its own part, and needs no gather. If nothing but the program's
    results has it, it is `return`.

    Args:
      metadata: that of the collective, or of a part of it, whose name is taken if the opcode can be it.
      operand: the number of the operand of a combined collective. None for all of them.
    """
    own, found = _primitive(metadata), set[str | None]()
    if not BY_OPCODE[instruction.opcode].reduces:
        visits = iter(range(_MOST_USERS))
        gathers = BY_OPCODE[instruction.opcode].name == "all-gather"
        held = {shape.elements for shape in operand_shapes(computation, instruction) if shape and gathers}
        returned = _read(
            analysis, computation, value=instruction, own=own, visits=visits, found=found, held=held,
            element=operand,
        )  # fmt: skip
        if returned and not found and computation.name == analysis.module.entry:
            return RETURN
    else:
        which = slice(None) if operand is None else slice(operand, operand + 1)
        for source in analysis.backward.operands(Value(CallFrame(computation), instruction), which):
            found.update(_made(analysis, source, _combines(analysis, instruction)))
    if own in found or len(found) != 1:
        return own if own in found else None
    name = found.pop()
    return own if any(own in names and name in names for names in _NAMES.values()) else name


def _primitive(metadata: Mapping[str, str]) -> str:
    return parse_op_name(metadata.get("op_name"))[0].primitive


def _combines(analysis: Analysis, instruction: Instruction) -> str | None:
    """Return the opcode that a reduction applies; None if it is not one alone."""
    applied = analysis.module.callee(instruction, "call")
    root = None if applied is None else applied.root
    while root is not None and applied is not None and root.does in SAME_DATA:
        root = applied.operand(root)
    return None if root is None else root.opcode


def _made(analysis: Analysis, start: Value, kind: str | None) -> Iterator[str | None]:
    """Yield the operations whose partial results a value is a sum of, and None for anything else."""
    waiting, masked = [start], False
    for _ in range(_MOST_USERS):
        if not waiting:
            return
        value = waiting.pop()
        made, through = value.instruction, analysis.backward.sources(value, _INTO)
        operands = [o for o in analysis.backward.operands(value) if not _is_constant(analysis, o)]
        if through:
            waiting += through
        elif made.opcode in ("add", "subtract", "negate") and kind == "add":
            waiting += analysis.backward.operands(value)
        elif made.opcode in ("multiply", "divide") and kind == "add" and len(operands) == 1:
            waiting += operands if made.opcode == "multiply" else analysis.backward.operands(value)[:1]
        elif made.does == "select" and len(operands) == 2:  # the mask, and what is not zero
            waiting, masked = [*waiting, operands[1]], True
        else:
            yield _reduced(analysis, value, kind, masked)
    yield None


def _is_constant(analysis: Analysis, value: Value) -> bool:
    *_, last = analysis.backward.chain(value, SAME_DATA | {"broadcast"})
    return last.instruction.does == "constant"


def _reduced(analysis: Analysis, value: Value, kind: str | None, masked: bool) -> str | None:
    """Return the name of an operation whose results on several devices are combined by `kind`."""
    made, name = value.instruction, _primitive(value.instruction.metadata)
    if made.does == "product" or product(value.frame.computation, made) is not None:
        return None if kind != "add" else name if name in PRODUCTS else "dot"
    if made.does == "reduce" and _combines(analysis, made) == kind:
        return name if name in PRODUCTS and kind == "add" else _REDUCES.get(kind or "")
    if made.does == "gather" or made.opcode == "dynamic-slice":
        return (name if name in READS else made.opcode) if masked else None
    if made.does == "scatter" and kind == "add" == _combines(analysis, made):
        return name if name in UPDATES else made.opcode
    return None


def _read(
    analysis: Analysis,
    computation: Computation,
    value: Instruction,
    own: str,
    visits: Iterator[int],
    found: set[str | None],
    held: Collection[int | None],
    element: int | None = None,
) -> bool:
    """Add the operations that read a value, and return whether it is the result of the computation.

    Args:
      own: the name of the collective, which its helpers can have, too.
      visits: ends when enough users were looked at.
      found: gets the names, and None for an operation whose name is not proved.
      held: numbers of elements that a device has before a gather.
      element: the number in a tuple of the part that is followed. None for all of it.
    """
    read = functools.partial(_read, analysis, own=own, visits=visits, found=found, held=held)
    result = value is computation.root
    for user in analysis.users(computation).get(value.name, ()):
        if next(visits, None) is None:
            found.add(None)
            break
        does, name = user.does, _primitive(user.metadata)
        if does == "element" and element not in (None, user.tuple_index):
            continue
        if does in opcodes.CALLS or does == "while":
            place = 0 if does == "while" else operand_names(user).index(value.name)
            inside = [
                c for c in analysis.module.callees(user) if place in c.parameters and c.root is not None
            ]
            rest = None if does in opcodes.CALLS else element
            through = [read(c, c.parameters[place], element=rest) for c in inside]
            if (
                any(through)
                and does in opcodes.CALLS
                and all(c.root.does != "tuple" for c in inside if c.root)
            ):
                result = read(computation, user) or result
            elif not inside or any(through):
                found.add(None)
        elif does == "tuple":
            at = operand_names(user).index(value.name)
            result = read(computation, user, element=at) or result
        elif own and name == own and (does not in _MOVED or _OF_OPCODES.get(own, own) == user.opcode):
            found.add(_proved(user, name) if name == _proved(user, name) else None)
        elif does == "concatenate" and name == own and own in _IN_PIECES:
            found.add(own)
        elif user.opcode == "dynamic-slice" and user.shape is not None and user.shape.elements in held:
            found.add(None)
        elif does in _MOVED:
            following = None if does == "element" else element
            result = read(computation, user, element=following) or result
        elif does in ("elementwise", "select", "compare", "broadcast"):
            found.add(None)  # it reads what others need
        else:
            found.add(_proved(user, name))
    return result


def _proved(instruction: Instruction, name: str) -> str:
    """Return the name of an operation if its opcode can be this operation, and else the opcode."""
    does = instruction.does
    if does in _NAMES:
        return name if name in _NAMES[does] else instruction.opcode
    if does == "reduce":
        return name if name.startswith(("reduce", "arg", "cum")) else instruction.opcode
    others = PRODUCTS | UPDATES | {*_REDUCES.values()}
    return name if name and name not in others else instruction.opcode


# The transpose of a call of each has the same primitive.
_SELF_TRANSPOSED = frozenset({"psum", "psum_invariant", "all_to_all", "ppermute"})


class RequestFields(NamedTuple):
    """The fields of a `Collective` that say who asks for it, and from where."""

    source: str | None
    library_source: str | None
    requested_by: Requester | None
    call: str | None


def request_of(module: Module, metadata: Mapping[str, str]) -> RequestFields:
    """Return who asks for an instruction with this metadata.

    In a backward pass, JAX adds a `psum` for each use in the forward pass of a value that is equal on
    several devices, with the line of this use. A custom derivative rule can call one itself.
    """
    frame, inside = module.frames(metadata)
    source = None if frame is None else frame.place
    library = None if inside is None else inside.place
    name = metadata.get("op_name", "")
    operation = parse_op_name(name)[0]
    if operation.primitive not in PRIMITIVES:
        # A collective inside of the rule of a `custom_partitioning` can have the name of the call.
        of_program = operation.primitive not in ("", "custom_partitioning") and name.startswith(FUNCTIONS)
        return RequestFields(source, library, "partitioner" if of_program else None, None)
    runs = inside or frame
    written = None
    if module.local and runs is not None and runs.line is not None:
        written = written_at(runs.file, runs.line, runs.column)
    call = None if written is None else written.collective
    if "/" not in name:  # of any phase
        called = operation.primitive in CALLS.get(call or "", ())
        return RequestFields(source, library, "code" if called else None, call)
    if operation.phase != "backward":
        return RequestFields(source, library, "code", call)
    if written is None or (written.own_rule and not call):
        return RequestFields(source, library, None, call)
    if operation.primitive in CALLS.get(written.collective, ()):
        if operation.primitive not in _SELF_TRANSPOSED:
            return RequestFields(source, library, "code", call)
        # A transpose has the stack of its call. A custom rule, which can call it itself, has its own.
        names = module.names_of_stacks.get(metadata.get("stack_frame_id", ""), ())
        calls = [one for other in names for one in parse_op_name(other) if one.phase != "backward"]
        own = not written.own_rule and any(one.primitive == operation.primitive for one in calls)
        return RequestFields(source, library, "autodiff" if own else None, call)
    # Autodiff alone adds sums of cotangents, and transposes the calls of the code.
    added = call or operation.primitive in CALLS["psum"]
    return RequestFields(source, library, "autodiff" if added else None, call)


def part_of(analysis: Analysis, value: Value) -> CollectivePart | None:
    """Return the part of a combined collective that has this value as result; None for another value."""
    computation, instruction = value.frame.computation, value.instruction
    if instruction.does != "collective" or not value.path:
        return None
    key = computation.name, instruction.name
    if key not in analysis.parts:
        analysis.parts[key] = parts(analysis, computation, instruction)
    known = analysis.parts[key]
    # A start has the operands before the results.
    return known[value.path[-1] % len(known)] if known else None


def parts(
    analysis: Analysis, computation: Computation, instruction: Instruction
) -> tuple[CollectivePart, ...] | None:
    """Return the parts of a collective with several operands, without their arrays.

    Return None if there is one operand, or if its operands are sent together, as in an all-to-all of a tuple.
    """
    operation = BY_OPCODE[instruction.opcode]
    operands = operand_shapes(computation, instruction)
    together = operation.payload == "first operand" or operation.route == "all-to-all"
    if len(operands) < 2 or together or "slice_sizes" in instruction.attributes:
        return None
    shapes = operands
    if operation.payload == "result":
        result = begun(instruction).shape
        shapes = list((result and result.parts) or ())
    if operation.route == "chain" or len(shapes) != len(operands):
        return None
    results = _results(analysis, computation, instruction)
    names = analysis.argument_names(computation)
    sent = []
    for number, shape in enumerate(shapes):
        named = None
        if operation.reduces:
            named = made_by(analysis, computation, instruction, number)
        elif number in results:
            visits = iter(range(_MOST_USERS))
            named = first_user(analysis, computation, results[number], names, visits)
        size = None if shape is None or (shape.bytes or 0) > LARGEST else shape.bytes
        own = results[number].metadata if number in results else {}
        called = parse_op_name(own.get("op_name"))[0].primitive in PRIMITIVES
        metadata = own if called else named or {}
        request = request_of(analysis.module, metadata)
        sent.append(
            CollectivePart(
                size,
                op_name=metadata.get("op_name") or None,
                operation=operation_of(analysis, computation, instruction, metadata, number),
                **(request._asdict() if called else {"source": request.source}),
            )
        )
    return tuple(sent)


def _results(
    analysis: Analysis, computation: Computation, instruction: Instruction
) -> dict[int | None, Instruction]:
    """Return the instructions that take each result of a collective, by its number."""
    users = analysis.users(computation)
    waiting, results = [instruction], {}
    while waiting:
        for user in users.get(waiting.pop().name, ()):
            if user.opcode == "get-tuple-element":
                results[user.tuple_index] = user
            elif user.opcode.endswith(("-done", "-update")):
                waiting.append(user)
    return results
