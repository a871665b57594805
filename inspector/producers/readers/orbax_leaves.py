"""Read the leaves of a tree that Orbax saved from its `_METADATA`: their names and paths."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import numbered
from inspector.producers.readers import content, limits

# Value types of arrays in `_METADATA`, which also has strings, None and empty containers.
_ARRAYS = re.compile(r"jax\.Array|np\.ndarray|numpy\.ndarray|scalar", re.IGNORECASE)
_CONTAINERS = ("None", "Dict", "List", "Tuple", "NamedTuple")
_ALONE = "array"  # the path of an array without a tree, as in `capture`


@dataclass(frozen=True)
class Leaves:
    """The arrays of a tree.

    Attributes:
      paths: name in storage, the keys joined by dots -> path, in the order of the file.
      on_host: names of NumPy arrays and numbers, which were on no device.
      left_out: the number of leaves that are not arrays.
    """

    paths: dict[str, str]
    on_host: frozenset[str]
    left_out: int


def read(path: Path, what: str) -> Leaves:
    """Return the leaves that a `_METADATA` lists."""
    plain = content.read_json(path, what)
    entries = plain.get("tree_metadata") if isinstance(plain, dict) else None
    if not isinstance(entries, dict):
        raise InvalidInput(f"{what} must have an object under tree_metadata, as Orbax writes it")
    if len(entries) > limits.MOST_ARRAYS:
        raise InvalidInput(f"{what} has more than {limits.MOST_ARRAYS:,} leaves, the most allowed")
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
            raise InvalidInput(f"{where} has the name {shown(name)}, as another leaf does")
        keys[name] = own
        if not kind.startswith("jax"):
            on_host.add(name)
    return Leaves(paths_of(keys), frozenset(on_host), left_out)


def paths_of(keys: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return a unique path for each name: its keys joined by slashes.

    If a key contains a slash, two names can give the same path; these keep their names.
    """
    paths = {name: "/".join(own) for name, own in keys.items()}
    counts = Counter(paths.values())
    paths = {name: path if counts[path] == 1 else name for name, path in paths.items()}
    if len(set(paths.values())) != len(paths):
        paths = {name: name for name in paths}
    printable = (_printable(path) or _ALONE for path in paths.values())
    return dict(zip(paths, numbered(printable), strict=True))


def _printable(text: str) -> str:
    """Replace characters that cannot be printed by Python escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _keys(entry: object, where: str) -> list[str]:
    """Return the keys of a leaf from the root; the list is empty for an array without a tree."""
    keys = entry.get("key_metadata") if isinstance(entry, dict) else None
    if not isinstance(keys, list):
        raise InvalidInput(f"{where} must have a list under key_metadata")
    read = [key.get("key") if isinstance(key, dict) else None for key in keys]
    names = [name for name in read if isinstance(name, str)]
    if len(names) < len(read):
        raise InvalidInput(f"{where} must have a text for each key under key_metadata")
    return names
