"""Fold identical layers: group arrays whose paths differ only in numbers.

The arrays of one fold have the same group, shape, dtype, logical axes, mesh and placement. The path of a fold
shows the numbers in braces: `params/DotReluDot_{0…3}/W2`.
"""

import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from threading import Lock

import cachetools

from inspector.records.snapshot import Array
from inspector.records.statistics import sum_known

# Splits a path into its texts, with a number between two of them.
NUMBER = re.compile(r"([0-9]+)")


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


# The numbers in a path as strings, each with those that it was joined with.
_Numbers = tuple[tuple[str, ...], ...]
# They, and the places of their arrays among all.
_Entry = tuple[_Numbers, list[int]]


def fold(arrays: Iterable[Array]) -> tuple[Fold, ...]:
    """Return the folds, in the order of their first arrays. Each array is in exactly one fold."""
    return _folds(tuple(arrays))


# Several figures fold the same arrays. The folds keep their arrays, so no other array has the same id.
@cachetools.cached(cachetools.LRUCache(16), lambda arrays: tuple(map(id, arrays)), Lock())
def _folds(arrays: tuple[Array, ...]) -> tuple[Fold, ...]:
    # Only arrays that are equal but for the numbers in their paths can be joined.
    alike: dict[tuple[tuple[str, ...], Hashable], dict[_Numbers, list[int]]] = {}
    for place, array in enumerate(arrays):
        parts = NUMBER.split(array.path)
        key = (tuple(parts[::2]), _layout_key(array))
        numbers: _Numbers = tuple((part,) for part in parts[1::2])
        alike.setdefault(key, {}).setdefault(numbers, []).append(place)
    folds = []
    for (texts, _), by_numbers in alike.items():
        entries: list[_Entry] = list(by_numbers.items())
        for position in range(len(texts) - 1) if len(entries) > 1 else ():
            entries = _joined(position, entries)
        for numbers, places in entries:
            places.sort()
            one_fold = Fold(_path(texts, numbers), tuple(arrays[place] for place in places))
            folds.append((places[0], one_fold))
    return tuple(folded for _, folded in sorted(folds, key=lambda item: item[0]))


def _joined(position: int, entries: list[_Entry]) -> list[_Entry]:
    """Join the entries that differ only in the number at one position."""
    groups: dict[Hashable, list[_Entry]] = {}
    for entry in entries:
        numbers = entry[0]
        groups.setdefault((numbers[:position], numbers[position + 1 :]), []).append(entry)
    joined = []
    for group in groups.values():
        numbers = group[0][0]
        if len(group) > 1:
            every = [number for other, _ in group for number in other[position]]
            every.sort(key=lambda number: (int(number), number))
            numbers = (*numbers[:position], tuple(every), *numbers[position + 1 :])
        joined.append((numbers, [place for _, places in group for place in places]))
    return joined


def _path(texts: Sequence[str], numbers: _Numbers) -> str:
    """Return the texts with the numbers between them: `layer_{0…3}/W`."""
    shown = [number[0] if len(number) == 1 else f"{{{numbers_text(number)}}}" for number in numbers]
    return "".join(text + number for text, number in zip(texts, [*shown, ""], strict=True))


def numbers_text(numbers: Sequence[str]) -> str:
    """Return increasing numbers in short: `0…3`, `0,2,4`, `0,2,5…31`."""
    values = [int(number) for number in numbers]
    run = values == list(range(values[0], values[0] + len(values)))
    if run and len(numbers) > 2:
        return f"{numbers[0]}…{numbers[-1]}"
    if len(numbers) <= 4:
        return ",".join(numbers)
    return f"{','.join(numbers[:3])}…{numbers[-1]}"


# Equal for all arrays of one fold. Other fields are not shown with a fold, so they may differ.
_ARRAY_KEY = attrgetter(
    *("group", "shape", "dtype", "logical_axes", "spec"),
    *("shard_shape", "bytes", "bytes_per_device", "replicas", "memory_kind", "mesh", "unreduced"),
)
_SHARD_KEY = attrgetter("device", "index", "replica", "process")


def _layout_key(array: Array) -> Hashable:
    shards = array.shards
    return _ARRAY_KEY(array), None if shards is None else tuple(map(_SHARD_KEY, shards))
