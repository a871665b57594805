"""The file of the library.

Browser tabs, servers and commands can use it at the same time. Each use is one transaction and waits for
another that writes. A file that is damaged, newer, or of another program is refused and left unchanged.
"""

import contextlib
import datetime
import itertools
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from inspector.core import private_database
from inspector.core.errors import InvalidInput
from inspector.core.private_database import VARIABLE, user_folder
from inspector.service.engine import Requester

NAME = "saved.sqlite3"
APPLICATION = 0x53485356  # "SHSV", the application id of the file
_BUSY_SECONDS = 10.0  # to wait for another process that writes
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_NO_PLACE = (
    *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY),
    *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL),
)
_OWNER = "owner TEXT, owner_name TEXT, shared INTEGER NOT NULL DEFAULT 0"
# The statements that lead to each version of the tables. To change a table, add a version.
MIGRATIONS = (
    (
        f"PRAGMA application_id = {APPLICATION}",
        "CREATE TABLE snapshots (id INTEGER PRIMARY KEY, name TEXT NOT NULL, note TEXT NOT NULL, saved TEXT "
        "NOT NULL, source TEXT NOT NULL, target TEXT, model TEXT, mesh TEXT, devices INTEGER, arrays INTEGER "
        "NOT NULL, state_bytes INTEGER, per_device INTEGER, words TEXT NOT NULL, packed BLOB NOT NULL, "
        f"{_OWNER}) STRICT",
        # A name is unique for each owner only, so a taken name does not reveal what another user keeps.
        "CREATE UNIQUE INDEX snapshots_names ON snapshots (name, ifnull(owner, ''))",
    ),
)
VERSION = len(MIGRATIONS)


class Unreadable(InvalidInput):
    """A file is damaged or of a newer version. The user can move it aside."""


class StoreView:
    """One table of the file, as a user sees it. Every method raises `InvalidInput` if the file is unusable.

    Args:
      user: a signed-in user sees and changes their entries, and sees shared ones. Other users of a server see
        shared entries, and see and change those without an owner. None is the user of this machine, who sees
        and changes everything.
    """

    WHAT: ClassVar[str]  # in errors
    TABLE: ClassVar[str]
    DAMAGED: ClassVar[str]  # the end of the sentence about a damaged file, without the reason

    def __init__(self, path: Path | None = None, user: Requester | None = None) -> None:
        self.path = path or user_folder() / NAME
        self._user = user

    # --- Owners ----------------------------------------------------------------------------------

    def _may_see(self, owner: str | None, shared: int) -> bool:
        return bool(shared) or self._may_change(owner)

    def _may_change(self, owner: str | None) -> bool:
        return self._user is None or self._is_own(owner)

    def _is_own(self, owner: str | None) -> bool:
        return owner == ownership(self._user)["owner"]

    # --- Opening and writing ---------------------------------------------------------------------

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Run one exclusive transaction; roll it back on an error."""
        with self._connected() as database, private_database.exclusive(database):
            yield database

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Open the file with its tables.

        Raises:
          InvalidInput: it is unusable, and is left unchanged. `Unreadable` if moving it aside would help.
        """
        try:
            with private_database.opened(self.path, _BUSY_SECONDS, self._migrate) as database:
                yield database
        except (sqlite3.Error, OSError) as error:
            raise self._explained(error) from None
        except UnicodeEncodeError:
            text = f"the {self.WHAT} stores text, but this has a lone surrogate"
            raise InvalidInput(text) from None

    def _insert(
        self, database: sqlite3.Connection, row: Mapping[str, Any], otherwise: str = ""
    ) -> sqlite3.Cursor:
        """Add a row; `otherwise` is a clause for a conflict."""
        columns = f"({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"
        return database.execute(f"INSERT INTO {self.TABLE} {columns} {otherwise}", [*row.values()])

    def _migrate(self, database: sqlite3.Connection) -> None:
        """Bring the tables up to date. Refuse a file of another program before any change."""
        database.execute("BEGIN")  # a consistent read
        version = self._version(database)
        database.execute("COMMIT")
        if version == 0:
            database.execute("PRAGMA auto_vacuum = FULL")  # deleting frees disk space
        if version < VERSION:
            with private_database.exclusive(database):
                version = self._version(database)  # another process may have done it
                for statement in itertools.chain(*MIGRATIONS[version:]):
                    database.execute(statement)
                database.execute(f"PRAGMA user_version = {VERSION}")

    def _version(self, database: sqlite3.Connection) -> int:
        """Return the version of the file; 0 if it is empty. Refuse one of another program."""
        known, version = (
            database.execute(f"PRAGMA {what}").fetchone()[0] for what in ("application_id", "user_version")
        )
        (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if known == version == tables == 0:
            return 0
        if known != APPLICATION:
            raise InvalidInput(
                f"{self.path} is the database of another program and was left unchanged; set {VARIABLE} to "
                "another folder, or move the file away"
            )
        if not 1 <= version <= VERSION:
            raise Unreadable(
                f"the {self.WHAT} {self.path} has version {version}, but this program reads version "
                f"{VERSION}: open it with a newer Sharding Inspector"
            )
        return int(version)

    # --- Damage ----------------------------------------------------------------------------------

    def _explained(self, error: sqlite3.Error | OSError) -> InvalidInput:
        """Return a sentence why a file cannot be used."""
        kind = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary result code
        what = f"the {self.WHAT} {self.path}"
        if kind in _BUSY:
            seconds = f"{_BUSY_SECONDS:.0f} seconds"
            return InvalidInput(f"{what} is in use by another process for more than {seconds}")
        if kind in _NO_PLACE or isinstance(error, OSError):
            return InvalidInput(f"{what} cannot be used: {private_database.reason(self.path, error)}")
        return Unreadable(f"{what} {self.DAMAGED.format(error)}")


def ownership(user: Requester | None) -> dict[str, str | None]:
    """Return the id and the name of the owner of a user's saved objects; None unless signed in."""
    if user is None or not user.signed_in:
        return {"owner": None, "owner_name": None}
    return {"owner": user.owner, "owner_name": user.name}


def move_aside(path: Path) -> Path:
    """Rename a file in its folder, so that a new one can start. Return the new path.

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


def packed(text: str, most_bytes: int) -> bytes | None:
    """Return a compressed text; None if it is larger than `most_bytes`."""
    content = text.encode()
    return zlib.compress(content) if len(content) <= most_bytes else None


def unpacked(content: bytes, most_bytes: int, what: str) -> str:
    """Return the text of `packed`.

    Raises:
      InvalidInput: it is damaged, or larger than `most_bytes`.
    """
    try:
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(content, most_bytes)
        if unpacker.unconsumed_tail or not unpacker.eof:
            raise zlib.error("the compressed data is incomplete")
        return text.decode()
    except (zlib.error, UnicodeDecodeError) as error:
        raise InvalidInput(f"{what} is damaged: {error}") from None
