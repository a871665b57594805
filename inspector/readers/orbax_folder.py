"""Find an Orbax checkpoint in a folder: a tree of arrays, several items, or the steps of a manager.

https://orbax.readthedocs.io/en/latest/guides/checkpoint/checkpoint_format.html
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inspector.readers import content, limits
from inspector.readers.content import is_macos_metadata
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import counted, numbered

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
    """Return the leaves that a `_METADATA` lists; raise InvalidInput for another file."""
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


TREE = "_METADATA"
SHARDING = "_sharding"
OCDBT = "manifest.ocdbt"
STEP = "_CHECKPOINT_METADATA"
COMMITTED = "commit_success.txt"
MSGPACK = "checkpoint"  # one file with all values, before Orbax had metadata
ARRAY_FILES = (".zarray", "zarr.json")
_FILES = (TREE, OCDBT, STEP, COMMITTED)
_TEMPORARY = ".orbax-checkpoint-tmp"
_NUMBERED = re.compile(r"(?:.*[_\-.])?(\d{1,18})")
_DEEPEST = 6  # nested folders around the checkpoint, as in a zip file
_NAMED = 4  # names that a message lists
_SCANNED = 1_000  # entries of a folder that are checked for array folders


@dataclass(frozen=True)
class CheckpointFolders:
    """The folder of a checkpoint's metadata, and the folder of each item by name ("" if there is only one).

    `step` is None if the checkpoint is not one of several steps. `unfinished` has names of folders.
    """

    top: Path
    trees: dict[str, Path]
    step: int | None = None
    unfinished: tuple[str, ...] = ()


def find(path: Path, what: str, step: int | None = None) -> CheckpointFolders:
    """Return the checkpoint in a folder. If it has several steps, return `step`, or the latest if None.

    Raise InvalidInput if there is none, or only an unfinished one.
    """
    if not path.is_dir():
        raise InvalidInput(
            f"{what} is a file, but an Orbax checkpoint is a folder{_hint(path)}"
            if path.exists()
            else f"{what} does not exist"
        )
    given = path
    number = None
    passed: list[str] = []
    for _ in range(_DEEPEST):
        if _TEMPORARY in path.name or _TEMPORARY in Path(what).name:
            raise InvalidInput(
                f"{what} is an unfinished checkpoint ({_TEMPORARY} is in its name): Orbax was still "
                "writing it, or was stopped"
            )
        if _is_tree(path):
            return _checked_step(CheckpointFolders(path, {"": path}, number), step, what)
        inner = _folders(path, what)
        unfinished = tuple(folder.name for folder in inner if _TEMPORARY in folder.name)
        passed += unfinished
        inner = [folder for folder in inner if folder.name not in unfinished]
        trees = {folder.name: folder for folder in inner if _is_tree(folder)}
        # Next to the metadata of a checkpoint, folders are items, even if their names are numbers.
        steps = {} if (path / STEP).is_file() else _steps(inner)
        if trees and not {*trees.values()} <= {*steps.values()}:
            trees = trees if len(trees) > 1 else {"": next(iter(trees.values()))}
            return _checked_step(CheckpointFolders(path, trees, number, unfinished), step, what)
        if steps:
            if number is not None:
                break
            number = max(steps) if step is None else step
            if number not in steps:
                raise InvalidInput(f"{what} has no step {number}; it has {_listed(sorted(steps))}")
            path = steps[number]
            continue
        if len(inner) != 1:
            break
        path = inner[0]
    if passed:
        raise InvalidInput(
            f"{what} contains only the unfinished checkpoint {shown(passed[0])}: Orbax was still "
            "writing it, or was stopped"
        )
    raise InvalidInput(_nothing_found(given, what))


def _hint(path: Path) -> str:
    if path.name == SHARDING:
        return ": give the folder that contains it, or read it as sharding"
    return ": give the folder that contains it" if path.name in _FILES else ""


def _checked_step(folders: CheckpointFolders, step: int | None, what: str) -> CheckpointFolders:
    if step is not None and folders.step is None and _number(folders.top.name) != step:
        raise InvalidInput(f"{what} is a single checkpoint, but step {step} was chosen")
    return folders


def _is_tree(path: Path) -> bool:
    """Return whether a folder contains arrays, even if some metadata is missing."""
    if any((path / name).is_file() for name in (TREE, OCDBT, SHARDING, MSGPACK)):
        return True
    try:
        for number, entry in enumerate(path.iterdir()):
            if number > _SCANNED:
                break
            if entry.is_dir() and any((entry / name).is_file() for name in ARRAY_FILES):
                return True
    except OSError:
        pass
    return False


def _steps(folders: Iterable[Path]) -> dict[int, Path]:
    """Return the folders with names of steps, such as `1000` and `checkpoint_1000`."""
    return {number: folder for folder in folders if (number := _number(folder.name)) is not None}


def _number(name: str) -> int | None:
    match = _NUMBERED.fullmatch(name)
    return int(match[1]) if match else None


def _folders(path: Path, what: str) -> list[Path]:
    try:
        folders = sorted(
            entry
            for entry in path.iterdir()
            if not is_macos_metadata((entry.name,)) and entry.is_dir() and not entry.is_symlink()
        )
    except OSError as error:
        raise InvalidInput(f"{what} cannot be read: {error.strerror}") from None
    if len(folders) > limits.MOST_ARRAYS:
        raise InvalidInput(f"{what} contains more than {limits.MOST_ARRAYS:,} folders")
    return folders


def _nothing_found(path: Path, what: str) -> str:
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except OSError:
        names = []
    contains = f"it contains {_listed(names)}" if names else "it is empty"
    return (
        f"{what} is not an Orbax checkpoint: neither it nor an item or step in it has {TREE}, "
        f"{SHARDING} or {OCDBT}; {contains}"
    )


def _listed(names: Sequence[Any]) -> str:
    more = f" and {counted(len(names) - _NAMED, 'more', 'more')}" if len(names) > _NAMED else ""
    return ", ".join(shown(name, 40) for name in names[:_NAMED]) + more
