"""Worker job: a file or folder that a real job left behind in, its Snapshot out.

Here, because a file may be made to take memory and time without end, and a worker can be stopped.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inspector.core import snapshot
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Snapshot
from inspector.producers.readers import (
    archive,
    checkpoint_folder,
    content,
    guess,
    hlo_text,
    limits,
    maxtext,
    orbax,
    sharding_file,
)
from inspector.producers.readers.guess import FileKind
from inspector.producers.readers.orbax_folder import SHARDING
from inspector.producers.readers.stored_metadata import stored_arrays

UNPACKED = "unpacked"


def import_job(payload: dict[str, Any], report: Callable[..., None]) -> dict[str, Any]:
    """`path`, `name` for sentences, `kind` or None to have it guessed, `step` of a checkpoint or None.

    `folder` is where a zip file may be unpacked, which whoever made it removes; None to refuse one.
    """
    try:
        with contextlib.ExitStack() as stack:
            folder = payload["folder"]
            if folder is not None:
                folder = stack.enter_context(checkpoint_folder.held(folder))
            found = read(
                Path(payload["path"]),
                payload["name"],
                payload["kind"],
                payload["step"],
                folder,
                report,
            )
            return found.to_json()
    except MemoryError:
        raise InvalidInput(f"{payload['name']} needs more memory than there is") from None
    finally:
        _give_memory_back()


def read(
    path: Path,
    name: str,
    kind: FileKind | None,
    step: int | None,
    folder: Path | None,
    report: Callable[..., None],
) -> Snapshot:
    """Read one file or folder.

    Raises:
      InvalidInput: it cannot be read; one sentence.
    """

    def tell(phase: str) -> Callable[[int, int], None]:
        return lambda done, of: report(phase, done=done, of=of)

    report("read")
    if not path.exists():
        raise InvalidInput(f"{name} does not exist")
    if path.is_file() and _is_zip(path, name):
        if folder is None:
            raise InvalidInput(f"{name} is a zip file: unpack it first")
        target = folder / UNPACKED
        target.mkdir()
        archive.unpack(path, target, name, tell("unpack"))
        path = _below(target)
        report("read")
    if path.is_file() and archive.is_tar(path):
        raise InvalidInput(f"{name} is a tar archive: give the folder in it, or a zip file of that")
    if kind is None:
        kind = guess.kind_of(path, name)
    if path.is_dir() and kind in ("snapshot", "sharding"):
        own = path / SHARDING
        path = own if kind == "sharding" and own.is_file() else _only_file(path, name)
    match kind:
        case "snapshot":
            plain = content.read_json(path, name, limits.MOST_SNAPSHOT_VALUES)
            return snapshot.from_json(plain, name)
        case "sharding":
            return sharding_file.read(path, name)
        case "maxtext":
            return maxtext.read(path, name)
        case "hlo":
            return hlo_text.read(path, name, tell("read"))
        case "orbax":
            return orbax.read(path, name, stored_arrays, step)
    raise InvalidInput(f"there is no kind of file {kind!r}")


def _is_zip(path: Path, name: str) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) in archive.ZIP
    except OSError as error:
        raise InvalidInput(f"{name} cannot be read: {error.strerror}") from None


def _below(target: Path) -> Path:
    """The one file of an archive that has only one, else all of it."""
    inside = list(target.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_file() else target


def _only_file(path: Path, name: str) -> Path:
    files = content.files_below(path, name)
    if len(files) != 1:
        raise InvalidInput(f"{name} holds {len(files)} files, but must hold one to be read so")
    return files[0]


def _give_memory_back() -> None:
    """What was freed goes back to the system, for the worker stays and may not be asked again."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)
