"""The leaves of a tree that Orbax saved, from its `_METADATA`: what they are called there and here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inspector.core.errors import InvalidInput, shown
from inspector.producers.readers import content, limits

# What `_METADATA` calls values that are arrays; it also has strings, None and empty containers.
_ARRAYS = re.compile(r"jax\.Array|np\.ndarray|numpy\.ndarray|scalar", re.IGNORECASE)
_CONTAINERS = ("None", "Dict", "List", "Tuple", "NamedTuple")
# What is saved without any key around it, as `capture` calls it.
_ALONE = "array"


@dataclass(frozen=True)
class Leaves:
    """The arrays of a tree: its name in the storage → its path, in the order of the file.

    A name is the keys with points between them. `on_host` are those that were no `jax.Array`: NumPy arrays
    and numbers, which no device held. `left_out` is how many leaves are no arrays.
    """

    paths: dict[str, str]
    on_host: frozenset[str]
    left_out: int


def read(path: Path, what: str) -> Leaves:
    """The leaves that a `_METADATA` lists.

    Raises:
      InvalidInput: it is no such file, or has two leaves of one name.
    """
    plain = content.read_json(path, what)
    entries = plain.get("tree_metadata") if isinstance(plain, dict) else None
    if not isinstance(entries, dict):
        raise InvalidInput(f"{what} has no object under tree_metadata, as Orbax's {path.name} has")
    if len(entries) > limits.MOST_ARRAYS:
        raise InvalidInput(
            f"{what} has more than {limits.MOST_ARRAYS:,} leaves, which are all it may have"
        )
    keys: dict[str, Sequence[str]] = {}
    on_host = set()
    left_out = 0
    for key, entry in entries.items():
        where = f"{what} at {shown(key, 200)}"
        own = _keys(entry, where)
        kind = entry.get("value_metadata")
        kind = kind.get("value_type") if isinstance(kind, dict) else None
        if not isinstance(kind, str) or not _ARRAYS.match(kind):
            left_out += kind not in _CONTAINERS
            continue
        name = ".".join(own)
        if name in keys:
            raise InvalidInput(f"{where} has the name {shown(name)}, which another leaf has too")
        keys[name] = own
        if not kind.startswith("jax"):
            on_host.add(name)
    return Leaves(paths_of(keys), frozenset(on_host), left_out)


def paths_of(keys: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The path of each name, its keys with slashes between them.

    Where a key has a slash of its own, two names may have one path; those keep their names, which differ.
    """
    paths = {name: "/".join(own) for name, own in keys.items()}
    counts: dict[str, int] = {}
    for path in paths.values():
        counts[path] = counts.get(path, 0) + 1
    paths = {name: path if counts[path] == 1 else name for name, path in paths.items()}
    if len(set(paths.values())) != len(paths):
        paths = {name: name for name in paths}
    return _numbered({name: _readable(path) or _ALONE for name, path in paths.items()})


def _numbered(paths: dict[str, str]) -> dict[str, str]:
    """A number at each path that was there before, as `capture` has it."""
    taken: set[str] = set()
    found = {}
    for name, path in paths.items():
        unique, number = path, 1
        while unique in taken:
            number += 1
            unique = f"{path} ({number})"
        taken.add(unique)
        found[name] = unique
    return found


def _readable(text: str) -> str:
    """What cannot be printed as Python writes it in a string: a key may hold the end of a line."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text
    )


def _keys(entry: Any, where: str) -> list[str]:
    """The keys of a leaf, from the root on; none of what was saved by itself."""
    keys = entry.get("key_metadata") if isinstance(entry, dict) else None
    if not isinstance(keys, list):
        raise InvalidInput(f"{where} has no list under key_metadata")
    names = [one.get("key") if isinstance(one, dict) else None for one in keys]
    if not all(isinstance(name, str) for name in names):
        raise InvalidInput(f"{where} has no text for each key under key_metadata")
    return names
