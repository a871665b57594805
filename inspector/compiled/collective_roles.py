"""The purpose of a collective for the model: layouts whose mesh axes have other names are compared by it."""

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from inspector.hlo.op_name import BACKWARD, FUNCTIONS, parse_op_name, phases_of
from inspector.records.collectives import REDUCTIONS
from inspector.records.snapshot import Array, Collective, Program, Snapshot
from inspector.sharding.traffic import outputs_of, parts_of

PARAMETERS, GRADIENTS = "gather of parameters", "sum of gradients"
OPTIMIZER, EXPERTS, ACTIVATIONS = "optimizer state", "experts", "activations"
OTHER_ARRAYS = "other arrays"
# In display order.
ROLES: Mapping[str, str] = {
    PARAMETERS: "All-gathers of parameters, and other exchanges that bring them from one layout to another.",
    GRADIENTS: "Reductions of the gradients of parameters, and of results that are combined with them, and "
    "all-gathers of what they reduced.",
    OPTIMIZER: "Exchanges of the optimizer's moments, and of values that it computes.",
    EXPERTS: "Exchanges of activations in modules with experts, by the logical axes of their parameters or "
    "by name.",
    ACTIVATIONS: "Exchanges that move no array of the state or batch: activations and their gradients.",
    OTHER_ARRAYS: "Exchanges of the batch, caches and arrays of other groups, and sums outside of the model, "
    "such as a norm of all gradients.",
}
_GROUPS = {"params": PARAMETERS, "opt_state": OPTIMIZER, "gradient": GRADIENTS, "activation": ACTIVATIONS}
EXPERT = re.compile(r"expert|(?<![a-z])moe(?![a-z])", re.IGNORECASE)


def by_role(program: Program, snapshot: Snapshot) -> Mapping[str | None, tuple[Collective, ...]]:
    """Return the collectives of a program by role; None is the role if their arrays were not looked for.

    A combined collective is one for each of its arrays.

    Those that send nothing, in groups of one device, have no role.
    """
    groups = {array.path: array.group for array in snapshot.arrays}
    experts = _modules_with_experts(snapshot)
    # Without a model, such as in a recorded solver, nothing is known to be an activation.
    inside = ACTIVATIONS if {"params", "activation"} & {*groups.values()} else OTHER_ARRAYS
    trains = has_backward(program)
    collectives: dict[str | None, list[Collective]] = {}
    for collective in itertools.chain.from_iterable(map(parts_of, program.collectives or ())):
        if collective.wire_bytes_per_device != 0:
            role = _role(collective, groups, experts, inside, trains)
            collectives.setdefault(role, []).append(collective)
    return {role: tuple(group) for role, group in collectives.items()}


def _role(
    collective: Collective, groups: Mapping[str, str], experts: frozenset[str], inside: str, trains: bool
) -> str | None:
    """Return the role. If arrays of several groups are moved, parameters count before optimizer state.

    inside: the role of what moves no array.
    trains: whether the program has a backward pass.
    """
    if collective.arrays is None:
        return None
    if not collective.arrays and trains and outside_gradient(collective):
        return OTHER_ARRAYS if collective.op in REDUCTIONS else OPTIMIZER
    if not collective.arrays:
        among_experts = any(place.module in experts for place in parse_op_name(collective.op_name))
        named = EXPERT.search(collective.op_name or "") is not None
        return EXPERTS if among_experts or named else inside
    moved = {groups.get(path, "other") for path in collective.arrays}
    # Some gathers are sums of parts that are zero elsewhere.
    summed = (groups.get(path) for path in outputs_of(collective))
    if "params" in summed and (collective.op in REDUCTIONS or moves_gradients(collective)):
        return GRADIENTS
    return next((name for group, name in _GROUPS.items() if group in moved), OTHER_ARRAYS)


def makes_results(collective: Collective) -> bool:
    """Return whether all that a collective moves is computed in the program and becomes results."""
    return bool(collective.parts) and all(part.outputs and not part.inputs for part in collective.parts or ())


def moves_gradients(collective: Collective) -> bool:
    """Return whether a collective moves gradients that are summed, as the end of an all-reduce in phases."""
    places = parse_op_name(collective.op_name)
    return makes_results(collective) and all(place.phase == "backward" for place in places)


def has_backward(program: Program) -> bool:
    """Return whether a collective of a program is in a backward pass."""
    return any(phases_of(collective.op_name) & BACKWARD for collective in program.collectives or ())


def outside_gradient(collective: Collective) -> bool:
    """Return whether all operations that a collective serves are neither of a forward nor a backward pass."""
    # A name without its beginning says nothing.
    return (collective.op_name or "").startswith(FUNCTIONS) and phases_of(collective.op_name) == {"unknown"}


def _modules_with_experts(snapshot: Snapshot) -> frozenset[str]:
    """Return the modules with a parameter that has a logical axis of experts."""
    return frozenset(
        array.path.partition("/")[2].rpartition("/")[0]
        for array in snapshot.arrays
        if array.group == "params" and any(EXPERT.search(axis or "") for axis in array.logical_axes or ())
    )


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
