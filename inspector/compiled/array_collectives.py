"""The collectives of a Snapshot that move an array."""

from dataclasses import dataclass
from typing import Literal

from inspector.hlo.op_name import parse_op_name
from inspector.records.collectives import REDUCTIONS
from inspector.records.snapshot import Array, Collective, Snapshot
from inspector.sharding.traffic import outputs_of, parts_of


@dataclass(frozen=True)
class Moving:
    """A collective that moves an array, or the part of a combined one that does.

    known_by: "followed" if the HLO text connects them, "place" if both are in the same module and the payload
      has the size of the array on a device.
    """

    program: str
    collective: Collective
    known_by: Literal["followed", "place"]


def moving(array: Array, snapshot: Snapshot) -> tuple[Moving, ...]:
    """Return the collectives that move this array, in the order of programs and their texts.

    A gradient is moved by the reductions of its parameter. An activation of the train step is moved by
    collectives in its module in the forward pass.
    """
    return tuple(
        Moving(program.name, collective, known_by)
        for program in snapshot.programs
        for combined in program.collectives or ()
        for collective in parts_of(combined)
        if (known_by := _known_by(array, collective, program.name)) is not None
    )


def looked_for(snapshot: Snapshot) -> bool:
    """Return whether any collective has a list of the arrays that it moves, which can be empty."""
    return any(
        collective.arrays is not None
        for program in snapshot.programs
        for collective in program.collectives or ()
    )


def _known_by(array: Array, collective: Collective, program: str) -> Literal["followed", "place"] | None:
    arrays = collective.arrays or ()
    if array.path in arrays:
        return "followed"
    group, _, inner = array.path.partition("/")
    if array.program is not None and array.program != program:
        return None
    if array.group == "gradient" and group == "gradient":
        serves = f"params/{inner}" in outputs_of(collective) and collective.op in REDUCTIONS
        return "followed" if serves else None
    if array.group == "activation" and not arrays:
        places = parse_op_name(collective.op_name)
        same_size = collective.payload_bytes == array.bytes_per_device is not None
        # The last part of the path is the name of the activation in its module.
        module = inner.rpartition("/")[0]
        if same_size and len(places) == 1 and places[0].phase == "forward":
            return "place" if places[0].module == module else None
    return None
