"""Names of collectives that the compilers do not name after the operation that needs them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from inspector.compiled.hlo.analysis import Analysis
from inspector.compiled.hlo.module import (
    SAME_DATA,
    Computation,
    Instruction,
    operand_names,
    operand_shapes,
)
from inspector.compiled.op_name import with_first
from inspector.core.collectives import BY_OPCODE

_MOST_STEPS = 12
_MOST_USERS = 64  # that are looked at for the name of one collective
# Instructions that pass on the data of their first operand.
_PASS_ON = SAME_DATA | {"get-tuple-element", "pad"}


def metadata_of(analysis: Analysis, computation: Computation, instruction: Instruction) -> Mapping[str, str]:
    """Return the metadata. Of a collective with the name of an argument, the name is that of its first user.

    The partitioner of JAX 0.12 gives what it inserts the name of the value that it moves, that of JAX 0.10
    the name of the operation that needs it. The name of an argument says neither the phase nor the layer.
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
    """Return the metadata of the first operation with a name of its own that reads a value or its copy.

    It can be inside a fusion.

    Args:
      names: those of arguments, and None, which what copies or converts the value can have.
      visits: ends when enough users were looked at.
    """
    for user in analysis.users(computation).get(value.name, ()):
        if next(visits, None) is None:
            return None
        named = None
        for called in user.called if user.opcode == "fusion" else ():
            inner = analysis.module.by_name.get(called.computation)
            place = operand_names(user).index(value.name)
            if inner is not None and place in inner.parameters:
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
    names = operand_names(instruction)
    source = computation.by_name.get(names[operand] or "") if operand < len(names) else None
    for _ in range(_MOST_STEPS):
        if source is None:
            return None
        if source.opcode == "parameter":
            sites = analysis.call_sites.get(computation.name, ())
            number = source.number
            if len(sites) != 1 or sites[0].role != "call" or number is None:
                return None
            computation = sites[0].caller
            source = computation.operand(sites[0].instruction, number)
        elif source.metadata.get("op_name"):
            return source.metadata
        elif source.opcode in _PASS_ON:
            source = computation.operand(source)
        else:
            return None
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
