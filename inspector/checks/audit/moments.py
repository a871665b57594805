"""Find the parameter that each array of the optimizer's state belongs to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from inspector.core.snapshot import Array

_QUOTES = ".[]'\""  # MaxText and Orbax write keys as `['name']`, `[0]` and `.name`


def parameters_of_moments(arrays: Iterable[Array]) -> dict[str, Array]:
    """Return the parameter of each moment, by the moment's path. Moments without one are left out.

    A moment has the shape of its parameter and the same end of the path. The longest common end wins, then
    the parameter with the shortest path.
    """
    arrays = list(arrays)
    by_end: dict[tuple[str, ...], list[tuple[int, Array]]] = defaultdict(list)
    for array in arrays:
        if array.group == "params":
            keys = _keys(array.path)
            for start in range(len(keys)):
                by_end[keys[start:]].append((len(keys), array))
    parameters = {}
    for array in arrays:
        if array.group != "opt_state":
            continue
        keys = _keys(array.path)
        for start in range(len(keys)):
            same = [one for one in by_end.get(keys[start:], ()) if one[1].shape == array.shape]
            if same:
                parameters[array.path] = min(same, key=lambda one: one[0])[1]
                break
    return parameters


def _keys(path: str) -> tuple[str, ...]:
    return tuple(key.strip(_QUOTES) for key in path.split("/"))
