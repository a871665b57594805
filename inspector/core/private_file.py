"""Databases that only their user can read."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

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
    for end in ("", "-wal", "-shm"):
        part = Path(f"{path}{end}")
        with contextlib.suppress(OSError):  # missing, of another user, or on a read-only disk
            mode = stat.S_IMODE(part.stat().st_mode)
            if mode & _OTHERS:
                part.chmod(_USER_ONLY)
