"""CompileCache kept on disk by what was asked, so that nobody waits twice for the same compile.

One SQLite file in the user's cache folder, which any number of servers and commands use at once. It is
bounded: the answers that were not asked for the longest go first. It is a cache and nothing else: where it
cannot be read or written, every question is new.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import platformdirs

FOLDER_VARIABLE = (
    "SHARDING_INSPECTOR_CACHE"  # where the file lies, if not in the user's cache folder
)
MOST_BYTES = 256 * 2**20  # a compiled 70B model's Snapshot takes some 100 kB when packed
FORM = 1  # of the tables; a file of another form is begun anew
_BUSY_SECONDS = 5.0  # how long to wait for another process that writes

Result = TypeVar("Result")

_log = logging.getLogger(__name__)

_TABLES = """
CREATE TABLE answers (
  key TEXT PRIMARY KEY,
  packed BLOB NOT NULL,
  asked REAL NOT NULL
) STRICT, WITHOUT ROWID
"""


@dataclass(frozen=True)
class Held:
    """How many answers are kept, and their bytes on disk."""

    count: int
    bytes: int


class CompileCache:
    """The answers in one file; `most_bytes` bounds what they take packed."""

    def __init__(self, path: Path | None = None, most_bytes: int = MOST_BYTES) -> None:
        self.path = path or folder() / "answers.sqlite3"
        self._most_bytes = most_bytes

    def get(self, key: str) -> str | None:
        """The answer kept under this key; None if there is none, or it cannot be read."""

        def read(database: sqlite3.Connection) -> str | None:
            found = database.execute("SELECT packed FROM answers WHERE key = ?", [key]).fetchone()
            if found is None:
                return None
            database.execute("UPDATE answers SET asked = ? WHERE key = ?", [time.time(), key])
            return zlib.decompress(found[0]).decode()

        return self._use(read, None)

    def put(self, key: str, text: str) -> None:
        """Keep an answer, and let go of those asked for longest ago if all together are too large."""
        packed = zlib.compress(text.encode())
        if len(packed) > self._most_bytes:
            return

        def write(database: sqlite3.Connection) -> None:
            database.execute(
                "INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", [key, packed, time.time()]
            )
            database.execute(
                "DELETE FROM answers WHERE key IN (SELECT key FROM (SELECT key, "
                "sum(length(packed)) OVER (ORDER BY asked DESC, key) AS together FROM answers) "
                "WHERE together > ?)",
                [self._most_bytes],
            )

        self._use(write, None)

    def held(self) -> Held:
        """What is kept now."""
        question = "SELECT count(*), coalesce(sum(length(packed)), 0) FROM answers"
        return self._use(lambda database: Held(*database.execute(question).fetchone()), Held(0, 0))

    def clear(self) -> None:
        """Let go of all answers, and give their room on disk back."""
        for statement in ("DELETE FROM answers", "VACUUM"):
            self._use(lambda database, statement=statement: database.execute(statement), None)

    def _use(self, what: Callable[[sqlite3.Connection], Result], otherwise: Result) -> Result:
        """What comes of one use of the file; `otherwise` where something is wrong with it."""
        try:
            with contextlib.closing(self._connected()) as database:
                return what(database)
        except (sqlite3.Error, OSError, zlib.error, UnicodeDecodeError) as error:
            _log.warning("the kept answers in %s cannot be used: %s", self.path, error)
            # Busy, or no place to write, may do later; anything else is damage.
            if not isinstance(error, sqlite3.OperationalError | OSError):
                with contextlib.suppress(OSError):
                    self._remove()
            return otherwise

    def _connected(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")  # a lost answer can be found again
            if database.execute("PRAGMA user_version").fetchone()[0] != FORM:
                self._begin(database)
        except BaseException:
            database.close()
            raise
        return database

    def _begin(self, database: sqlite3.Connection) -> None:
        """Make the tables, unless another process has done so meanwhile."""
        database.execute("BEGIN IMMEDIATE")
        if database.execute("PRAGMA user_version").fetchone()[0] != FORM:
            database.execute("DROP TABLE IF EXISTS answers")
            database.execute(_TABLES)
            database.execute(f"PRAGMA user_version = {FORM}")
        database.execute("COMMIT")

    def _remove(self) -> None:
        for name in (self.path, *(Path(f"{self.path}{end}") for end in ("-wal", "-shm"))):
            name.unlink(missing_ok=True)


def key_of(question: Mapping[str, Any]) -> str:
    """A key that two questions share only if they are equal and the same code answers them."""
    asked = json.dumps({"question": question, "code": code()}, sort_keys=True)
    return hashlib.sha256(asked.encode()).hexdigest()


@functools.cache
def code() -> str:
    """What tells the code that makes answers from an earlier one: a digest of its files."""
    digest = hashlib.sha256()
    package = Path(__file__).resolve().parents[1]
    # In a checkout `models` is a link, which `rglob` does not follow.
    for folder in (package, package / "models"):
        for file in sorted(folder.rglob("*.py")):
            # Pages and figures show answers and make none.
            if not {"media", "figures"} & set(file.parts):
                name = file.relative_to(package)
                digest.update(f"{name}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()


def folder() -> Path:
    """Where answers are kept."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    return Path(chosen) if chosen else platformdirs.user_cache_path("sharding-inspector")
