"""Who asks for a collective: the code, autodiff, or the partitioner; and the arrays of a combined one.

Compilers combine several collectives into one with several operands. Its text has the name and the line of
one of them. What takes a result has those of the collective that it was. If the partitioner added it, the
operation is the one that makes the operand, if the collective reduces, and else one that uses the result.
"""

from collections.abc import Mapping
from typing import NamedTuple

from inspector.hlo.analysis import Analysis
from inspector.hlo.asynchronous import begun
from inspector.hlo.collective_names import first_user, made_by, operation_of
from inspector.hlo.module import Computation, Instruction, Module, operand_shapes
from inspector.hlo.op_name import FUNCTIONS, parse_op_name
from inspector.hlo.source_calls import CALLS, PRIMITIVES, written_at
from inspector.records.collectives import BY_OPCODE
from inspector.records.snapshot import CollectivePart, Requester
from inspector.records.typed_json import LARGEST


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
        return RequestFields(source, library, "code", call)
    # Autodiff alone adds sums of cotangents, and transposes the calls of the code.
    added = call or operation.primitive in CALLS["psum"]
    return RequestFields(source, library, "autodiff" if added else None, call)


_MOST_USERS = 64  # that are looked at for the name of one part


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
