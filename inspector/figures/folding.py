"""Arrays that differ only in a number of their path, such as identical layers, folded into one.

A *fold* stands for all of its arrays: equal in group, shape, dtype, axes and placement, and their paths
are every combination of the numbers in braces: `params/DotReluDot_{0…3}/W2` ×4.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from inspector.core.snapshot import Array

_NUMBER = re.compile(r"([0-9]+)")


@dataclass(frozen=True)
class Fold:
    """Some arrays that are equal but for numbers in their paths; often only one.

    path: the path they share, with `{0…3}` for the numbers in which they differ.
    arrays: all of them, in the order in which they came.
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
        return _sum(array.bytes for array in self.arrays)

    @property
    def bytes_per_device(self) -> int | None:
        return _sum(array.bytes_per_device for array in self.arrays)


# A path cut at its numbers: text, numbers, text, numbers, … text; numbers as the texts that stand there.
_Pattern = tuple[tuple[str, ...], ...]


def fold(arrays: Iterable[Array]) -> tuple[Fold, ...]:
    """Fold arrays, in the order of each fold's first array. No array is lost or in two folds."""
    entries = [(_pattern(array.path), [(place, array)]) for place, array in enumerate(arrays)]
    most = max((len(pattern) for pattern, _ in entries), default=0)
    for position in range(1, most, 2):
        entries = _fold_at(position, entries)
    folds = []
    for pattern, members in entries:
        members.sort(key=lambda member: member[0])
        path = "".join(_part_text(part) for part in pattern)
        folds.append((members[0][0], Fold(path, tuple(array for _, array in members))))
    return tuple(one for _, one in sorted(folds, key=lambda item: item[0]))


def _fold_at(
    position: int, entries: list[tuple[_Pattern, list[tuple[int, Array]]]]
) -> list[tuple[_Pattern, list[tuple[int, Array]]]]:
    """Join the entries that are equal everywhere but at one place of their patterns."""
    groups: dict[Hashable, list[tuple[_Pattern, list[tuple[int, Array]]]]] = {}
    for pattern, members in entries:
        rest = (pattern[:position], pattern[position + 1 :]) if position < len(pattern) else pattern
        key = (position < len(pattern), rest, _layout_key(members[0][1]))
        groups.setdefault(key, []).append((pattern, members))
    folded = []
    for group in groups.values():
        pattern = group[0][0]
        if len(group) > 1:
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
    """Numbers in rising order in short: `0…3`, `0,2,4`, `0,2,5…31`."""
    values = [int(number) for number in numbers]
    run = values == list(range(values[0], values[0] + len(values)))
    if run and len(numbers) > 2:
        return f"{numbers[0]}…{numbers[-1]}"
    if len(numbers) <= 4:
        return ",".join(numbers)
    return f"{','.join(numbers[:3])}…{numbers[-1]}"


def _layout_key(array: Array) -> Hashable:
    """Everything in which arrays of one fold are equal; `extra` is not shown, so it is left out."""
    shards = array.shards
    return (
        array.group,
        array.shape,
        array.dtype,
        array.logical_axes,
        array.spec,
        array.shard_shape,
        array.bytes,
        array.bytes_per_device,
        array.replicas,
        None
        if shards is None
        else tuple((one.device, one.index, one.replica, one.process) for one in shards),
    )


def _sum(numbers: Iterable[int | None]) -> int | None:
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total
