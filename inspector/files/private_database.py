"""Databases that only their user can read, and the folder for them."""

import contextlib
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import platformdirs

VARIABLE = "SHARDING_INSPECTOR_LIBRARY"  # a folder instead of the user's data folder


def user_folder() -> Path:
    """Return the folder. It need not exist."""
    chosen = os.environ.get(VARIABLE)
    return Path(chosen) if chosen else platformdirs.user_data_path("sharding-inspector")


# Of the files of one SQLite database. The database itself is the last one.
SUFFIXES = ("-wal", "-shm", "-journal", "")

_OTHERS = stat.S_IRWXO
_USER_ONLY = stat.S_IRUSR | stat.S_IWUSR


def prepare(path: Path) -> None:
    """Create the folder (mode 0700) and the file (0600) if they are missing.

    A file of an earlier version that everyone can read becomes readable by its user only. SQLite gives the
    files next to a database the same mode. Rights of a group stay: somebody has given them.

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
    """Return why a database cannot be used, in words: the report of the system or SQLite."""
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


@contextlib.contextmanager
def opened(
    path: Path, busy_seconds: float, prepare_tables: Callable[[sqlite3.Connection], object]
) -> Iterator[sqlite3.Connection]:
    """Open a database for one use. `prepare_tables` creates its tables, or refuses the file.

    A statement waits for another process that writes for `busy_seconds`.

    Raises:
      OSError, sqlite3.Error: the file cannot be created or opened.
    """
    prepare(path)
    connection = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None)
    with contextlib.closing(connection) as database:
        # Otherwise one damaged text makes all rows unreadable.
        database.text_factory = lambda raw: raw.decode("utf-8", "replace")
        prepare_tables(database)
        # The first versions used WAL, which cannot be read on a full or read-only disk. If such a file is in
        # use, a later use changes it.
        with contextlib.suppress(sqlite3.OperationalError):
            database.execute("PRAGMA journal_mode = DELETE")
        yield database


@contextlib.contextmanager
def exclusive(database: sqlite3.Connection) -> Iterator[None]:
    """Run a transaction that is the only one that writes. Roll it back on an error."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def remove(path: Path) -> None:
    """Delete a database with the files next to it.

    Raises:
      OSError: a file cannot be deleted.
    """
    for end in SUFFIXES:
        Path(f"{path}{end}").unlink(missing_ok=True)
