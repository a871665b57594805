"""Databases that only their user can read."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from pathlib import Path

# Of the files of one SQLite database. The database itself is the last one.
SUFFIXES = ("-wal", "-shm", "-journal", "")

_OTHERS = stat.S_IRWXO
_USER_ONLY = stat.S_IRUSR | stat.S_IWUSR


def prepare(path: Path) -> None:
    """Create the folder (mode 0700) and the file (0600) if they are missing.

    A file of an earlier version that everyone can read becomes readable by its user only. SQLite gives the
    files beside a database the same mode. Rights of a group stay: somebody has given them.

    Raises:
      OSError: the folder or the file cannot be created.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _USER_ONLY))
    for end in SUFFIXES:
        part = Path(f"{path}{end}")
        with contextlib.suppress(OSError):  # missing, of another user, or on a read-only disk
            mode = stat.S_IMODE(part.stat().st_mode)
            if mode & _OTHERS:
                part.chmod(_USER_ONLY)


def reason(path: Path, error: sqlite3.Error | OSError) -> str:
    """Return why a database cannot be used, in words: what the system or SQLite reports."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    kind = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte is the primary result code
    if kind == sqlite3.SQLITE_FULL:
        return "the disk is full"
    if kind == sqlite3.SQLITE_READONLY or (
        kind == sqlite3.SQLITE_CANTOPEN and path.exists() and not os.access(path, os.W_OK)
    ):
        return "it is read-only"
    if kind == sqlite3.SQLITE_IOERR:
        return f"{error} (is the disk full, or a quota reached?)"
    return str(error)
