"""The metadata of each array of a checkpoint: read by TensorStore out of an OCDBT, else from its own file.

Values are never read. Of an OCDBT only the keys are listed, and of each array one small entry fetched.
"""

from __future__ import annotations

from pathlib import Path

from inspector.errors import Refused
from inspector.readers import limits
from inspector.readers.orbax import StoredArrays
from inspector.readers.orbax_folder import OCDBT

_METADATA = (".zarray", "zarr.json")
_PROCESSES = "ocdbt.process_*"
_AT_ONCE = 256  # entries that are fetched side by side


def stored_arrays(folder: Path, what: str) -> StoredArrays:
    """The metadata of every array below a folder, by the array's name.

    Raises:
      Refused: there are more arrays than are read.
    """
    if (folder / OCDBT).is_file():
        found, problem = _of_database(folder)
        return found, () if problem is None else (f"{what}/{OCDBT} {problem}",)
    parts = [one for one in sorted(folder.glob(_PROCESSES)) if (one / OCDBT).is_file()]
    if parts:
        # A checkpoint of several processes has one database each until Orbax joins them at the end.
        joined: dict[str, bytes] = {}
        problems = [
            f"{what} has no {OCDBT} of all processes, so that the one of each of {len(parts)} was read"
        ]
        for part in parts:
            found, problem = _of_database(part)
            joined |= found
            problems += [] if problem is None else [f"{what}/{part.name}/{OCDBT} {problem}"]
        return joined, tuple(problems)
    return _of_files(folder, what)


def _of_database(folder: Path) -> tuple[dict[str, bytes], str | None]:
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
            raise Refused(f"{folder.name} holds more than {limits.MOST_ARRAYS:,} arrays")
        found: dict[str, bytes] = {}
        for start in range(0, len(keys), _AT_ONCE):
            reads = [(name, store.read(key)) for name, key in keys[start : start + _AT_ONCE]]
            found |= {name: read.result().value for name, read in reads}
        return found, None
    except (ValueError, RuntimeError, OSError) as error:
        # Its sentences go on for lines, with the server's own paths.
        return {}, f"cannot be read ({_kind(error)}): shapes and types are unknown"


def _of_files(folder: Path, what: str) -> StoredArrays:
    found: dict[str, bytes] = {}
    problems = []
    for one in sorted(folder.iterdir()):
        own = [path for name in _METADATA if (path := one / name).is_file()]
        if not own or one.is_symlink():
            continue
        if len(found) >= limits.MOST_ARRAYS:
            raise Refused(f"{what} holds more than {limits.MOST_ARRAYS:,} arrays")
        with own[0].open("rb") as file:
            metadata = file.read(limits.MOST_ARRAY_METADATA_BYTES + 1)
        if len(metadata) > limits.MOST_ARRAY_METADATA_BYTES:
            problems.append(f"{what}/{one.name}/{own[0].name} is larger than is read")
        else:
            found[one.name] = metadata
    return found, tuple(problems)


def _kind(error: Exception) -> str:
    return str(error).partition(":")[0][:60] or type(error).__name__
