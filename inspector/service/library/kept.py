"""Save, find, open, share and delete Snapshots in the library."""

from __future__ import annotations

import contextlib
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from inspector.compare import board as boards
from inspector.compare.board import Board
from inspector.core import private_database, snapshot, strict_json
from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import bytes_text
from inspector.core.snapshot import Snapshot
from inspector.core.user_folder import user_folder
from inspector.service.engine import Requester
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
    "length(packed), owner_name, shared"
)


class NameTaken(InvalidInput):
    """Another Snapshot has the name."""


class Library:
    """The Snapshots in one file. Every method raises `InvalidInput` if the file is unusable.

    Args:
      user: the user of a server for several people. A signed-in user sees and changes what is theirs, and
        sees what is shared or has no owner. A user who is not signed in sees what is shared, and sees and
        changes what has no owner. None is the user of this machine, who sees and changes everything.
      on_change: is called with each change or its refusal: `save`, `annotate`, `rename`, `share` or `delete`,
        the user, the name of the Snapshot, and the outcome.
    """

    def __init__(
        self,
        path: Path | None = None,
        user: Requester | None = None,
        on_change: Callable[[str, Requester, str, str], None] | None = None,
    ) -> None:
        self.path = path or user_folder() / "library.sqlite3"
        self._user = user
        self._on_change = on_change

    def save(self, name: str, note: str, found: Snapshot | Board, replace: bool = False) -> Entry:
        """Save a Snapshot or a Board under a name. Replace one of that name only with `replace`.

        Raises:
          NameTaken: another Snapshot has this name.
          InvalidInput: name, note or Snapshot is too long.
        """
        name, note = checked_name(name), checked_note(note)
        is_board = isinstance(found, Board)
        plain = boards.dumps(found) if isinstance(found, Board) else snapshot.dumps(found)
        text = plain.encode("utf-8")
        if len(text) > MOST_BYTES:
            raise InvalidInput(
                f"the {'Board' if is_board else 'Snapshot'} has {bytes_text(len(text))}, but the "
                f"library keeps at most {bytes_text(MOST_BYTES)} of one"
            )
        owner = self._user if self._user is not None and self._user.signed_in else None
        owner_name = None if owner is None else owner.name
        entry = described(name, note, found, zlib.compress(text), owner_name)
        entry |= {"owner": owner and owner.owner, "owner_name": owner_name, "shared": 0}
        with self._writing("save", name) as database:
            taken = database.execute(
                "SELECT owner, owner_name, shared FROM snapshots WHERE name = ?", [name]
            ).fetchone()
            if taken and not self._may_change(taken[0]):
                raise InvalidInput(
                    f"the name {shown(name)} belongs to a Snapshot of another user: choose another name"
                )
            if taken and not replace:
                raise NameTaken(f"the library has a Snapshot named {shown(name)} already")
            if taken:
                entry |= dict(zip(("owner", "owner_name", "shared"), taken, strict=True))
            columns = ", ".join(entry)
            marks = ", ".join("?" * len(entry))
            database.execute(
                f"INSERT OR REPLACE INTO snapshots ({columns}) VALUES ({marks})",
                list(entry.values()),
            )
            return self._entry(database, name)

    def entries(self, search: str = "") -> tuple[Entry, ...]:
        """Return the entries that the user sees and that contain each word of `search`, newest first.

        The search covers name, note, model, mesh, target, source and owner, and ignores case.
        """
        wanted = folded(search).split()
        with self._connected() as database:
            rows = database.execute(
                f"SELECT words, owner, {_ENTRY} FROM snapshots ORDER BY saved DESC, name"
            )
            return tuple(
                self._made(owner, row)
                for searched, owner, *row in rows
                if self._may_see(owner, row[-1]) and all(one in searched for one in wanted)
            )

    def entry(self, name: str) -> Entry:
        """Return one entry.

        Raises:
          InvalidInput: the name is unknown.
        """
        with self._connected() as database:
            return self._entry(database, name)

    def open(self, name: str) -> Snapshot:
        """Return a saved Snapshot.

        Raises:
          InvalidInput: the name is unknown, or the Snapshot is damaged.
        """
        return snapshot.from_json(strict_json.parse(self.text(name), shown(name)), shown(name))

    def board(self, name: str) -> Board:
        """Return a saved Board, or a saved Snapshot as a Board with one layout.

        Raises:
          InvalidInput: the name is unknown, or the Board is damaged.
        """
        found = strict_json.parse(self.text(name), shown(name))
        if isinstance(found, dict) and found.get("format") == snapshot.FORMAT:
            pinned = snapshot.from_json(found, shown(name))
            return Board().pinned(boards.free_name(name, ()), pinned)
        return boards.from_json(found, shown(name))

    def text(self, name: str) -> str:
        """Return the JSON text of a saved Snapshot.

        Raises:
          InvalidInput: the name is unknown, or the Snapshot is damaged.
        """
        with self._connected() as database:
            found = database.execute(
                "SELECT packed, owner, shared FROM snapshots WHERE name = ?", [name]
            ).fetchone()
        if found is None or not self._may_see(*found[1:]):
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
        with self._writing("annotate", name) as database:
            self._owned(database, name)
            database.execute("UPDATE snapshots SET note = ? WHERE name = ?", [note, name])
            return self._described_again(database, name)

    def rename(self, name: str, new_name: str) -> Entry:
        """Give a saved Snapshot another name.

        Raises:
          NameTaken: another Snapshot has the new name.
          InvalidInput: the name is unknown or belongs to another user, or the new name is not allowed.
        """
        new_name = checked_name(new_name)
        with self._writing("rename", name) as database:
            self._owned(database, name)
            taken = database.execute("SELECT 1 FROM snapshots WHERE name = ?", [new_name])
            if new_name != name and taken.fetchone():
                raise NameTaken(f"the library has a Snapshot named {shown(new_name)} already")
            database.execute("UPDATE snapshots SET name = ? WHERE name = ?", [new_name, name])
            return self._described_again(database, new_name)

    def share(self, name: str, shared: bool) -> Entry:
        """Let all users of the server see a Snapshot, or only its owner again.

        Raises:
          InvalidInput: the name is unknown, belongs to another user, or has no owner.
        """
        with self._writing("share" if shared else "unshare", name) as database:
            if self._owned(database, name) is None:
                raise InvalidInput(f"{shown(name)} has no owner, so everyone sees it already")
            database.execute("UPDATE snapshots SET shared = ? WHERE name = ?", [int(shared), name])
            return self._entry(database, name)

    def delete(self, name: str) -> None:
        """Delete one Snapshot.

        Raises:
          InvalidInput: the name is unknown, or belongs to another user.
        """
        with self._writing("delete", name) as database:
            self._owned(database, name)
            database.execute("DELETE FROM snapshots WHERE name = ?", [name])

    def bytes(self) -> int:
        """Return the compressed bytes of all Snapshots."""
        with self._connected() as database:
            question = "SELECT coalesce(sum(length(packed)), 0) FROM snapshots"
            return database.execute(question).fetchone()[0]

    def move_aside(self) -> Path:
        """Rename the file, so that a new library can start. Return the new path.

        Raises:
          InvalidInput: the file cannot be renamed, or the user is not the one of this machine.
        """
        if self._user is not None:
            raise InvalidInput("only the user who runs the server can move the library aside")
        return file.move_aside(self.path)

    @contextlib.contextmanager
    def _writing(self, event: str, name: str) -> Iterator[sqlite3.Connection]:
        """Run one exclusive transaction; roll it back on an error. Report its outcome."""
        try:
            with self._connected() as database, private_database.exclusive(database):
                yield database
        except InvalidInput as error:
            self._report(event, name, str(error))
            raise
        self._report(event, name, "done")

    def _report(self, event: str, name: str, outcome: str) -> None:
        if self._on_change is not None and self._user is not None:
            self._on_change(event, self._user, name, outcome)

    def _connected(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        return file.connected(self.path)

    def _may_see(self, owner: str | None, shared: int) -> bool:
        return bool(shared) or owner is None or self._may_change(owner)

    def _may_change(self, owner: str | None) -> bool:
        if self._user is None:
            return True
        return owner == (self._user.owner if self._user.signed_in else None)

    def _owned(self, database: sqlite3.Connection, name: str) -> str | None:
        """Return the owner of a Snapshot that the user may change.

        Raises:
          InvalidInput: the name is unknown, or belongs to another user.
        """
        found = database.execute(
            "SELECT owner, owner_name, shared FROM snapshots WHERE name = ?", [name]
        ).fetchone()
        if found is None or not self._may_see(found[0], found[2]):
            raise _absent(name)
        if not self._may_change(found[0]):
            whose = "has no owner" if found[0] is None else f"belongs to {found[1]}"
            raise InvalidInput(f"the Snapshot {shown(name)} {whose}, so you cannot change it")
        return found[0]

    def _described_again(self, database: sqlite3.Connection, name: str) -> Entry:
        """Update the words that are searched, and return the entry."""
        entry = self._entry(database, name)
        searched = words(
            *(entry.name, entry.note, entry.model, entry.mesh, entry.target, entry.source),
            entry.owner,
        )
        database.execute("UPDATE snapshots SET words = ? WHERE name = ?", [searched, name])
        return entry

    def _entry(self, database: sqlite3.Connection, name: str) -> Entry:
        row = database.execute(
            f"SELECT owner, {_ENTRY} FROM snapshots WHERE name = ?", [name]
        ).fetchone()
        if row is None or not self._may_see(row[0], row[-1]):
            raise _absent(name)
        return self._made(row[0], row[1:])

    def _made(self, owner: str | None, row: Any) -> Entry:
        *facts, shared = row
        return replace(Entry(*facts), shared=bool(shared), changeable=self._may_change(owner))


def _absent(name: str) -> InvalidInput:
    return InvalidInput(f"the library has no Snapshot named {shown(name)}")
