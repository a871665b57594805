"""Compiled Snapshots on disk, so that the same layout is never compiled twice.

One SQLite file in the user's cache folder, shared by all servers and commands. Its size is bounded: the
least recently used Snapshots are deleted first. If the file cannot be written, it is only read. If it cannot
be read, nothing is cached. A warning says so once for each reason.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import logging
import os
import sqlite3
import statistics
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import platformdirs

from inspector.files import private_database, strict_json
from inspector.layout import Layout
from inspector.prediction.step_program import step_program
from inspector.records import snapshot
from inspector.records.snapshot import Snapshot
from inspector.text.errors import InvalidInput

FOLDER_VARIABLE = "SHARDING_INSPECTOR_CACHE"  # a folder instead of the user's cache folder
MOST_BYTES = 256 * 2**20  # the Snapshot of a compiled 70B model takes about 100 kB
VERSION = 2  # of the tables; a file of another version is replaced
_BUSY_SECONDS = 5.0  # to wait for another process that writes

# Fields of a layout that do not change the compiled programs.
_RUN_FIELDS = {"steps", "timeit", "trace", "processes"}
# Packages whose versions change the compiled programs.
_COMPILERS = (
    *("jax", "jaxlib", "flax", "optax", "numpy", "libtpu"),
    *("jax-cuda13-plugin", "jax-cuda13-pjrt"),
)

Result = TypeVar("Result")

_log = logging.getLogger(__name__)
_warned: set[str] = set()

_TABLES = """
CREATE TABLE snapshots (
  key TEXT PRIMARY KEY,
  packed BLOB NOT NULL,
  used REAL NOT NULL
) STRICT, WITHOUT ROWID
"""


@dataclass(frozen=True)
class Usage:
    """Number of cached Snapshots and their compressed bytes."""

    count: int
    bytes: int


class CompileCache:
    """Snapshots in one file; `most_bytes` bounds their compressed size."""

    def __init__(self, path: Path | None = None, most_bytes: int = MOST_BYTES) -> None:
        self.path = path or folder() / "compiled.sqlite3"
        self._most_bytes = most_bytes

    def get(self, key: str) -> str | None:
        """Return the text of this key; None if there is none, or if it cannot be read."""

        def read(database: sqlite3.Connection) -> str | None:
            found = database.execute("SELECT packed FROM snapshots WHERE key = ?", [key]).fetchone()
            if found is None:
                return None
            # On a full or read-only disk, it is not known which entries were used.
            with contextlib.suppress(sqlite3.OperationalError):
                database.execute("UPDATE snapshots SET used = ? WHERE key = ?", [time.time(), key])
            return zlib.decompress(found[0]).decode()

        return self._use(read, None)

    def put(self, key: str, text: str) -> None:
        """Store a text. If the total is too large, delete the least recently used."""
        packed = zlib.compress(text.encode())
        if len(packed) > self._most_bytes:
            return

        def write(database: sqlite3.Connection) -> None:
            database.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", [key, packed, time.time()])
            database.execute(
                "DELETE FROM snapshots WHERE key IN (SELECT key FROM (SELECT key, "
                "sum(length(packed)) OVER (ORDER BY used DESC, key) AS together FROM snapshots) "
                "WHERE together > ?)",
                [self._most_bytes],
            )

        self._use(write, None)

    def usage(self) -> Usage:
        """Return the number and size of all entries."""
        query = "SELECT count(*), coalesce(sum(length(packed)), 0) FROM snapshots"
        return self._use(lambda database: Usage(*database.execute(query).fetchone()), Usage(0, 0))

    def clear(self) -> None:
        """Delete all entries, and free their disk space."""
        self._use(lambda database: database.execute("DELETE FROM snapshots"), None)
        self._use(lambda database: database.execute("VACUUM"), None)

    def _use(self, action: Callable[[sqlite3.Connection], Result], default: Result) -> Result:
        """Return the result of one action on the file, or `default` if the file is unusable."""
        try:
            with private_database.opened(self.path, _BUSY_SECONDS, _prepare) as database:
                return action(database)
        except (sqlite3.Error, OSError, zlib.error, UnicodeDecodeError) as error:
            self._warn(error)
            # A busy file or a full disk may recover; any other error means a damaged file.
            if not isinstance(error, sqlite3.OperationalError | OSError):
                with contextlib.suppress(OSError):
                    private_database.remove(self.path)
            return default

    def _warn(self, error: Exception) -> None:
        """Log why the file cannot be used, once for each reason: a search asks for hundreds of entries."""
        reason = str(error)
        if isinstance(error, sqlite3.Error | OSError):
            reason = private_database.reason(self.path, error)
        text = f"the compile cache {self.path} cannot be used: {reason}"
        if text not in _warned:
            _warned.add(text)
            _log.warning("%s", text)


def _prepare(database: sqlite3.Connection) -> None:
    """Replace the tables of another version, unless another process has just done so."""
    database.execute("PRAGMA synchronous = OFF")  # a lost entry can be compiled again
    if database.execute("PRAGMA user_version").fetchone()[0] == VERSION:
        return
    with private_database.exclusive(database):
        if database.execute("PRAGMA user_version").fetchone()[0] != VERSION:
            database.execute("DROP TABLE IF EXISTS snapshots")
            database.execute(_TABLES)
            database.execute(f"PRAGMA user_version = {VERSION}")


def key_of_layout(layout: Layout) -> str:
    """Return the key for compiling this layout with the installed versions."""
    fields = set(layout.to_json()) - _RUN_FIELDS
    return key_of({"layout": layout.key(*fields), "versions": versions()})


def key_of(request: Mapping[str, Any]) -> str:
    """Return a key that two requests share only if they and the code that answers them are equal."""
    text = json.dumps({"request": request, "code": code()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def versions() -> dict[str, str]:
    versions = {}
    for package in _COMPILERS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


@functools.cache
def code() -> str:
    """Return a digest of the code that makes Snapshots."""
    digest = hashlib.sha256()
    package = Path(__file__).resolve().parents[1]
    # In a checkout `models` is a link, which `rglob` does not follow.
    for folder in (package, package / "model" / "built_in"):
        for file in sorted(folder.rglob("*.py")):
            # Pages and figures show Snapshots and make none.
            if not {"media", "figures"} & set(file.parts):
                name = file.relative_to(package)
                digest.update(f"{name}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()


def folder() -> Path:
    """Return the folder of the cache."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    return Path(chosen) if chosen else platformdirs.user_cache_path("sharding-inspector")


# Results compiled for a layout, or measured by a search, with these versions: in the compile cache.
#
# A search compiles only the program of a step, which takes two thirds of the time, or those that its weights
# name, and measures steps on emulated devices. Pages and verbs show these results until the layout is
# compiled or run as a whole.


def compiled(layout: Layout, cache: CompileCache | None = None, only: Sequence[str] = ()) -> Snapshot | None:
    """Return the Snapshot of an earlier compile for a machine: of all programs, else of that of a step.

    only: the programs that it must have; none for that of a step.
    """
    if layout.machine is None:
        return None  # another run measures other times
    cache = cache or CompileCache()
    needed = tuple(only) or (layout.step_program,)
    of_programs = (key_of_programs(layout, names) for names in dict.fromkeys((layout.programs, needed)))
    kept = (read(cache, key) for key in (key_of_layout(layout), *of_programs))
    return next((found for found in kept if found and all(map(found.program, needed))), None)


def measured(
    layout: Layout, seconds: float | None = None, cache: CompileCache | None = None
) -> Snapshot | None:
    """Return the last run on emulated devices by a search.

    seconds: the median step that it must have; None for any.
    """
    if layout.machine is not None:
        return None
    found = read(cache or CompileCache(), key_of_measured(layout))
    if found is None or seconds is None:
        return found
    program = step_program(found)
    steps = program.seconds.steps if program is not None and program.seconds else ()
    return found if steps and statistics.median(steps) == seconds else None


def of_search(layout: Layout, cache: CompileCache | None = None) -> Snapshot | None:
    """Return the results of a search, or of a compile of the whole layout; None without any."""
    return compiled(layout, cache) or measured(layout, None, cache)


def key_of_programs(layout: Layout, names: Sequence[str]) -> str:
    """Return the key of a compile of some programs."""
    whole = key_of_layout(layout)
    return key_of({"whole": whole, "only": sorted(names)})


def key_of_measured(layout: Layout) -> str:
    """Return the key of a run by a search."""
    return key_of({"measured": key_of_layout(layout)})


def read(cache: CompileCache, key: str) -> Snapshot | None:
    """Return the Snapshot of a key; None if there is none, or if it is not valid."""
    kept = cache.get(key)
    if kept is not None:
        with contextlib.suppress(InvalidInput):
            return snapshot.from_json(strict_json.parse(kept, "the cache"), "the cache")
    return None
