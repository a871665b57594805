"""The arrays of a combined collective: the bytes and the operation of each.

Compilers combine several collectives into one with several operands. Its text has the name and the line of
one of them. What takes a result has those of the collective that it was. If the partitioner added it, the
operation is the one that makes the operand, if the collective reduces, and else one that uses the result.
"""

from inspector.hlo.analysis import Analysis
from inspector.hlo.asynchronous import begun
from inspector.hlo.collective_names import first_user, made_by, operation_of
from inspector.hlo.module import Computation, Instruction, operand_shapes
from inspector.hlo.op_name import parse_op_name
from inspector.hlo.requesters import request_of
from inspector.hlo.source_calls import PRIMITIVES
from inspector.records.collectives import BY_OPCODE
from inspector.records.snapshot import CollectivePart
from inspector.records.typed_json import LARGEST

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
