"""Write files, whole or not at all."""

import contextlib
import fcntl
import os
import secrets
import stat
import time
from pathlib import Path
from string import hexdigits

from inspector.text.errors import InvalidInput, file_name

_TOKEN_BYTES = 8
_STALE = 600.0  # seconds; the content of a file is in memory, so writing it takes less


def write_text(text: str, path: str | os.PathLike[str]) -> None:
    """Write a text file, whole or not at all: write a temporary file, then rename it.

    Raises:
      InvalidInput: the file cannot be written.
    """
    try:
        content = text.encode("utf-8")
    except UnicodeEncodeError as error:  # half a character
        raise InvalidInput(f"{str(path)!r} cannot be written: {error}") from None
    write_bytes(content, path)


def write_bytes(content: bytes, path: str | os.PathLike[str]) -> None:
    """Write a file, whole or not at all.

    Missing folders are created. A link is followed, and a file that exists keeps its permissions. A pipe or a
    device such as /dev/null is written to, not replaced.

    Raises:
      InvalidInput: the file cannot be written.
    """
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            Path(path).write_bytes(content)
            return
        target = Path(os.path.realpath(path))
        if not target.parent.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
        _replace(target, content)
    except OSError as error:
        raise InvalidInput(f"{file_name(path)} cannot be written: {error.strerror}") from None
    except ValueError as error:  # a zero byte in the path
        raise InvalidInput(f"{str(path)!r} cannot be written: {error}") from None


def _replace(target: Path, content: bytes) -> None:
    """Write a temporary file in the same folder, and rename it."""
    # The name of the temporary file must not exceed the limit of the file system.
    prefix = f".{target.name[:32]}."
    beside = target.with_name(prefix + secrets.token_hex(_TOKEN_BYTES))
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    try:
        file = _nameless_file(target.parent)
        nameless = file is not None
        # The lock comes before the name of a nameless file, so a file of that name without a lock is stale.
        _remove_stale(target.parent, prefix, 0.0 if nameless else _STALE)
        if file is None:
            file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with open(file, "wb") as opened:
            with contextlib.suppress(OSError):  # the file system may have no locks
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            opened.write(content)
            opened.flush()
            if mode is not None:
                os.fchmod(file, mode)
            if nameless:
                _name(file, beside)
            os.replace(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _nameless_file(folder: Path) -> int | None:
    """Return a new file without a name, which a killed process does not leave behind.

    Return None if the system (macOS) or the file system (NFS) does not support it.
    """
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o666)
    except OSError:
        return None


def _name(file: int, path: Path) -> None:
    """Give a name to an open file without one."""
    folder = os.open(path.parent, os.O_PATH)
    try:
        # Only with a folder does Python follow the link to the open file.
        os.link(f"/proc/self/fd/{file}", path.name, dst_dir_fd=folder)
    finally:
        os.close(folder)


def _remove_stale(folder: Path, prefix: str, seconds: float) -> None:
    """Remove the temporary files that processes left when they were killed before the rename.

    These have no lock, and were not written for `seconds`.
    """
    for name in os.listdir(folder):
        token = name.removeprefix(prefix)
        if token == name or len(token) != 2 * _TOKEN_BYTES or not set(token) <= set(hexdigits):
            continue
        path = folder / name
        with contextlib.suppress(OSError):  # another process may remove it at the same time
            if time.time() - path.lstat().st_mtime < seconds:
                continue
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(file)


def refuse_unwritable(path: str | os.PathLike[str]) -> None:
    """Check that an output is not a folder itself, and that its folder exists or can be created.

    Raises:
      InvalidInput: the output cannot be written.
    """
    target = Path(path)
    if not os.fspath(path):
        raise InvalidInput(f"{file_name(path)} cannot be written: it must be the name of a file")
    if target.is_dir():
        raise InvalidInput(f"{path} cannot be written: it is a folder")
    folder = target.parent
    while not os.path.lexists(folder):
        folder = folder.parent
    if not folder.is_dir():
        raise InvalidInput(f"{path} cannot be written: {folder} is not a folder")
    if not os.access(folder, os.W_OK):
        raise InvalidInput(f"{path} cannot be written: the folder {folder} is read-only")
