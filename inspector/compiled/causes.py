"""Why collectives exist: places with conflicting shardings, and what depends on a rule."""

import itertools
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from inspector.compiled.matched_origins import numbered_parts, parts_of_conflict
from inspector.records.snapshot import Array, Collective, Conflict, ConflictSide, Origin, Program, Snapshot
from inspector.records.statistics import by_key
from inspector.sharding.rules import rule_behind
from inspector.sharding.rules.written import recorded
from inspector.sharding.traffic import wire_bytes_of_run


@dataclass(frozen=True)
class Conflicts:
    """Equal conflicts of one program, such as one line in each layer.

    conflict: the first of them.
    count: number of operations.
    collectives: all collectives that reshard their operands and results; of combined ones, their parts.
    wire_bytes: bytes that leave one device in one run for these conflicts alone. None if unknown.
    shared_bytes: bytes for collectives that other conflicts share; 0 without any, None if unknown.
    """

    conflict: Conflict
    count: int
    collectives: tuple[Collective, ...]
    wire_bytes: int | None
    shared_bytes: int | None = 0


@dataclass(frozen=True)
class Dependents:
    """What depends on a rule: arrays, values inside programs, and collectives with their program.

    `unknown` is the number of collectives whose origins are not recorded, as of compiled programs.
    """

    rule: str
    arrays: tuple[Array, ...]
    intermediates: tuple[Array, ...]
    collectives: tuple[tuple[Program, Collective], ...]
    unknown: int = 0


def conflicts_of(program: Program) -> tuple[Conflicts, ...]:
    """Return the conflicts of a program, equal ones together, those with the most bytes first.

    Bytes that several of them share count for none of them alone.
    """
    known = {
        key: part for collective in program.collectives or () for key, part in numbered_parts(collective)
    }
    keyed = ((_key(conflict), conflict) for conflict in program.conflicts or ())
    alike = list(by_key(keyed).values())
    parts = [
        [key for key in dict.fromkeys(k for c in equal for k in parts_of_conflict(c)) if key in known]
        for equal in alike
    ]
    users = Counter(itertools.chain.from_iterable(parts))
    groups = []
    for equal, keys in zip(alike, parts, strict=True):
        own = [known[key] for key in keys if users[key] == 1]
        shared = [known[key] for key in keys if users[key] > 1]
        groups.append(
            Conflicts(
                equal[0],
                len(equal),
                tuple(known[key] for key in keys),
                wire_bytes_of_run(*own) if own else None,
                wire_bytes_of_run(*shared),
            )
        )
    return tuple(sorted(groups, key=lambda group: -(group.wire_bytes or 0)))


def wire_bytes_of_conflicts(program: Program) -> int | None:
    """Return the bytes that leave one device in one run for all conflicts, each once; None if unknown.

    It is a lower bound if a conflict has no known collective.
    """
    keys = {key for conflict in program.conflicts or () for key in parts_of_conflict(conflict)}
    parts = [
        part
        for collective in program.collectives or ()
        for key, part in numbered_parts(collective)
        if key in keys
    ]
    return wire_bytes_of_run(*parts) if parts else None


CONSTRAINT = "constraint "  # how the source of a sharding begins, before the line of a constraint


def omitted_axes(conflict: Conflict) -> Iterator[tuple[str, ConflictSide, int, str]]:
    """Yield each mesh axis of an operand along which no device computes, because a constraint omits it.

    Each is the constraint, the operand, its dimension and the axis. All shardings of the one result come from
    this constraint, and no other operand and no result has the axis.
    """
    operands = [side for side in conflict.sides if side.value.startswith("operand")]
    results = [side for side in conflict.sides if side.value.startswith("result")]
    places = {origin.from_ for result in results for origin in result.origins or ()}
    if len(results) != 1 or len(places) != 1 or not (place := places.pop()).startswith(CONSTRAINT):
        return
    used = {axis for side in conflict.sides for axes in (*side.used, *results[0].spec) for axis in axes or ()}
    for operand in operands:
        for dimension, axes in enumerate(operand.spec):
            for axis in axes or ():
                names = [origin.from_ for origin in operand.origins or () if origin.mesh_axis == axis]
                # If it shards the operand, the result has its sharding by propagation.
                if axis not in used and place not in names:
                    yield place, operand, dimension, axis


def replicating_constraint(conflict: Conflict, axes: Sequence[str]) -> str | None:
    """Return the constraint that asks for the one result of an operation whole; None if none is known to.

    The operation then computes it on every device, from operands that were gathered over these mesh axes, or
    its shards are gathered over them.
    """
    results = [side for side in conflict.sides if side.value.startswith("result")]
    if len(results) != 1:
        return None
    every, of_result = (
        {axis for side in sides for names in side.used for axis in names or ()}
        for sides in (conflict.sides, results)
    )
    return results[0].constraint if {*axes} <= of_result or not every & {*axes} else None


def _key(conflict: Conflict) -> Hashable:
    """Return what equal conflicts have in common: the place in the source, types, shardings and rules."""
    return (
        conflict.operation,
        conflict.source,
        tuple(
            (side.value, side.shape, side.dtype, side.spec, side.used, frozenset(_rules(side.origins)))
            for side in conflict.sides
        ),
    )


def rules_behind(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the rules on which arrays or collectives depend, in the order of the layout."""
    rules = {rule for array in snapshot.arrays for rule in _rules_of_array(array, snapshot)}
    rules |= {
        origin.rule
        for program in snapshot.programs
        for collective in program.collectives or ()
        for origin in collective.origins or ()
        if origin.rule
    }
    order = [name for name, _ in recorded(snapshot) or ()]
    return tuple(sorted(rules, key=lambda rule: (_place(rule, order), rule)))


def dependents(snapshot: Snapshot, rule: str) -> Dependents:
    """Return everything whose sharding comes from a rule, such as `embed → fsdp`."""
    placed = [array for array in snapshot.arrays if rule in _rules_of_array(array, snapshot)]
    collectives = [
        (program, collective) for program in snapshot.programs for collective in program.collectives or ()
    ]
    return Dependents(
        rule,
        tuple(array for array in placed if array.program is None),
        tuple(array for array in placed if array.program is not None),
        tuple(pair for pair in collectives if rule in _rules(pair[1].origins)),
        sum(collective.origins is None for _, collective in collectives),
    )


def _rules_of_array(array: Array, snapshot: Snapshot) -> set[str]:
    if array.origins is not None:
        return _rules(array.origins)
    rules = recorded(snapshot)
    if rules is None or array.logical_axes is None:
        return set()
    axes = {axis for entry in array.spec or () for axis in entry or ()}
    behind = (rule_behind(array.logical_axes, axis, rules) for axis in axes)
    return {rule for rule in behind if rule is not None}


def _rules(origins: Iterable[Origin] | None) -> set[str]:
    return {origin.rule for origin in origins or () if origin.rule}


def _place(rule: str, order: list[str]) -> int:
    name = rule.partition(" → ")[0]
    return order.index(name) if name in order else len(order)
