"""The folder that a checkpoint is in while it is saved and restored, and that never outlives its server.

Server and worker each hold a lock on a file in it, which the kernel lets go of when a process ends,
however it ends. Whoever removes the folder waits for the locks of the others, so that nothing is written
after it; and what a killed server has left is told by its lock being free.
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

from inspector.core.errors import InvalidInput
from inspector.core.formatting import bytes_text

PREFIX = "sharding-inspector-checkpoint-"
LOCK = "in-use"
# Seconds for which a folder without a lock is left alone: its maker may be about to take it.
NEW = 60.0
PATIENCE = (
    10.0  # seconds to wait for a worker that is being stopped; it is killed after half a second
)
POLL = 0.05  # seconds
USABLE_SHARE = 0.8  # of what is free on the disk
# Bytes of Orbax's own files: measured 1.2 KB an array, rounded up for long paths and large meshes.
METADATA_BYTES = 1 << 20
METADATA_BYTES_PER_ARRAY = 1 << 14

_log = logging.getLogger(__name__)
_made: set[CheckpointFolder] = set()


class CheckpointFolder:
    """A new folder for one checkpoint among the files that are temporary.

    Raises:
      InvalidInput: it cannot be made.
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
            raise InvalidInput(
                f"no folder for the checkpoint can be made: {error.strerror}"
            ) from None
        self._removed = False
        _made.add(self)

    def remove(self, patience: float = PATIENCE) -> None:
        """Remove the folder with all in it, when whoever writes there has stopped. May be repeated."""
        if self._removed:
            return
        self._removed = True
        until = time.monotonic() + patience
        while not _alone(self._lock) and time.monotonic() < until:
            time.sleep(POLL)
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
        _made.discard(self)
        if self.path.exists():
            _log.warning("%s could not be removed; the next start tries again.", self.path)


@contextlib.contextmanager
def held(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Keep the folder from being removed while this process writes or reads there.

    Raises:
      InvalidInput: it is gone.
    """
    folder = Path(path)
    try:
        lock = _locked(folder)
    except OSError:
        raise InvalidInput("the folder of the checkpoint is gone") from None
    try:
        yield folder
    finally:
        os.close(lock)


def remove_stale(now: float | None = None) -> list[Path]:
    """Remove what servers have left that were killed; the folders that are gone now.

    Only this user's own folders whose locks nobody holds are touched. `now` is in seconds since the
    epoch, None for the present.
    """
    now = time.time() if now is None else now
    removed = []
    for folder in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        with contextlib.suppress(OSError):  # another server may be at the same
            found = folder.lstat()
            own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
            if not own or now - found.st_mtime < NEW:
                continue
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                if _alone(lock):
                    shutil.rmtree(folder)
                    removed.append(folder)
            finally:
                os.close(lock)
    return removed


def bytes_needed(state_bytes: int, arrays: int) -> int:
    """Bytes on disk for a train state, once as a checkpoint and once as plain values to compare with."""
    return 2 * state_bytes + METADATA_BYTES + arrays * METADATA_BYTES_PER_ARRAY


def refuse_too_large(needed: int, free: int | None = None) -> None:
    """Refuse a checkpoint that the disk cannot hold. `free` is bytes, None to ask the system.

    Raises:
      InvalidInput: `needed` bytes are more than the usable share of what is free.
    """
    if free is None:
        free = shutil.disk_usage(tempfile.gettempdir()).free
    limit = int(free * USABLE_SHARE)
    if needed > limit:
        raise InvalidInput(
            f"the checkpoint and the values to compare with need about {bytes_text(needed)} in the "
            f"folder for temporary files, but at most {bytes_text(limit)} is allowed "
            f"({USABLE_SHARE:.0%} of what is free); make the sizes smaller, or set TMPDIR to a larger disk"
        )


def _locked(folder: Path) -> int:
    """A file descriptor that shares the folder's lock."""
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _alone(lock: int) -> bool:
    """Whether nobody else holds the lock; if so, nobody else can take it from now on."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove_made() -> None:
    # Without patience, and even if another thread is at it, which ends with the process: the workers
    # are gone by now, for their pools register later and so end earlier.
    for folder in list(_made):
        shutil.rmtree(folder.path, ignore_errors=True)


atexit.register(_remove_made)
