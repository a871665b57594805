"""Find the captured arrays among the inputs and outputs of a compiled program.

A value matches an array of the same shape, dtype and sharding whose path has the same end. The arguments of
the program can be the whole state, parts of it, or its leaves.

Numbered values, such as those of `eqx.filter_jit`, have no path. They match the arrays of a subtree if these
follow each other in exactly one place.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from jax.sharding import NamedSharding, Sharding

from inspector.core.snapshot import Array
from inspector.producers.arrays.leaves import Leaf
from inspector.producers.arrays.records import spec_of
from inspector.producers.capture.captured_program import Value


@dataclass(frozen=True)
class Captured:
    """A captured array: its record, its leaf, and its JAX sharding, None if unknown."""

    array: Array
    leaf: Leaf
    sharding: Sharding | None


def matched(values: Sequence[Value], captured: Sequence[Captured]) -> tuple[Value, ...]:
    """Return the values, those that are captured arrays with the paths of the arrays.

    No array matches two inputs, or two outputs. The longest common end of the paths wins.
    """
    paths: dict[int, str] = {}
    for output in (False, True):
        own = [(at, value) for at, value in enumerate(values) if value.output == output]
        paths |= _matches(own, captured)
    return tuple(replace(value, path=paths[at]) if at in paths else value for at, value in enumerate(values))


def _matches(values: Iterable[tuple[int, Value]], captured: Sequence[Captured]) -> dict[int, str]:
    left = {at: (value, _keys(value.leaf.path)) for at, value in values}
    free = {at: (array, _keys(array.leaf.path)) for at, array in enumerate(captured)}
    paths: dict[int, str] = {}
    longest = max((len(keys) for _, keys in free.values()), default=0)
    for length in range(longest, 0, -1):
        by_end: dict[Hashable, list[int]] = defaultdict(list)
        for number, (array, keys) in free.items():
            end = keys[-length:]
            if len(end) == length and (end == keys or not all(key.isdigit() for key in end)):
                by_end[end, _type(array.leaf)].append(number)
        for at, (value, keys) in list(left.items()):
            candidates = by_end.get((keys[-length:], _type(value.leaf)), [])
            same = next((n for n in candidates if _same_sharding(value, free[n][0])), None)
            if same is not None:
                candidates.remove(same)
                paths[at] = free.pop(same)[0].array.path
                del left[at]
    numbered = {at: value for at, (value, keys) in left.items() if keys[-1].isdigit()}
    return paths | _in_order(numbered, [array for array, _ in free.values()])


def _in_order(values: dict[int, Value], captured: Sequence[Captured]) -> dict[int, str]:
    """Return the paths of values by the order of the arrays of each subtree, the largest subtree first."""
    by_root: dict[str, list[Captured]] = defaultdict(list)
    for entry in captured:
        by_root[_keys(entry.leaf.path)[0]].append(entry)
    paths: dict[int, str] = {}
    for arrays in (list(captured), *sorted(by_root.values(), key=len, reverse=True)):
        free = [at for at in values if at not in paths]
        # One array alone may have the type of another input by chance.
        if len(arrays) < 2 or any(array.array.path in paths.values() for array in arrays):
            continue
        runs = [free[start : start + len(arrays)] for start in range(len(free) - len(arrays) + 1)]
        places = [run for run in runs if _are(run, values, arrays)]
        if len(places) == 1:
            paths |= {at: array.array.path for at, array in zip(places[0], arrays, strict=True)}
    return paths


def _are(run: Sequence[int], values: dict[int, Value], arrays: Sequence[Captured]) -> bool:
    return all(
        _type(values[at].leaf) == _type(array.leaf) and _same_sharding(values[at], array)
        for at, array in zip(run, arrays, strict=True)
    )


def _keys(path: str) -> tuple[str, ...]:
    return tuple(path.split("/"))


def _type(leaf: Leaf) -> Hashable:
    return tuple(leaf.value.shape), str(leaf.value.dtype)


def _same_sharding(value: Value, captured: Captured) -> bool:
    """Return whether both place every element alike.

    A dropped input has no sharding, and JAX may move an array that is not committed to its devices.
    """
    if value.sharding is None or getattr(captured.leaf.value, "committed", True) is False:
        return True
    if captured.sharding is None:
        return False
    rank = len(value.leaf.value.shape)
    try:
        return bool(value.sharding.is_equivalent_to(captured.sharding, rank))
    except Exception:  # an abstract mesh has no devices to compare
        first, second = value.sharding, captured.sharding
        if not isinstance(first, NamedSharding) or not isinstance(second, NamedSharding):
            return False
        return spec_of(first.spec, rank) == spec_of(second.spec, rank)
