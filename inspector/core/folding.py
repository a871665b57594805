"""Fold identical layers: group arrays whose paths differ only in numbers.

The arrays of one fold have the same group, shape, dtype, logical axes and placement. The path of a fold
shows the numbers in braces: `params/DotReluDot_{0…3}/W2`.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from threading import Lock

import cachetools

from inspector.core.snapshot import Array
from inspector.core.statistics import sum_known

_NUMBER = re.compile(r"([0-9]+)")


@dataclass(frozen=True)
class Fold:
    """One or more arrays that are equal except for numbers in their paths.

    path: the common path, with `{0…3}` for the numbers that differ.
    arrays: the arrays, in their original order.
    """

    path: str
    arrays: tuple[Array, ...]

    @property
    def first(self) -> Array:
        return self.arrays[0]

    @property
    def count(self) -> int:
        return len(self.arrays)

    @property
    def bytes(self) -> int | None:
        return sum_known(array.bytes for array in self.arrays)

    @property
    def bytes_per_device(self) -> int | None:
        return sum_known(array.bytes_per_device for array in self.arrays)


# A path split at its numbers: text, numbers, text, numbers, … text. Numbers are kept as strings.
_Pattern = tuple[tuple[str, ...], ...]


def fold(arrays: Iterable[Array]) -> tuple[Fold, ...]:
    """Return the folds, in the order of their first arrays. Each array is in exactly one fold."""
    return _folds(tuple(arrays))


# Several figures fold the same arrays. The folds keep their arrays, so no other array has the same id.
@cachetools.cached(cachetools.LRUCache(16), lambda arrays: tuple(map(id, arrays)), Lock())
def _folds(arrays: tuple[Array, ...]) -> tuple[Fold, ...]:
    entries = [(_pattern(array.path), [(place, array)]) for place, array in enumerate(arrays)]
    most = max((len(pattern) for pattern, _ in entries), default=0)
    for position in range(1, most, 2):
        entries = _fold_at(position, entries)
    folds = []
    for pattern, members in entries:
        members.sort(key=lambda member: member[0])
        path = "".join(_part_text(part) for part in pattern)
        folds.append((members[0][0], Fold(path, tuple(array for _, array in members))))
    return tuple(folded for _, folded in sorted(folds, key=lambda item: item[0]))


def _fold_at(
    position: int, entries: list[tuple[_Pattern, list[tuple[int, Array]]]]
) -> list[tuple[_Pattern, list[tuple[int, Array]]]]:
    """Join the entries that differ only at one position of their patterns."""
    groups: dict[Hashable, list[tuple[_Pattern, list[tuple[int, Array]]]]] = {}
    for pattern, members in entries:
        rest = (pattern[:position], pattern[position + 1 :]) if position < len(pattern) else pattern
        key = (position < len(pattern), rest, _layout_key(members[0][1]))
        groups.setdefault(key, []).append((pattern, members))
    folded = []
    for group in groups.values():
        pattern = group[0][0]
        # Paths that end earlier are equal, as only a damaged Snapshot has them.
        if len(group) > 1 and position < len(pattern):
            numbers = tuple(number for entry, _ in group for number in entry[position])
            ordered = tuple(sorted(numbers, key=lambda number: (int(number), number)))
            pattern = (*pattern[:position], ordered, *pattern[position + 1 :])
        folded.append((pattern, [member for _, members in group for member in members]))
    return folded


def _pattern(path: str) -> _Pattern:
    return tuple((part,) for part in _NUMBER.split(path))


def _part_text(part: tuple[str, ...]) -> str:
    return part[0] if len(part) == 1 else f"{{{numbers_text(part)}}}"


def numbers_text(numbers: Sequence[str]) -> str:
    """Return increasing numbers in short: `0…3`, `0,2,4`, `0,2,5…31`."""
    values = [int(number) for number in numbers]
    run = values == list(range(values[0], values[0] + len(values)))
    if run and len(numbers) > 2:
        return f"{numbers[0]}…{numbers[-1]}"
    if len(numbers) <= 4:
        return ",".join(numbers)
    return f"{','.join(numbers[:3])}…{numbers[-1]}"


# Equal for all arrays of one fold. `extra` is not shown, so it may differ.
_ARRAY_KEY = attrgetter(
    *("group", "shape", "dtype", "logical_axes", "spec"),
    *("shard_shape", "bytes", "bytes_per_device", "replicas", "memory_kind"),
)
_SHARD_KEY = attrgetter("device", "index", "replica", "process")


def _layout_key(array: Array) -> Hashable:
    shards = array.shards
    return _ARRAY_KEY(array), None if shards is None else tuple(map(_SHARD_KEY, shards))
