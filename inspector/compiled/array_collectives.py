"""Which collectives move an array, and which arrays stand where a collective does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from inspector.compiled.op_name import parse_op_name
from inspector.core.collectives import OPERATIONS
from inspector.core.snapshot import Array, Collective, Snapshot

_REDUCTIONS = frozenset(operation.name for operation in OPERATIONS.values() if operation.reduces)


@dataclass(frozen=True)
class Moving:
    """A collective of a program that moves an array, and how that is known.

    `followed`: the program's text leads from one to the other. `place`: both stand in the same module, and
    what the collective takes has the size of what a device holds of the array.
    """

    program: str
    collective: Collective
    known_by: Literal["followed", "place"]


def moving(array: Array, found: Snapshot) -> tuple[Moving, ...]:
    """The collectives that move this array, program by program in the order of their texts.

    A gradient is moved by the reductions that serve its parameter, an activation of the train step by what
    stands at its place in the forward pass.
    """
    several = []
    for program in found.programs:
        for collective in program.collectives or ():
            known_by = _known_by(array, collective, program.name)
            if known_by is not None:
                several.append(Moving(program.name, collective, known_by))
    return tuple(several)


def looked_for(found: Snapshot) -> bool:
    """Whether any program tells which arrays its collectives move."""
    return any(
        one.arrays is not None for program in found.programs for one in program.collectives or ()
    )


def _known_by(
    array: Array, collective: Collective, program: str
) -> Literal["followed", "place"] | None:
    arrays = collective.arrays or ()
    if array.path in arrays:
        return "followed"
    group, _, inner = array.path.partition("/")
    if array.program is not None and array.program != program:
        return None
    if array.group == "gradient" and group == "gradient":
        serves = f"params/{inner}" in arrays and collective.op in _REDUCTIONS
        return "followed" if serves else None
    if array.group == "activation" and not arrays:
        places = parse_op_name(collective.op_name)
        same_size = collective.payload_bytes == array.bytes_per_device is not None
        # The last part of the path is the activation's own name in its module.
        module = inner.rpartition("/")[0]
        if same_size and len(places) == 1 and places[0].phase == "forward":
            return "place" if places[0].module == module else None
    return None
