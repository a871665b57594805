"""Origins of compiled collectives: those of the partitioned collectives for the same operations of the model.

The text of a compiled program does not say where shardings come from. Its instructions keep the names of the
operations and the arrays that they serve, as partitioned ones do. So a compiled collective has the origins of
the partitioned one for the same operation and line that sends the same bytes, or that has the same place in
the flow of data. If several could be the one, such as those of equal layers or of merged operations, it has
what all of them have in common. A combined one has the origins of each of its parts, or none if those of a
part are unknown. The path over the operations is then left out.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from inspector.compiled.matched_conflicts import matched_conflicts
from inspector.hlo.op_name import parse_op_name
from inspector.records.collectives import REDUCTIONS
from inspector.records.snapshot import Collective, CollectivePart, Conflict, Origin, Program
from inspector.sharding.traffic import parts_of


def with_origins(compiled: Sequence[Program], partitioned: Sequence[Program]) -> tuple[Program, ...]:
    """Return compiled programs in which each collective with matching partitioned ones has their origins.

    A compiled program gets the conflicts of the partitioned one, with the names of its collectives.
    """
    before = {program.name: program for program in partitioned}
    return tuple(
        program
        if program.collectives is None or program.name not in before
        else _with_causes(program, program.collectives, before[program.name])
        for program in compiled
    )


def _with_causes(program: Program, collectives: tuple[Collective, ...], before: Program) -> Program:
    known = _by_place(before.collectives or ())
    operations: dict[Hashable, set[str | None]] = defaultdict(set)
    for other in before.collectives or ():
        operations[_serves(other, other.op_name)].add(other.operation)
    orders = _orders(collectives), _orders(before.collectives or ())
    ordered = {kind for kind, order in orders[0].items() if order == orders[1].get(kind)}
    matched = tuple(
        _with_operation(_with_origins(collective, known, ordered), operations) for collective in collectives
    )
    conflicts = program.conflicts
    if conflicts is None and before.conflicts is not None:
        conflicts = matched_conflicts(before.conflicts, before.collectives or (), collectives)
    matched = with_lines(matched, conflicts or ())
    names = before.checkpoint_names if program.checkpoint_names is None else program.checkpoint_names
    return replace(program, collectives=matched, conflicts=conflicts, checkpoint_names=names)


def with_lines(collectives: Sequence[Collective], conflicts: Sequence[Conflict]) -> tuple[Collective, ...]:
    """Return collectives, those without a line with that of the operation whose conflict they resolve.

    XLA has no name for a collective that moves an argument, if it names collectives by the moved array.
    """
    whole = (conflict for conflict in conflicts if conflict.parts is None)
    lines = {name: conflict.source for conflict in whole for name in conflict.collectives}
    return tuple(
        replace(one, source=lines.get(one.name)) if one.source is None else one for one in collectives
    )


def _by_place(collectives: Sequence[Collective]) -> Mapping[Hashable, list[Collective]]:
    """Return the collectives by each operation and each array that they serve."""
    by_place: dict[Hashable, list[Collective]] = defaultdict(list)
    for collective in collectives:
        for place in _places(collective):
            by_place[place].append(collective)
    return by_place


def _places(collective: Collective) -> Iterator[Hashable]:
    if collective.op_name:
        for operation in parse_op_name(collective.op_name):
            yield operation
            if operation.module:  # a value is gathered in one pass and used in both
                yield operation.module, operation.primitive
    else:
        yield None
    yield from collective.arrays or ()


def _orders(collectives: Sequence[Collective]) -> Mapping[Hashable, Counter[Hashable]]:
    """Return by operation and mesh axes the places in the flow of data of the collectives for each name."""
    orders: dict[Hashable, Counter[Hashable]] = defaultdict(Counter)
    for one in collectives:
        orders[one.op, one.mesh_axes][one.op_name, one.depth] += 1
    return orders


def _with_origins(
    collective: Collective, known: Mapping[Hashable, Sequence[Collective]], ordered: Set[Hashable]
) -> Collective:
    if collective.origins is not None or not collective.axis_names:
        return collective
    of_parts = [_origins_of(part, known, ordered) for part in parts_of(collective)]
    if len(of_parts) > 1:
        of_parts = [[replace(origin, steps=None) for origin in origins] for origins in of_parts]
    every = {(origin.mesh_axis, origin.from_): origin for origin in itertools.chain(*of_parts)}
    return replace(collective, origins=tuple(every.values())) if all(of_parts) else collective


def _origins_of(
    part: Collective, known: Mapping[Hashable, Sequence[Collective]], ordered: Set[Hashable]
) -> Sequence[Origin]:
    """Return the origins that each partitioned collective has which can be the one of a part."""
    near = {id(other): other for place in _places(part) for other in known.get(place, ())}
    alike = [other for other in near.values() if _serves(other, None) == _serves(part, None)]
    candidates = [other for other in alike if other.op_name == part.op_name] or alike
    for same in ("payload_bytes", "source", *(["depth"] if (part.op, part.mesh_axes) in ordered else [])):
        equal = [other for other in candidates if getattr(other, same) == getattr(part, same)]
        candidates = equal or candidates
    if len(candidates) == 1 and candidates[0].op_name == part.op_name:
        return candidates[0].origins or ()
    sets = [{(one.mesh_axis, one.from_): one for one in other.origins or ()} for other in candidates]
    first = sets[0] if sets else {}
    return [replace(one, steps=None) for key, one in first.items() if all(key in other for other in sets)]


def _serves(collective: Collective, op_name: str | None) -> Hashable:
    return _kind(collective.op), op_name, collective.mesh_axes, collective.axis_parts


def _with_operation(collective: Collective, proved: Mapping[Hashable, set[str | None]]) -> Collective:
    """Return a collective with the operations that the partitioned program proves, and for each part.

    A compiler writes some operations as loops of others.
    """

    def operation(part: Collective | CollectivePart) -> str | None:
        known = proved.get(_serves(collective, part.op_name), set()) if part.op_name else set()
        return (next(iter(known)) if len(known) == 1 else None) or part.operation

    if len(collective.parts or ()) < 2:
        return replace(collective, operation=operation(collective))
    parts = tuple(replace(part, operation=operation(part)) for part in collective.parts or ())
    names = {part.operation for part in parts}
    return replace(collective, parts=parts, operation=names.pop() if len(names) == 1 else None)


def _kind(op: str) -> str:
    # An all-reduce and a slice can be a reduce-scatter, and the reverse.
    return "sum" if op in REDUCTIONS else op
