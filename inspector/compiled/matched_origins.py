"""Origins and conflicts of compiled collectives: those of the partitioned ones for the same operations.

The text of a compiled program does not say where shardings come from. Its instructions keep the names of the
operations and the arrays that they serve, as partitioned ones do. So a compiled collective has the origins of
the partitioned one for the same operation and line that sends the same bytes, or that has the same place in
the flow of data. If several could be the one, such as those of equal layers or of merged operations, it has
what all of them have in common. A combined one has the origins of each of its parts, or none if those of a
part are unknown. The path over the operations is then left out.

The partitioner makes a collective for each conflict. A compiler then combines, merges, repeats and narrows
them. A part of a compiled collective resolves the conflict of the partitioned collective that moves the same
arrays along the same mesh axes, or else serves the same operation. If several fit equally well, and they are
equal in number to the parts, each has its conflict. Otherwise all their conflicts share the parts.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from inspector.hlo.op_name import parse_op_name
from inspector.records.collectives import REDUCTIONS
from inspector.records.snapshot import Collective, CollectivePart, Conflict, Origin, Program
from inspector.sharding.traffic import inputs_of, outputs_of, parts_of


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


# Name of a collective, and the number of its part; None for one that is not combined.
PartKey = tuple[str, int | None]
_ARRAYS = 10  # how much more equal arrays say than equal names and sizes


def numbered_parts(collective: Collective) -> Iterator[tuple[PartKey, Collective]]:
    """Yield each part of a collective as a collective, with its key."""
    parts = parts_of(collective)
    for number, part in enumerate(parts):
        yield (collective.name, number if len(parts) > 1 else None), part


def parts_of_conflict(conflict: Conflict) -> tuple[PartKey, ...]:
    """Return the keys of the parts that resolve a conflict."""
    numbers = conflict.parts or (None,) * len(conflict.collectives)
    return tuple(zip(conflict.collectives, numbers, strict=True))


def matched_conflicts(
    conflicts: Sequence[Conflict], partitioned: Sequence[Collective], compiled: Sequence[Collective]
) -> tuple[Conflict, ...]:
    """Return the conflicts of a partitioned program with the collectives of the compiled one.

    A conflict has no collective if none of the compiled program is known to resolve it.
    """
    resolved: dict[str, list[PartKey]] = defaultdict(list)
    for key, names in _matches(partitioned, compiled).items():
        for name in names:
            resolved[name].append(key)
    matched = []
    for conflict in conflicts:
        keys = dict.fromkeys(key for name in conflict.collectives for key in resolved[name])
        combined = any(number is not None for _, number in keys)
        matched.append(
            replace(
                conflict,
                collectives=tuple(name for name, _ in keys),
                parts=tuple(number for _, number in keys) if combined else None,
            )
        )
    return tuple(matched)


def _matches(
    partitioned: Sequence[Collective], compiled: Sequence[Collective]
) -> Mapping[PartKey, tuple[str, ...]]:
    """Return the names of the partitioned collectives that each part of a compiled one can replace."""
    alike: dict[tuple[str, ...], list[PartKey]] = defaultdict(list)
    for collective in compiled:
        for key, part in numbered_parts(collective):
            called = part.requested_by in ("code", "autodiff")
            fits = [(_fit(other, part), other.name) for other in partitioned if not called]
            best = max((fit for fit, _ in fits), default=0)
            if best:
                alike[tuple(name for fit, name in fits if fit == best)].append(key)
    matches: dict[PartKey, tuple[str, ...]] = {}
    for names, keys in alike.items():
        one_each = len(names) == len(keys)
        for number, key in enumerate(keys):
            matches[key] = names[number : number + 1] if one_each else names
    return matches


def _fit(partitioned: Collective, compiled: Collective) -> int:
    """Return how well a part of a compiled collective fits a partitioned one; 0 if it does not."""
    if partitioned.network != compiled.network and None not in (partitioned.network, compiled.network):
        return 0
    if not set(partitioned.axis_names) & set(compiled.axis_names):
        return 0
    same_kind = (partitioned.op in REDUCTIONS) == (compiled.op in REDUCTIONS)
    fit = 0
    for paths in (inputs_of, outputs_of):
        before, after = set(paths(partitioned)), set(paths(compiled))
        if before and before == after:
            fit += _ARRAYS
        elif before and after and not before & after:
            return 0
    # A gather can be a sum of shards and zeros, which the same array proves.
    if not same_kind and not fit:
        return 0
    # A compiler can name a collective after a transpose of the same line.
    named = _fit_of_names(partitioned.op_name, compiled.op_name)
    named += int(partitioned.source == compiled.source is not None)
    if not fit and not named:
        return 0
    size = partitioned.payload_bytes == compiled.payload_bytes is not None
    same_axes = partitioned.mesh_axes == compiled.mesh_axes
    return fit + named + size + 2 * same_axes + (partitioned.op == compiled.op)


def _fit_of_names(first: str | None, second: str | None) -> int:
    """Return 4 for the same operations, 3 for a common one, 2 for one of another phase.

    Return 1 for a primitive of the same name in another module, and 0 for none.
    """
    if not first or not second:
        return 0
    if first == second:
        return 4
    names = [parse_op_name(name) for name in (first, second)]
    if set(names[0]) & set(names[1]):
        return 3
    places = [{(op.module, op.primitive) for op in ops if op.module} for ops in names]
    primitives = [{op.primitive for op in ops if op.primitive} for ops in names]
    return 2 if places[0] & places[1] else int(bool(primitives[0] & primitives[1]))
