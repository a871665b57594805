"""Origins of compiled collectives: those of the propagated collectives for the same operations of the model.

The text of a compiled program does not say where shardings come from. Its instructions keep the names of the
operations and the arrays that they serve, as propagated ones do. So a compiled collective has the origins of
the propagated ones over its mesh axes that share an operation or an array with it. The path over the
operations is that of the propagated program, so it is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

from inspector.compiled.op_name import parse_op_name
from inspector.core.snapshot import Collective, Origin, Program

# An all-reduce and a slice can be a reduce-scatter, and the reverse.
_SUMS = frozenset({"all-reduce", "reduce-scatter"})


def with_origins(compiled: Sequence[Program], propagated: Sequence[Program]) -> tuple[Program, ...]:
    """Return compiled programs in which each collective with matching propagated ones has their origins."""
    known = {program.name: _by_place(program.collectives or ()) for program in propagated}
    return tuple(
        program
        if program.collectives is None or program.name not in known
        else replace(
            program,
            collectives=tuple(
                _with_origins(each, known[program.name]) for each in program.collectives
            ),
        )
        for program in compiled
    )


def _by_place(collectives: Sequence[Collective]) -> Mapping[Hashable, list[Collective]]:
    """Return the collectives with origins by each operation and each array that they serve."""
    found: dict[Hashable, list[Collective]] = defaultdict(list)
    for each in collectives:
        for place in _places(each) if each.origins else ():
            found[place].append(each)
    return found


def _places(one: Collective) -> Iterator[Hashable]:
    yield from parse_op_name(one.op_name) if one.op_name else (one.source,)
    yield from one.arrays or ()


def _with_origins(one: Collective, known: Mapping[Hashable, Sequence[Collective]]) -> Collective:
    if one.origins is not None or one.mesh_axes is None:
        return one
    axes = frozenset(one.mesh_axes)
    near = {id(each): each for place in _places(one) for each in known.get(place, ())}
    near = {key: each for key, each in near.items() if axes & frozenset(each.mesh_axes or ())}
    same = [each for each in near.values() if _kind(each.op) == _kind(one.op)]
    origins: dict[tuple[str, str], Origin] = {}
    for each in same or near.values():
        for origin in each.origins or ():
            if origin.mesh_axis in axes:
                origins.setdefault((origin.mesh_axis, origin.from_), replace(origin, steps=None))
    return replace(one, origins=tuple(origins.values())) if origins else one


def _kind(op: str) -> str:
    return "sum" if op in _SUMS else op
