"""Arrays that differ for the same reason, together: each of them in exactly one group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inspector.compare.difference.amounts import Amount, per_device
from inspector.compare.difference.array_differences import ArrayDifference
from inspector.compare.difference.causes import Causes, by_parameter, split_dimensions
from inspector.compare.difference.mesh_change import Axes
from inspector.core.snapshot import Snapshot
from inspector.core.totals import STATE_GROUPS

DIMENSION = "dimension"  # how one without a logical axis is called, with its number after it
# From these mesh axes to those.
Change = tuple[Axes, Axes]


@dataclass(frozen=True)
class Group:
    """Differences with the same causes, or, where no cause is known, with the same changes.

    state: what each device holds of those of them that are train state. all: of all of them.
    partly: how many have only some of the changes that the others have.
    """

    causes: tuple[str, ...]
    differences: tuple[ArrayDifference, ...]
    state: Amount
    all: Amount
    partly: int = 0

    @property
    def weight(self) -> tuple[int, int, int, int]:
        """Groups with more of it are told first: train state that a device gains or loses, then bytes of
        all arrays, then how much they are and how many."""
        moved = max(self.all.before or 0, self.all.after or 0)
        return abs(self.state.gained or 0), abs(self.all.gained or 0), moved, len(self.differences)


def groups(
    differences: Sequence[ArrayDifference], causes: Causes, before: Snapshot, after: Snapshot
) -> tuple[Group, ...]:
    """All arrays that differ, the largest group first."""
    changed = [one for one in differences if one.changed]
    told = by_parameter({one.path: causes.of(one) for one in changed})
    together: dict[tuple, list[ArrayDifference]] = {}
    for one in changed:
        clauses = told[one.path]
        key = (clauses, frozenset() if clauses else kind(one))
        together.setdefault(key, []).append(one)
    partly: dict[tuple, int] = {}
    for key in sorted(together, key=lambda key: len(together[key])):
        host = _host_by_causes(key, together) if key[0] else _host_by_changes(key, together)
        if host is not None:
            partly[host] = partly.pop(key, 0) + partly.get(host, 0) + len(together[key])
            together[host] += together.pop(key)
    order = {one.path: place for place, one in enumerate(changed)}
    found = []
    for key, members in together.items():
        members.sort(key=lambda one: order[one.path])
        state = [one for one in members if one.either.group in STATE_GROUPS]
        found.append(
            Group(
                key[0],
                tuple(members),
                per_device(state, before, after),
                per_device(members, before, after),
                partly.get(key, 0),
            )
        )
    return tuple(sorted(found, key=lambda one: [-number for number in one.weight]))


def kind(one: ArrayDifference) -> frozenset:
    """What differs of an array, so that arrays of one kind are told together."""
    marks: set = set()
    for fact in one.changed:
        if fact in ("only before", "only after", "shape", "group", "logical axes"):
            marks.add(fact)
        elif fact == "dtype" and one.before and one.after:
            marks.add((fact, one.before.dtype, one.after.dtype))
    marks |= set(axis_changes(one))
    if not marks:
        marks |= set(one.changed)
    return frozenset(marks)


def axis_changes(one: ArrayDifference) -> dict[Change, str]:
    """What the dimensions that are split otherwise changed from and to, each with its logical axis.

    A dimension without one is called by its number, from 0.
    """
    was, becomes = one.split_before, one.split_after
    if was is None or becomes is None:
        return {}
    names = one.either.logical_axes or ()
    found = {}
    for dimension in split_dimensions(one):
        name = names[dimension] if dimension < len(names) else None
        change = tuple(
            split[dimension] if dimension < len(split) else () for split in (was, becomes)
        )
        found[change] = name or f"{DIMENSION} {dimension}"
    return found


def _host_by_changes(key: tuple, together: dict[tuple, list[ArrayDifference]]) -> tuple | None:
    """The larger group without a cause that has all changes of this one, and more."""
    marks = key[1]
    if not marks:
        return None
    larger = [
        other
        for other in together
        if not other[0] and marks < other[1] and len(together[other]) >= len(together[key])
    ]
    return max(larger, key=lambda other: len(together[other]), default=None)


def _host_by_causes(key: tuple, together: dict[tuple, list[ArrayDifference]]) -> tuple | None:
    """For arrays that are no train state: the group that has their causes and more."""
    if any(one.either.group in STATE_GROUPS for one in together[key]):
        return None
    larger = [other for other in together if set(key[0]) < set(other[0])]
    return max(larger, key=lambda other: len(together[other]), default=None)
