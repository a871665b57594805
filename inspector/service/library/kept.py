"""Save, find, open and delete Snapshots in the library."""

from __future__ import annotations

import contextlib
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path

from inspector.core import snapshot, strict_json
from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import bytes_text
from inspector.core.snapshot import Snapshot
from inspector.service.library import file
from inspector.service.library.entry import (
    Entry,
    checked_name,
    checked_note,
    described,
    folded,
    words,
)

MOST_BYTES = 128 * 2**20  # of one Snapshot as text; 126 arrays take 60 kB

_ENTRY = (
    "name, note, saved, source, target, model, mesh, devices, arrays, state_bytes, per_device, "
    "length(packed)"
)


class NameTaken(InvalidInput):
    """Another Snapshot has the name."""


class Library:
    """The Snapshots in one file. Every method raises `InvalidInput` if the file is unusable."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or file.folder() / "library.sqlite3"

    def save(self, name: str, note: str, found: Snapshot, replace: bool = False) -> Entry:
        """Save a Snapshot under a name. Replace one of that name only with `replace`.

        Raises:
          NameTaken: another Snapshot has this name.
          InvalidInput: name, note or Snapshot is too long.
        """
        name, note = checked_name(name), checked_note(note)
        text = snapshot.dumps(found).encode("utf-8")
        if len(text) > MOST_BYTES:
            raise InvalidInput(
                f"the Snapshot has {bytes_text(len(text))}, but the library keeps at most "
                f"{bytes_text(MOST_BYTES)} of one"
            )
        entry = described(name, note, found, zlib.compress(text))
        with self._writing() as database:
            taken = database.execute("SELECT 1 FROM snapshots WHERE name = ?", [name]).fetchone()
            if taken and not replace:
                raise NameTaken(f"the library has a Snapshot named {shown(name)} already")
            columns = ", ".join(entry)
            marks = ", ".join("?" * len(entry))
            database.execute(
                f"INSERT OR REPLACE INTO snapshots ({columns}) VALUES ({marks})",
                list(entry.values()),
            )
            return _entry(database, name)

    def entries(self, search: str = "") -> tuple[Entry, ...]:
        """Return the entries that contain each word of `search`, ignoring case, newest first.

        The search covers name, note, model, mesh, target and source.
        """
        wanted = folded(search).split()
        with self._connected() as database:
            rows = database.execute(
                f"SELECT words, {_ENTRY} FROM snapshots ORDER BY saved DESC, name"
            )
            return tuple(
                Entry(*row) for searched, *row in rows if all(one in searched for one in wanted)
            )

    def entry(self, name: str) -> Entry:
        """Return one entry.

        Raises:
          InvalidInput: the name is unknown.
        """
        with self._connected() as database:
            return _entry(database, name)

    def open(self, name: str) -> Snapshot:
        """Return a saved Snapshot.

        Raises:
          InvalidInput: the name is unknown, or the Snapshot is damaged.
        """
        return snapshot.from_json(strict_json.parse(self.text(name), shown(name)), shown(name))

    def text(self, name: str) -> str:
        """Return the JSON text of a saved Snapshot.

        Raises:
          InvalidInput: the name is unknown, or the Snapshot is damaged.
        """
        with self._connected() as database:
            found = database.execute(
                "SELECT packed FROM snapshots WHERE name = ?", [name]
            ).fetchone()
        if found is None:
            raise _absent(name)
        try:
            unpacker = zlib.decompressobj()
            text = unpacker.decompress(found[0], MOST_BYTES)
            if unpacker.unconsumed_tail or not unpacker.eof:
                raise zlib.error("the compressed data is incomplete")
            return text.decode("utf-8")
        except (zlib.error, UnicodeDecodeError) as error:
            raise InvalidInput(
                f"the Snapshot {shown(name)} in the library is damaged: {error}"
            ) from None

    def annotate(self, name: str, note: str) -> Entry:
        """Replace the note of a saved Snapshot.

        Raises:
          InvalidInput: the name is unknown, or the note is too long.
        """
        note = checked_note(note)
        with self._writing() as database:
            entry = _entry(database, name)
            searched = words(name, note, entry.model, entry.mesh, entry.target, entry.source)
            database.execute(
                "UPDATE snapshots SET note = ?, words = ? WHERE name = ?", [note, searched, name]
            )
            return _entry(database, name)

    def delete(self, name: str) -> None:
        """Delete one Snapshot.

        Raises:
          InvalidInput: the name is unknown.
        """
        with self._writing() as database:
            if not database.execute("DELETE FROM snapshots WHERE name = ?", [name]).rowcount:
                raise _absent(name)

    def bytes(self) -> int:
        """Return the compressed bytes of all Snapshots."""
        with self._connected() as database:
            question = "SELECT coalesce(sum(length(packed)), 0) FROM snapshots"
            return database.execute(question).fetchone()[0]

    def move_aside(self) -> Path:
        """Rename the file, so that a new library can start. Return the new path.

        Raises:
          InvalidInput: the file cannot be renamed.
        """
        return file.move_aside(self.path)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Run one exclusive transaction; roll it back on an error."""
        with self._connected() as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")

    def _connected(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        return file.connected(self.path)


def _entry(database: sqlite3.Connection, name: str) -> Entry:
    row = database.execute(f"SELECT {_ENTRY} FROM snapshots WHERE name = ?", [name]).fetchone()
    if row is None:
        raise _absent(name)
    return Entry(*row)


def _absent(name: str) -> InvalidInput:
    return InvalidInput(f"the library has no Snapshot named {shown(name)}")
