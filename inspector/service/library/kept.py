"""Save, find, open, share and delete Snapshots in the library."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from inspector.compare import board as boards
from inspector.compare.board import Board
from inspector.core import snapshot, strict_json
from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import bytes_text
from inspector.core.snapshot import Snapshot
from inspector.service.engine import Requester
from inspector.service.library.entry import (
    Entry,
    checked_name,
    checked_note,
    described,
    folded,
    words,
)
from inspector.service.store import Unreadable, View, move_aside, ownership, packed, unpacked

MOST_BYTES = 128 * 2**20  # of one Snapshot as text; 126 arrays take 60 kB

_ENTRY = (
    "note, saved, source, target, model, mesh, devices, arrays, state_bytes, per_device, "
    "length(packed), owner_name, shared"
)


class NameTaken(InvalidInput):
    """Another Snapshot of the same owner has the name."""


class Library(View):
    """The Snapshots in the file. Every method raises `InvalidInput` if the file is unusable.

    A name is unique among those of one owner. If a user sees several Snapshots of one name, the user's own
    one, or else one without an owner, has the name, and the others have that of their owner added, such as
    `base (ann@my.org)`. So no answer depends on what a user does not see.

    Args:
      user: sees and changes the same as in every `View`, and also sees what has no owner.
      on_change: is called with each change or its refusal: `save`, `annotate`, `rename`, `share` or `delete`,
        the user, the name of the Snapshot, and the outcome.
    """

    WHAT = "library"
    TABLE = "snapshots"
    DAMAGED = "is damaged or not a library: {}; it was left unchanged"
    EARLIER = (0x53484C42, 3)  # "SHLB"
    # An entry whose name is taken by another one keeps it with the time added.
    BEFORE_MOVE = (
        "UPDATE earlier.snapshots AS entry SET name = name || ' (' || saved || ')' WHERE EXISTS (SELECT 1 "
        "FROM main.snapshots AS kept WHERE kept.name = entry.name AND kept.owner IS entry.owner AND "
        "kept.saved != entry.saved)"
    )

    def __init__(
        self,
        path: Path | None = None,
        user: Requester | None = None,
        on_change: Callable[[str, Requester, str, str], None] | None = None,
    ) -> None:
        super().__init__(path, user)
        self._on_change = on_change

    def save(self, name: str, note: str, found: Snapshot | Board, replace: bool = False) -> Entry:
        """Save a Snapshot or a Board under a name. Replace one of that name only with `replace`.

        Raises:
          NameTaken: another Snapshot has this name.
          InvalidInput: name, note or Snapshot is too long.
        """
        name, note = checked_name(name), checked_note(note)
        plain = boards.dumps(found) if isinstance(found, Board) else snapshot.dumps(found)
        content = packed(plain, MOST_BYTES)
        if content is None:
            raise InvalidInput(
                f"the {type(found).__name__} has {bytes_text(len(plain.encode()))}, but the library keeps at "
                f"most {bytes_text(MOST_BYTES)} of one"
            )
        owner = ownership(self._user)
        entry = described(name, note, found, content, owner["owner_name"])
        entry |= {**owner, "shared": 0}
        with self._changing("save", name) as database:
            number = self._numbers(database).get(name)
            if number is not None and self._may_change(self._owner(database, number)):
                if not replace:
                    raise NameTaken(f"the library has a Snapshot named {shown(name)} already")
                for kept in ("name", "owner", "owner_name", "shared"):
                    del entry[kept]
                changes = ", ".join(f"{column} = ?" for column in entry)
                database.execute(
                    f"UPDATE snapshots SET {changes} WHERE id = ?", [*entry.values(), number]
                )
            else:
                number = self._insert(database, entry).lastrowid
                assert number is not None
            return self._entry(database, number)

    def entries(self, search: str = "") -> tuple[Entry, ...]:
        """Return the entries that the user sees and that contain each word of `search`, newest first.

        The search covers name, note, model, mesh, target, source and owner, and ignores case.
        """
        wanted = folded(search).split()
        with self._connected() as database:
            names = {number: name for name, number in self._numbers(database).items()}
            rows = database.execute(
                f"SELECT id, words, owner, {_ENTRY} FROM snapshots ORDER BY saved DESC, name"
            )
            return tuple(
                self._made(names[number], owner, row)
                for number, searched, owner, *row in rows
                if number in names and all(one in searched for one in wanted)
            )

    def entry(self, name: str) -> Entry:
        """Return one entry.

        Raises:
          InvalidInput: the name is unknown.
        """
        with self._connected() as database:
            return self._entry(database, self._number(database, name))

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
            number = self._number(database, name)
            (content,) = database.execute(
                "SELECT packed FROM snapshots WHERE id = ?", [number]
            ).fetchone()
        return unpacked(content, MOST_BYTES, f"the Snapshot {shown(name)} in the library")

    def annotate(self, name: str, note: str) -> Entry:
        """Replace the note of a saved Snapshot.

        Raises:
          InvalidInput: the name is unknown, or the note is too long.
        """
        note = checked_note(note)
        with self._changing("annotate", name) as database:
            number, _ = self._owned(database, name)
            database.execute("UPDATE snapshots SET note = ? WHERE id = ?", [note, number])
            return self._described_again(database, number)

    def rename(self, name: str, new_name: str) -> Entry:
        """Give a saved Snapshot another name.

        Raises:
          NameTaken: another Snapshot of its owner has the new name.
          InvalidInput: the name is unknown or belongs to another user, or the new name is not allowed.
        """
        new_name = checked_name(new_name)
        with self._changing("rename", name) as database:
            number, owner = self._owned(database, name)
            taken = database.execute(
                "SELECT 1 FROM snapshots WHERE name = ? AND owner IS ? AND id != ?",
                [new_name, owner, number],
            )
            if taken.fetchone():
                raise NameTaken(f"the library has a Snapshot named {shown(new_name)} already")
            database.execute("UPDATE snapshots SET name = ? WHERE id = ?", [new_name, number])
            return self._described_again(database, number)

    def share(self, name: str, shared: bool) -> Entry:
        """Let all users of the server see a Snapshot, or only its owner again.

        Raises:
          InvalidInput: the name is unknown, belongs to another user, or has no owner.
        """
        with self._changing("share" if shared else "unshare", name) as database:
            number, owner = self._owned(database, name)
            if owner is None:
                raise InvalidInput(f"{shown(name)} has no owner, so everyone sees it already")
            database.execute("UPDATE snapshots SET shared = ? WHERE id = ?", [int(shared), number])
            return self._entry(database, number)

    def delete(self, name: str) -> None:
        """Delete one Snapshot.

        Raises:
          InvalidInput: the name is unknown, or belongs to another user.
        """
        with self._changing("delete", name) as database:
            number, _ = self._owned(database, name)
            database.execute("DELETE FROM snapshots WHERE id = ?", [number])

    def bytes(self) -> int:
        """Return the compressed bytes of all Snapshots."""
        with self._connected() as database:
            question = "SELECT coalesce(sum(length(packed)), 0) FROM snapshots"
            return database.execute(question).fetchone()[0]

    def move_aside(self) -> Path:
        """Rename the unreadable file, so that a new library can start. Return the new path.

        Raises:
          InvalidInput: the file is readable or cannot be renamed, or the user is not the one of this machine.
        """
        if self._user is not None:
            raise InvalidInput("only the user who runs the server can move the library aside")
        try:
            self.entries()
        except Unreadable as error:
            return move_aside(error.path)
        raise InvalidInput(f"the library {self.path} can be read, so it was not moved")

    @contextlib.contextmanager
    def _changing(self, event: str, name: str) -> Iterator[sqlite3.Connection]:
        """Run one exclusive transaction; roll it back on an error. Report its outcome."""
        try:
            with self._writing() as database:
                yield database
        except InvalidInput as error:
            self._report(event, name, str(error))
            raise
        self._report(event, name, "done")

    def _report(self, event: str, name: str, outcome: str) -> None:
        if self._on_change is not None and self._user is not None:
            self._on_change(event, self._user, name, outcome)

    def _may_see(self, owner: str | None, shared: int) -> bool:
        return owner is None or super()._may_see(owner, shared)

    def _numbers(self, database: sqlite3.Connection) -> dict[str, int]:
        """Return the `id` of each Snapshot that the user sees, under the name that this user sees."""
        rows = [
            row
            for row in database.execute("SELECT id, name, owner, owner_name, shared FROM snapshots")
            if self._may_see(row[2], row[4])
        ]
        # Own ones first, then those without an owner.
        rows.sort(
            key=lambda row: (not self._is_own(row[2]), row[2] is not None, row[2] or "", row[0])
        )
        numbers: dict[str, int] = {}
        others = []
        for number, name, _, owner_name, _ in rows:
            if numbers.setdefault(name, number) != number:
                others.append((number, f"{name} ({owner_name or 'without owner'})"))
        for number, name in others:
            counted = (f"{name} ({count})" for count in itertools.count(2))
            free = next(one for one in itertools.chain([name], counted) if one not in numbers)
            numbers[free] = number
        return numbers

    def _number(self, database: sqlite3.Connection, name: str) -> int:
        """Return the `id` of a Snapshot.

        Raises:
          InvalidInput: the user sees no Snapshot of this name.
        """
        number = self._numbers(database).get(name)
        if number is None:
            raise InvalidInput(f"the library has no Snapshot named {shown(name)}")
        return number

    def _owner(self, database: sqlite3.Connection, number: int) -> str | None:
        (owner,) = database.execute("SELECT owner FROM snapshots WHERE id = ?", [number]).fetchone()
        return owner

    def _owned(self, database: sqlite3.Connection, name: str) -> tuple[int, str | None]:
        """Return `id` and owner of a Snapshot that the user may change.

        Raises:
          InvalidInput: the name is unknown, or belongs to another user.
        """
        number = self._number(database, name)
        owner, owner_name = database.execute(
            "SELECT owner, owner_name FROM snapshots WHERE id = ?", [number]
        ).fetchone()
        if not self._may_change(owner):
            whose = "has no owner" if owner is None else f"belongs to {owner_name}"
            raise InvalidInput(f"the Snapshot {shown(name)} {whose}, so you cannot change it")
        return number, owner

    def _described_again(self, database: sqlite3.Connection, number: int) -> Entry:
        """Update the words that are searched, and return the entry."""
        entry = self._entry(database, number)
        searched = words(
            *(entry.name, entry.note, entry.model, entry.mesh, entry.target, entry.source),
            entry.owner,
        )
        database.execute("UPDATE snapshots SET words = ? WHERE id = ?", [searched, number])
        return entry

    def _entry(self, database: sqlite3.Connection, number: int) -> Entry:
        owner, *row = database.execute(
            f"SELECT owner, {_ENTRY} FROM snapshots WHERE id = ?", [number]
        ).fetchone()
        names = {number: name for name, number in self._numbers(database).items()}
        return self._made(names[number], owner, row)

    def _made(self, name: str, owner: str | None, row: Any) -> Entry:
        *facts, shared = row
        changeable = self._may_change(owner)
        return replace(Entry(name, *facts), shared=bool(shared), changeable=changeable)
