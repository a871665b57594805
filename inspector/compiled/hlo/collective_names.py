"""Names of collectives that the compilers do not name after the operation that needs them."""

from collections.abc import Collection, Iterator, Mapping

from inspector.compiled.hlo.analysis import Analysis
from inspector.compiled.hlo.dataflow import Frame, Value
from inspector.compiled.hlo.module import Computation, Instruction, operand_names, operand_shapes
from inspector.compiled.hlo.opcodes import SAME_DATA
from inspector.compiled.op_name import with_first
from inspector.core.collectives import BY_OPCODE

_MOST_USERS = 64  # that are looked at for the name of one collective
_PASS_ON = SAME_DATA | {"pad"}


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
    collective = Value(Frame(computation), instruction)
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
