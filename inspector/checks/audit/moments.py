"""Which parameter each array of an optimizer's state belongs to, by its path and shape."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from inspector.core.snapshot import Array

_ORNAMENTS = ".[]'\""  # MaxText and Orbax write keys as `['name']`, `[0]` and `.name`


def parameters_of_moments(arrays: Iterable[Array]) -> dict[str, Array]:
    """The parameter of each moment, by the moment's path; what has none is not in it.

    A moment has the shape of its parameter and the same end of the path; of several such parameters it
    belongs to the one with the longest common end, then to the one with the shortest path.
    """
    arrays = list(arrays)
    by_end: dict[tuple[str, ...], list[tuple[int, Array]]] = defaultdict(list)
    for array in arrays:
        if array.group == "params":
            keys = _keys(array.path)
            for start in range(len(keys)):
                by_end[keys[start:]].append((len(keys), array))
    found = {}
    for array in arrays:
        if array.group != "opt_state":
            continue
        keys = _keys(array.path)
        for start in range(len(keys)):
            alike = [one for one in by_end.get(keys[start:], ()) if one[1].shape == array.shape]
            if alike:
                found[array.path] = min(alike, key=lambda one: one[0])[1]
                break
    return found


def _keys(path: str) -> tuple[str, ...]:
    return tuple(key.strip(_ORNAMENTS) for key in path.split("/"))
