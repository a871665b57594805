"""Where in a folder an Orbax checkpoint is: a tree of arrays by itself, several items, or steps of a manager.

https://orbax.readthedocs.io/en/latest/guides/checkpoint/checkpoint_format.html
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import counted
from inspector.producers.readers import limits
from inspector.producers.readers.content import is_litter

TREE = "_METADATA"
SHARDING = "_sharding"
OCDBT = "manifest.ocdbt"
STEP = "_CHECKPOINT_METADATA"
COMMITTED = "commit_success.txt"
MSGPACK = (
    "checkpoint"  # of one file, from before there was metadata; beside it may be folders of arrays
)
_FILES = (TREE, OCDBT, STEP, COMMITTED)
_TEMPORARY = ".orbax-checkpoint-tmp"
_ARRAY = (".zarray", "zarr.json")
_NUMBERED = re.compile(r"(?:.*[_\-.])?(\d{1,18})")
_DEEPEST = 6  # folders around the checkpoint, as in a zip of it
_NAMED = 4  # steps and entries that a sentence names
_LOOKED_AT = 1_000  # entries of a folder in which an array without a tree is looked for


@dataclass(frozen=True)
class Found:
    """The folders of the trees of one checkpoint: item name → folder; the name is "" where it is alone.

    `top` holds the checkpoint's own metadata, `step` is its number where it is one of several.
    `unfinished` are the names of folders in it that Orbax had not come to the end of.
    """

    top: Path
    trees: dict[str, Path]
    step: int | None = None
    unfinished: tuple[str, ...] = ()


def find(path: Path, what: str, step: int | None = None) -> Found:
    """The checkpoint in a folder: of several steps the one asked for, else the latest.

    Raises:
      InvalidInput: there is none, it was never finished, or it lacks the step.
    """
    if not path.is_dir():
        raise InvalidInput(
            f"{what} is a file, but an Orbax checkpoint is a folder{_hint(path)}"
            if path.exists()
            else f"{what} does not exist"
        )
    number = None
    passed: list[str] = []
    for _ in range(_DEEPEST):
        _refuse_unfinished(path, what)
        if _is_tree(path):
            return _with_step(Found(path, {"": path}, number), step, what)
        inner = _folders(path, what)
        unfinished = tuple(one.name for one in inner if _TEMPORARY in one.name)
        passed += unfinished
        inner = [one for one in inner if one.name not in unfinished]
        trees = {one.name: one for one in inner if _is_tree(one)}
        # A checkpoint's own metadata beside them says that they are items, whatever they are called.
        steps = {} if (path / STEP).is_file() else _steps(inner)
        if trees and not {*trees.values()} <= {*steps.values()}:
            trees = trees if len(trees) > 1 else {"": next(iter(trees.values()))}
            return _with_step(Found(path, trees, number, unfinished), step, what)
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
            f"{what} holds an unfinished checkpoint alone ({shown(passed[0])}): Orbax had not come to "
            "its end when it was copied, or was stopped"
        )
    raise InvalidInput(_nothing_sentence(path, what))


def _hint(path: Path) -> str:
    """What to do with one file of a checkpoint."""
    if path.name == SHARDING:
        return ": give the one that it is in, or read it as sharding"
    return ": give the one that it is in" if path.name in _FILES else ""


def _with_step(found: Found, step: int | None, what: str) -> Found:
    if step is not None and found.step is None:
        own = _number(found.top.name)
        if own != step:
            raise InvalidInput(f"{what} is one checkpoint, so no step {step} can be chosen in it")
    return found


def _is_tree(path: Path) -> bool:
    """Whether arrays are in this folder, be it that its own metadata is missing."""
    if any((path / name).is_file() for name in (TREE, OCDBT, SHARDING)):
        return True
    if (path / MSGPACK).is_file():
        return True
    try:
        for number, one in enumerate(path.iterdir()):
            if number > _LOOKED_AT:
                break
            if one.is_dir() and any((one / name).is_file() for name in _ARRAY):
                return True
    except OSError:
        pass
    return False


def _steps(folders: list[Path]) -> dict[int, Path]:
    """The steps among folders, as `CheckpointManager` names them: `1000`, `checkpoint_1000`."""
    return {number: one for one in folders if (number := _number(one.name)) is not None}


def _number(name: str) -> int | None:
    found = _NUMBERED.fullmatch(name)
    return int(found[1]) if found else None


def _folders(path: Path, what: str) -> list[Path]:
    try:
        found = sorted(
            one
            for one in path.iterdir()
            if not is_litter((one.name,)) and one.is_dir() and not one.is_symlink()
        )
    except OSError as error:
        raise InvalidInput(f"{what} cannot be read: {error.strerror}") from None
    if len(found) > limits.MOST_ARRAYS:
        raise InvalidInput(f"{what} holds more than {limits.MOST_ARRAYS:,} folders")
    return found


def _refuse_unfinished(path: Path, what: str) -> None:
    if _TEMPORARY in path.name or _TEMPORARY in Path(what).name:
        raise InvalidInput(
            f"{what} is an unfinished checkpoint ({shown(_TEMPORARY)} in its name): Orbax had not come "
            "to its end when it was copied, or was stopped"
        )


def _nothing_sentence(path: Path, what: str) -> str:
    try:
        names = sorted(one.name for one in path.iterdir())
    except OSError:
        names = []
    held = f"it holds {_listed(names)}" if names else "it is empty"
    return (
        f"{what} is no Orbax checkpoint: neither {TREE}, {SHARDING} nor {OCDBT} is in it or in an item "
        f"or step below it; {held}"
    )


def _listed(names: list) -> str:
    more = f" and {counted(len(names) - _NAMED, 'more', 'more')}" if len(names) > _NAMED else ""
    return ", ".join(shown(name, 40) for name in names[:_NAMED]) + more
