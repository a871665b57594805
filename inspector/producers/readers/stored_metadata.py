"""Read the Zarr metadata of each array of a checkpoint: from its OCDBT database, or from its own file.

Values are not read. From a database only the keys are listed, and one small entry per array is read.
"""

import contextlib
import itertools
import os
import stat
from collections.abc import Collection, Mapping
from pathlib import Path

from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import bytes_text
from inspector.producers.readers import content, limits
from inspector.producers.readers.orbax_folder import ARRAY_FILES, OCDBT

# Metadata by the name of the array, and a sentence for each part that could not be read.
StoredMetadata = tuple[Mapping[str, bytes], tuple[str, ...]]

_PROCESSES = "ocdbt.process_*"
_AT_ONCE = 256  # entries that are read concurrently


def stored_metadata(folder: Path, what: str, names: Collection[str] = ()) -> StoredMetadata:
    """Return the metadata of every array below a folder, by the array's name.

    Args:
      names: array names from other files. Without a database they locate arrays in nested folders, which
        a key with a slash creates.
    """
    if (folder / OCDBT).is_file():
        metadata, problem = _read_database(folder, what)
        return metadata, () if problem is None else (f"{what}/{OCDBT} {problem}",)
    parts = [path for path in sorted(folder.glob(_PROCESSES)) if (path / OCDBT).is_file()]
    if parts:
        # Each process writes a database. Orbax merges them when the checkpoint is complete.
        merged: dict[str, bytes] = {}
        problems = [f"{what} has no merged {OCDBT}, so the databases of {len(parts)} processes were read"]
        for part in parts:
            metadata, problem = _read_database(part, what)
            merged |= metadata
            problems += [] if problem is None else [f"{what}/{part.name}/{OCDBT} {problem}"]
        return merged, tuple(problems)
    return _read_files(folder, what, names)


def _read_database(folder: Path, what: str) -> tuple[dict[str, bytes], str | None]:
    """Return the metadata in an OCDBT database, and what could not be read."""
    import tensorstore  # imports slowly, and only checkpoints need it

    _refuse_pipes(folder, what)
    spec = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{folder}/"}}
    try:
        store = tensorstore.KvStore.open(spec).result()
        keys = [
            (name, key)
            for key in store.list().result()
            for name, _, last in [key.decode("utf-8", "replace").rpartition("/")]
            if last in ARRAY_FILES
        ]
        if len(keys) > limits.MOST_ARRAYS:
            raise InvalidInput(f"{what} has more than {limits.MOST_ARRAYS:,} arrays")
        metadata: dict[str, bytes] = {}
        large: list[str] = []
        for start in range(0, len(keys), _AT_ONCE):
            reads = [(name, store.read(key)) for name, key in keys[start : start + _AT_ONCE]]
            for name, read in reads:
                value = read.result().value
                if len(value) > limits.MOST_ARRAY_METADATA_BYTES:
                    large.append(name)
                else:
                    metadata[name] = value
            _refuse_much(metadata, what)
        if large:
            most = bytes_text(limits.MOST_ARRAY_METADATA_BYTES)
            return metadata, f"has metadata of more than {most}, the first of {shown(large[0])}"
        return metadata, None
    except InvalidInput:
        raise  # it is a ValueError too
    except (ValueError, RuntimeError, OSError) as error:
        # Messages of TensorStore are long and contain paths of the server.
        kind = str(error).partition(":")[0][:60] or type(error).__name__
        return {}, f"cannot be read ({kind}): shapes and types are unknown"


def _refuse_pipes(folder: Path, what: str) -> None:
    """Refuse a database with a pipe, a socket or a device: TensorStore would wait for its content for ever.

    Raises:
      InvalidInput: it contains such a file.
    """
    entries = (os.path.join(where, name) for where, _, names in os.walk(folder) for name in names)
    for path in itertools.islice(entries, limits.MOST_FILES):
        with contextlib.suppress(OSError):  # a link to nothing
            if not stat.S_ISREG(os.stat(path).st_mode):
                name = os.path.relpath(path, folder)
                raise InvalidInput(
                    f"{what} has {shown(name)}, which is a pipe or a device, but must be a file"
                )


def _read_files(folder: Path, what: str, names: Collection[str]) -> StoredMetadata:
    metadata: dict[str, bytes] = {}
    problems = []
    # An array that was saved without a tree has an empty name, and its folder is the tree's.
    below = {name for name in names if not name or ("/" in name and _is_inside(folder, name))}
    for name in sorted({path.name for path in folder.iterdir() if not path.is_symlink()} | below):
        own = [path for file in ARRAY_FILES if (path := folder / name / file).is_file()]
        if not own:
            continue
        if len(metadata) >= limits.MOST_ARRAYS:
            raise InvalidInput(f"{what} has more than {limits.MOST_ARRAYS:,} arrays")
        try:
            metadata[name] = content.read_bytes(
                own[0], limits.MOST_ARRAY_METADATA_BYTES, f"{what}/{name}/{own[0].name}"
            )
        except InvalidInput as refused:
            problems.append(str(refused))
        if not len(metadata) % _AT_ONCE:
            _refuse_much(metadata, what)
    _refuse_much(metadata, what)
    return metadata, tuple(problems)


def _refuse_much(metadata: Mapping[str, bytes], what: str) -> None:
    if sum(map(len, metadata.values())) > limits.MOST_JSON_BYTES:
        raise InvalidInput(
            f"{what} has more than {bytes_text(limits.MOST_JSON_BYTES)} of array metadata, the "
            "most that is read"
        )


def _is_inside(folder: Path, name: str) -> bool:
    """Return whether a name from a file leads to a folder below this one without following a link."""
    parts = name.split("/")
    if "\0" in name or any(part in ("", ".", "..") for part in parts):
        return False
    try:
        here = folder
        for part in parts:
            here = here / part
            if here.is_symlink() or not here.is_dir():
                return False
    except OSError:  # the key is longer than a file name can be
        return False
    return True
