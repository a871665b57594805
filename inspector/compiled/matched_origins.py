"""Origins of compiled collectives: those of the partitioned collectives for the same operations of the model.

The text of a compiled program does not say where shardings come from. Its instructions keep the names of the
operations and the arrays that they serve, as partitioned ones do. So a compiled collective has the origins of
the partitioned one that sends the same bytes for the same operation. If there is none, because a compiler has
merged or changed it, it has those over its mesh axes that share an operation or an array with it. The path
over the operations is then left out.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

from inspector.compiled.matched_conflicts import matched_conflicts
from inspector.compiled.op_name import parse_op_name
from inspector.core.collectives import REDUCTIONS
from inspector.core.snapshot import Collective, CollectivePart, Conflict, Origin, Program


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
    matched = tuple(
        _with_operation(_with_origins(collective, known), operations) for collective in collectives
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
    lines = {
        name: conflict.source
        for conflict in conflicts
        if conflict.parts is None
        for name in conflict.collectives
    }
    return tuple(
        replace(collective, source=lines.get(collective.name)) if collective.source is None else collective
        for collective in collectives
    )


def _same(collective: Collective) -> Hashable:
    """Return a key that a compiled and a partitioned collective share if they are one."""
    return (
        collective.op,
        collective.op_name,
        collective.mesh_axes,
        collective.axis_parts,
        collective.payload_bytes,
    )


def _by_place(collectives: Sequence[Collective]) -> Mapping[Hashable, list[Collective]]:
    """Return the collectives with origins by each operation and each array that they serve."""
    by_place: dict[Hashable, list[Collective]] = defaultdict(list)
    for collective in collectives:
        for place in _places(collective) if collective.origins else ():
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


def _with_origins(collective: Collective, known: Mapping[Hashable, Sequence[Collective]]) -> Collective:
    axes = frozenset(collective.axis_names)
    if collective.origins is not None or not axes:
        return collective
    near = {id(other): other for place in _places(collective) for other in known.get(place, ())}
    near = {key: other for key, other in near.items() if axes & frozenset(other.axis_names)}
    same = [other for other in near.values() if _kind(other.op) == _kind(collective.op)]
    exact = next((other for other in same if _same(other) == _same(collective)), None)
    if exact is not None:
        return replace(collective, origins=exact.origins)
    origins: dict[tuple[str, str], Origin] = {}
    for other in same or near.values():
        for origin in other.origins or ():
            if origin.mesh_axis in axes:
                origins.setdefault((origin.mesh_axis, origin.from_), replace(origin, steps=None))
    return replace(collective, origins=tuple(origins.values())) if origins else collective


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
