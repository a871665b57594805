"""The metadata of each array of a checkpoint: read by TensorStore out of an OCDBT, else from its own file.

Values are never read. Of an OCDBT only the keys are listed, and of each array one small entry fetched.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import bytes_text
from inspector.producers.readers import content, limits
from inspector.producers.readers.orbax import StoredArrays
from inspector.producers.readers.orbax_folder import OCDBT

_METADATA = (".zarray", "zarr.json")
_PROCESSES = "ocdbt.process_*"
_AT_ONCE = 256  # entries that are fetched side by side


def stored_arrays(folder: Path, what: str, names: Collection[str] = ()) -> StoredArrays:
    """The metadata of every array below a folder, by the array's name.

    Without a database an array has a folder of its own; those inside of others, which a key with a slash
    makes, are found by the `names` that other files give.

    Raises:
      InvalidInput: there are more arrays than are read.
    """
    if (folder / OCDBT).is_file():
        found, problem = _of_database(folder, what)
        return found, () if problem is None else (f"{what}/{OCDBT} {problem}",)
    parts = [one for one in sorted(folder.glob(_PROCESSES)) if (one / OCDBT).is_file()]
    if parts:
        # A checkpoint of several processes has one database each until Orbax joins them at the end.
        joined: dict[str, bytes] = {}
        problems = [
            f"{what} has no {OCDBT} of all processes, so that the one of each of {len(parts)} was read"
        ]
        for part in parts:
            found, problem = _of_database(part, what)
            joined |= found
            problems += [] if problem is None else [f"{what}/{part.name}/{OCDBT} {problem}"]
        return joined, tuple(problems)
    return _of_files(folder, what, names)


def _of_database(folder: Path, what: str) -> tuple[dict[str, bytes], str | None]:
    """What an OCDBT holds, and what is wrong with it where it cannot be read."""
    import tensorstore  # a tenth of a second, which texts and goldens need not wait for

    spec = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{folder}/"}}
    try:
        store = tensorstore.KvStore.open(spec).result()
        keys = [
            (name, key)
            for key in store.list().result()
            for name, _, last in [key.decode("utf-8", "replace").rpartition("/")]
            if last in _METADATA
        ]
        if len(keys) > limits.MOST_ARRAYS:
            raise InvalidInput(f"{what} holds more than {limits.MOST_ARRAYS:,} arrays")
        found: dict[str, bytes] = {}
        large: list[str] = []
        for start in range(0, len(keys), _AT_ONCE):
            reads = [(name, store.read(key)) for name, key in keys[start : start + _AT_ONCE]]
            for name, read in reads:
                value = read.result().value
                if len(value) > limits.MOST_ARRAY_METADATA_BYTES:
                    large.append(name)
                else:
                    found[name] = value
            _refuse_much(found, what)
        if large:
            return (
                found,
                f"has metadata that is larger than is read, the first of {shown(large[0])}",
            )
        return found, None
    except InvalidInput:
        raise  # it is a ValueError, too
    except (ValueError, RuntimeError, OSError) as error:
        # Its sentences go on for lines, with the server's own paths.
        return {}, f"cannot be read ({_kind(error)}): shapes and types are unknown"


def _of_files(folder: Path, what: str, names: Collection[str]) -> StoredArrays:
    found: dict[str, bytes] = {}
    problems = []
    # The name of what was saved by itself is empty, and its folder is that of the tree.
    below = {name for name in names if not name or ("/" in name and _is_inside(folder, name))}
    for name in sorted({one.name for one in folder.iterdir() if not one.is_symlink()} | below):
        own = [path for file in _METADATA if (path := folder / name / file).is_file()]
        if not own:
            continue
        if len(found) >= limits.MOST_ARRAYS:
            raise InvalidInput(f"{what} holds more than {limits.MOST_ARRAYS:,} arrays")
        try:
            found[name] = content.read_bytes(
                own[0], limits.MOST_ARRAY_METADATA_BYTES, f"{what}/{name}/{own[0].name}"
            )
        except InvalidInput as refused:
            problems.append(str(refused))
        if not len(found) % _AT_ONCE:
            _refuse_much(found, what)
    _refuse_much(found, what)
    return found, tuple(problems)


def _refuse_much(found: Mapping[str, bytes], what: str) -> None:
    if sum(map(len, found.values())) > limits.MOST_JSON_BYTES:
        raise InvalidInput(
            f"{what} has arrays whose metadata is more than {bytes_text(limits.MOST_JSON_BYTES)} "
            "together, which is all that is read of it"
        )


def _is_inside(folder: Path, name: str) -> bool:
    """Whether a name that a file gives leads to a folder below this one, and through no link."""
    parts = name.split("/")
    if "\0" in name or any(part in ("", ".", "..") for part in parts):
        return False
    try:
        here = folder
        for part in parts:
            here = here / part
            if here.is_symlink() or not here.is_dir():
                return False
    except OSError:  # a key longer than any name of a file
        return False
    return True


def _kind(error: Exception) -> str:
    return str(error).partition(":")[0][:60] or type(error).__name__
