"""Open the SQLite file of the library. Create it if missing; refuse a file of another program."""

from __future__ import annotations

import contextlib
import datetime
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from inspector.core import private_database
from inspector.core.errors import InvalidInput
from inspector.core.user_folder import VARIABLE

FORM = 3  # of the tables; a file of an earlier form is changed when it is opened
APPLICATION = 0x53484C42  # "SHLB", the application id of the file
_BUSY_SECONDS = 10.0  # to wait for another process that writes
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_NO_PLACE = (
    *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY),
    *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL),
)
_TABLES = """
CREATE TABLE snapshots (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  note TEXT NOT NULL,
  saved TEXT NOT NULL,
  source TEXT NOT NULL,
  target TEXT,
  model TEXT,
  mesh TEXT,
  devices INTEGER,
  arrays INTEGER NOT NULL,
  state_bytes INTEGER,
  per_device INTEGER,
  words TEXT NOT NULL,
  packed BLOB NOT NULL,
  owner TEXT,
  owner_name TEXT,
  shared INTEGER NOT NULL DEFAULT 0
) STRICT
"""
# Each owner has names of their own, so that nobody learns from a taken name what another user keeps.
_UNIQUE = "CREATE UNIQUE INDEX snapshots_names ON snapshots (name, ifnull(owner, ''))"
# Form 1 lacks these columns. Until form 2, a name is unique in the whole library.
_COLUMNS_OF_FORM_2 = ("owner TEXT", "owner_name TEXT", "shared INTEGER NOT NULL DEFAULT 0")
_COLUMNS = (
    "name, note, saved, source, target, model, mesh, devices, arrays, state_bytes, per_device, words, "
    "packed, owner, owner_name, shared"
)


class Unreadable(InvalidInput):
    """The file is damaged or of a newer version. The user can move it aside."""


@contextlib.contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the file with its tables.

    Raises:
      InvalidInput: it is unusable, and is left unchanged. `Unreadable` if moving it aside would help.
    """
    try:
        with contextlib.closing(private_database.connect(path, _BUSY_SECONDS)) as database:
            _prepare(database, path)
            yield database
    except sqlite3.Error as error:
        # The low byte is the primary result code.
        kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if kind in _BUSY:
            words = f"is in use by another process for more than {_BUSY_SECONDS:.0f} seconds"
        elif kind in _NO_PLACE:
            words = f"cannot be used: {private_database.reason(path, error)}"
        else:
            raise Unreadable(
                f"the library {path} is damaged or not a library: {error}; it was left unchanged"
            ) from None
        raise InvalidInput(f"the library {path} {words}") from None
    except UnicodeEncodeError:
        raise InvalidInput("the library stores text, but this has a lone surrogate") from None
    except OSError as error:
        reason = private_database.reason(path, error)
        raise InvalidInput(f"the library {path} cannot be used: {reason}") from None


def move_aside(path: Path) -> Path:
    """Rename the file in its folder, so that a new library can start. Return the new path.

    Raises:
      InvalidInput: the file cannot be renamed.
    """
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S%f")
    aside = path.with_name(f"{path.stem}-aside-{stamp}{path.suffix}")
    try:
        # SQLite has recent or unfinished writes in files of the same name with a suffix.
        for end in private_database.SUFFIXES:
            part = Path(f"{path}{end}")
            if part.exists():
                part.rename(f"{aside}{end}")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be moved: {error.strerror}") from None
    return aside


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    """Create the tables in an empty file. Refuse a file of another program before any change."""
    database.execute("BEGIN")  # a consistent read
    is_empty = _is_empty(database, path)
    form = _form(database)
    database.execute("COMMIT")
    if not is_empty and form < FORM:
        with private_database.exclusive(database):
            _bring_up_to_date(database)
    if is_empty:
        database.execute("PRAGMA auto_vacuum = FULL")  # deleting frees disk space
        with private_database.exclusive(database):
            if _is_empty(database, path):  # unless another process just did
                database.execute(_TABLES)
                database.execute(_UNIQUE)
                database.execute(f"PRAGMA application_id = {APPLICATION}")
                database.execute(f"PRAGMA user_version = {FORM}")
    if database.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        # From an earlier version. Such a file cannot be read on a full or read-only disk. If it is in use, a
        # later use changes this.
        with contextlib.suppress(sqlite3.OperationalError):
            database.execute("PRAGMA journal_mode = DELETE")


def _bring_up_to_date(database: sqlite3.Connection) -> None:
    """Change the tables of an earlier form, unless another process just did."""
    form = _form(database)
    if form == 1:
        for column in _COLUMNS_OF_FORM_2:
            database.execute(f"ALTER TABLE snapshots ADD COLUMN {column}")
    if form < FORM:
        database.execute("ALTER TABLE snapshots RENAME TO earlier")
        database.execute(_TABLES)
        database.execute(f"INSERT INTO snapshots ({_COLUMNS}) SELECT {_COLUMNS} FROM earlier")
        database.execute("DROP TABLE earlier")
        database.execute(_UNIQUE)
        database.execute(f"PRAGMA user_version = {FORM}")


def _form(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def _is_empty(database: sqlite3.Connection, path: Path) -> bool:
    application, form = (
        database.execute(f"PRAGMA {what}").fetchone()[0]
        for what in ("application_id", "user_version")
    )
    tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application == 0 and form == 0 and tables == 0:
        return True
    if application != APPLICATION:
        raise InvalidInput(
            f"{path} is the database of another program and was left unchanged; "
            f"set {VARIABLE} to another folder, or move the file away"
        )
    if not 1 <= form <= FORM:
        raise Unreadable(
            f"the library {path} has version {form}, but this program reads version {FORM}: "
            "open it with a newer Sharding Inspector"
        )
    return False
