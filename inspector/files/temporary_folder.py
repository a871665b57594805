"""A temporary folder that the server and its workers share, and that is removed whatever happens.

The server and each worker hold a shared lock on a file in the folder. The kernel releases a lock when its
process ends. The server waits for the locks of the workers before it removes the folder. A folder whose
lock is free was left by a killed server.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from inspector.text.errors import InvalidInput

PREFIX = "sharding-inspector-files-"
LOCK = "in-use"
NEW = 60.0  # seconds for which an unlocked folder is kept: its server may be about to lock it
PATIENCE = 10.0  # seconds to wait for workers; a stopped worker is killed after half a second
POLL = 0.05  # seconds

_log = logging.getLogger(__name__)
_made: set[TemporaryFolder] = set()


class TemporaryFolder:
    """A new temporary folder, locked by this process.

    Raises:
      InvalidInput: it cannot be created.
    """

    def __init__(self) -> None:
        try:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
            try:
                self._lock = _locked(self.path)
            except BaseException:
                shutil.rmtree(self.path, ignore_errors=True)
                raise
        except OSError as error:
            raise InvalidInput(f"the temporary folder cannot be created: {error.strerror}") from None
        self._removed = False
        _made.add(self)

    def remove(self, patience: float = PATIENCE) -> None:
        """Remove the folder after its workers released it, or after `patience` seconds. Can be repeated."""
        if self._removed:
            return
        self._removed = True
        until = time.monotonic() + patience
        while not _lock_alone(self._lock) and time.monotonic() < until:
            time.sleep(POLL)
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
        _made.discard(self)
        if self.path.exists():
            _log.warning("%s could not be removed; the next start tries again.", self.path)


@contextlib.contextmanager
def held(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Hold the folder's lock, so that the folder is not removed while this process uses it.

    Raises:
      InvalidInput: the folder no longer exists.
    """
    folder = Path(path)
    try:
        lock = _locked(folder)
    except OSError:
        raise InvalidInput("the temporary folder no longer exists") from None
    try:
        yield folder
    finally:
        os.close(lock)


def remove_stale(now: float | None = None) -> list[Path]:
    """Remove this user's unlocked folders, and return them. `now` is in seconds since the epoch."""
    now = time.time() if now is None else now
    removed = []
    for folder in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        with contextlib.suppress(OSError):  # another server may remove it at the same time
            status = folder.lstat()
            own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
            if not own or now - status.st_mtime < NEW:
                continue
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                if _lock_alone(lock):
                    shutil.rmtree(folder)
                    removed.append(folder)
            finally:
                os.close(lock)
    return removed


def _locked(folder: Path) -> int:
    """Take a shared lock on the folder, and return the file descriptor that holds it."""
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _lock_alone(lock: int) -> bool:
    """Try to make the lock exclusive; return False if another process holds it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove_made() -> None:
    # Does not wait: worker pools register their exit handlers later, so they have ended by now.
    for folder in list(_made):
        shutil.rmtree(folder.path, ignore_errors=True)


atexit.register(_remove_made)
