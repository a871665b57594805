"""The sign-ins that have ended, next to the library, so that a copied cookie is of no use after sign-out.

The cookie of a sign-in is signed and says nothing about a later sign-out, so the server keeps a list. Servers
that share a library share the list, and it outlives a restart. It is bounded: an entry is deleted when its
cookie has expired. If there are too many, the oldest sign-ins are deleted, and all that are as old count as
ended.
"""

import contextlib
import functools
import logging
import sqlite3
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from inspector.core import private_database
from inspector.core.user_folder import user_folder

KEPT_SECONDS = 32 * 86400  # a cookie is accepted for 31 days
MOST = 100_000  # about 10 MB
_BUSY_SECONDS = 5.0
_TABLES = (
    "CREATE TABLE IF NOT EXISTS sign_outs "
    "(sign_in TEXT PRIMARY KEY, issued INTEGER NOT NULL, ended INTEGER NOT NULL) STRICT"
)
_LIMIT = ""  # the entry whose `issued` is that of the latest deleted sign-in

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SignIn:
    """One sign-in of a user in one browser.

    Attributes:
      digest: identifies it, but does not open anything.
      issued: when the provider issued its ID token, in seconds since 1970.
    """

    digest: str
    issued: int


class SignOuts:
    """The list in one file. If the file cannot be used, this process goes on with its known ones."""

    def __init__(self, path: Path | None = None, most: int = MOST) -> None:
        self.path = path or user_folder() / "sign_outs.sqlite3"
        self._most = most
        self._lock = threading.Lock()
        self._ended: set[str] = set()
        self._limit = -1  # seconds since 1970: sign-ins that were issued then or earlier have ended
        self._read: tuple[int, int] | None = None  # modification time and size of the file

    def add(self, sign_in: SignIn, now: float | None = None) -> None:
        """End a sign-in. `now` is in seconds since 1970."""
        now = time.time() if now is None else now
        with self._lock:
            self._ended.add(sign_in.digest)
            try:
                with self._connected() as database, private_database.exclusive(database):
                    database.execute(
                        "INSERT OR IGNORE INTO sign_outs VALUES (?, ?, ?)",
                        [sign_in.digest, sign_in.issued, int(now)],
                    )
                    self._shrink(database, int(now))
            except (sqlite3.Error, OSError) as error:
                why = private_database.reason(self.path, error)
                _log.error("A sign-out is not kept in %s: %s", self.path, why)

    def has(self, sign_in: SignIn) -> bool:
        """Return whether a sign-in has ended, in this process or in another one."""
        with self._lock:
            self._refresh()
            return sign_in.digest in self._ended or sign_in.issued <= self._limit

    def _shrink(self, database: sqlite3.Connection, now: int) -> None:
        database.execute("DELETE FROM sign_outs WHERE ended < ?", [now - KEPT_SECONDS])
        (count,) = database.execute("SELECT count(*) FROM sign_outs").fetchone()
        if count <= self._most:
            return
        # A tenth at once, so that not every sign-out moves the limit.
        (issued,) = database.execute(
            "SELECT issued FROM sign_outs ORDER BY issued LIMIT 1 OFFSET ?",
            [count - self._most + self._most // 10],
        ).fetchone()
        database.execute("DELETE FROM sign_outs WHERE issued <= ?", [issued])
        database.execute("INSERT OR REPLACE INTO sign_outs VALUES (?, ?, ?)", [_LIMIT, issued, now])

    def _refresh(self) -> None:
        """Read the file if it has changed."""
        try:
            facts = self.path.stat()
            state = (facts.st_mtime_ns, facts.st_size)
            if state == self._read:
                return
            with self._connected() as database:
                rows = database.execute("SELECT sign_in, issued FROM sign_outs").fetchall()
        except FileNotFoundError:
            return
        except (sqlite3.Error, OSError) as error:
            why = private_database.reason(self.path, error)
            _log.error("Sign-outs cannot be read from %s: %s", self.path, why)
            return
        self._read = state
        kept = dict(rows)
        self._limit = max(self._limit, kept.pop(_LIMIT, -1))
        self._ended |= set(kept)

    def _connected(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        return private_database.opened(self.path, _BUSY_SECONDS, lambda database: database.execute(_TABLES))


@functools.cache
def shared() -> SignOuts:
    """Return the list of this process."""
    return SignOuts()
