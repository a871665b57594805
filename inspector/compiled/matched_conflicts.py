"""Conflicts of a compiled program: those of the partitioned one, with the collectives that resolve them.

The partitioner makes a collective for each conflict. A compiler then combines, merges, repeats and narrows
them. A part of a compiled collective resolves the conflict of the partitioned collective that moves the same
arrays along the same mesh axes, or else serves the same operation. If several fit equally well, and they are
equal in number to the parts, each has its conflict. Otherwise all their conflicts share the parts.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from inspector.hlo.op_name import parse_op_name
from inspector.records.collectives import REDUCTIONS
from inspector.records.snapshot import Collective, Conflict
from inspector.sharding.traffic import inputs_of, outputs_of, parts_of

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
