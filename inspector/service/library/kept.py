"""Save, find, open, share, export and delete Snapshots in the library."""

import contextlib
import dataclasses
import io
import itertools
import json
import re
import sqlite3
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from inspector.compare import board as boards
from inspector.compare.board import Board
from inspector.core import snapshot, strict_json
from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import bytes_text
from inspector.core.snapshot import Snapshot
from inspector.service.engine import Requester
from inspector.service.library.entry import LibraryEntry, checked_name, checked_note, described, folded, words
from inspector.service.store import StoreView, Unreadable, move_aside, ownership, packed, unpacked

MOST_BYTES = 128 * 2**20  # of one Snapshot as text; 126 arrays take 60 kB

_ENTRY = (
    "note, saved, source, target, model, mesh, devices, arrays, state_bytes, per_device, "
    "length(packed), owner_name, shared"
)


class _Row(NamedTuple):
    id: int
    name: str
    owner: str | None
    owner_name: str | None
    shared: int


class NameTaken(InvalidInput):
    """Another Snapshot of the same owner has the name."""


class NameUnknown(InvalidInput):
    """The user sees no entry of this name."""


class Library(StoreView):
    """The Snapshots in the file. Every method raises `InvalidInput` if the file is unusable.

    A name is unique among those of one owner. If a user sees several Snapshots of one name, the user's own
    one, or else one without an owner, has the name, and the others have that of their owner added, such as
    `base (ann@my.org)`. So no answer depends on objects a user does not see.

    Args:
      user: sees and changes the same as in every `StoreView`, and also sees objects without an owner.
      on_change: is called with each change or its refusal: `save`, `annotate`, `rename`, `share` or `delete`,
        the user, the name of the Snapshot, and the outcome.
    """

    WHAT = "library"
    TABLE = "snapshots"
    DAMAGED = "is damaged or not a library: {}; it was left unchanged"

    def __init__(
        self,
        path: Path | None = None,
        user: Requester | None = None,
        on_change: Callable[[str, Requester, str, str], None] | None = None,
    ) -> None:
        super().__init__(path, user)
        self._on_change = on_change

    def save(self, name: str, note: str, found: Snapshot | Board, replace: bool = False) -> LibraryEntry:
        """Save a Snapshot or a Board under a name. Replace one of that name only with `replace`.

        Raises:
          NameTaken: another Snapshot has this name.
          InvalidInput: name, note or Snapshot is too long.
        """
        name, note = checked_name(name), checked_note(note)
        plain = boards.dumps(found) if isinstance(found, Board) else snapshot.dumps(found)
        content = packed(plain, MOST_BYTES)
        if content is None:
            noun = "comparison" if isinstance(found, Board) else "Snapshot"
            raise InvalidInput(
                f"the {noun} has {bytes_text(len(plain.encode()))}, but the library keeps at most "
                f"{bytes_text(MOST_BYTES)} of one"
            )
        owner = ownership(self._user)
        entry = described(name, note, found, content, owner["owner_name"])
        entry |= {**owner, "shared": 0}
        with self._changing("save", name) as database:
            taken = self._visible(database).get(name)
            if taken is None or not self._may_change(taken.owner):
                number = self._insert(database, entry).lastrowid
                assert number is not None
                return self._entry(database, number)
            if not replace:
                raise NameTaken(f"the library has an entry named {shown(name)} already")
            for kept in ("name", "owner", "owner_name", "shared"):
                del entry[kept]
            changes = ", ".join(f"{column} = ?" for column in entry)
            database.execute(f"UPDATE snapshots SET {changes} WHERE id = ?", [*entry.values(), taken.id])
            return self._entry(database, taken.id)

    def entries(self, search: str = "") -> tuple[LibraryEntry, ...]:
        """Return the entries that the user sees and that contain each word of `search`, newest first.

        The search covers name, note, model, mesh, target, source and owner, and ignores case.
        """
        wanted = folded(search).split()
        with self._connected() as database:
            names = {row.id: name for name, row in self._visible(database).items()}
            rows = database.execute(
                f"SELECT id, words, owner, {_ENTRY} FROM snapshots ORDER BY saved DESC, name"
            )
            return tuple(
                self._made(names[number], owner, row)
                for number, searched, owner, *row in rows
                if number in names and all(word in searched for word in wanted)
            )

    def entry(self, name: str) -> LibraryEntry:
        """Return one entry.

        Raises:
          InvalidInput: the name is unknown.
        """
        with self._connected() as database:
            return self._entry(database, self._row(database, name).id)

    def open(self, name: str) -> Snapshot:
        """Return a saved Snapshot.

        Raises:
          InvalidInput: the name is unknown, or the Snapshot is damaged.
        """
        return snapshot.from_json(strict_json.parse(self.text(name), shown(name)), shown(name))

    def board(self, name: str) -> Board:
        """Return a saved Board, or a saved Snapshot as a Board with one layout.

        Raises:
          NameUnknown: the user sees no entry of this name.
          InvalidInput: the Board is damaged.
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
            number = self._row(database, name).id
            (content,) = database.execute("SELECT packed FROM snapshots WHERE id = ?", [number]).fetchone()
        return unpacked(content, MOST_BYTES, f"the Snapshot {shown(name)} in the library")

    def annotate(self, name: str, note: str) -> LibraryEntry:
        """Replace the note of a saved Snapshot.

        Raises:
          InvalidInput: the name is unknown, or the note is too long.
        """
        note = checked_note(note)
        with self._changing("annotate", name) as database:
            number = self._owned(database, name).id
            database.execute("UPDATE snapshots SET note = ? WHERE id = ?", [note, number])
            return self._described_again(database, number)

    def rename(self, name: str, new_name: str) -> LibraryEntry:
        """Give a saved Snapshot another name.

        Raises:
          NameTaken: another Snapshot of its owner has the new name.
          InvalidInput: the name is unknown or belongs to another user, or the new name is not allowed.
        """
        new_name = checked_name(new_name)
        with self._changing("rename", name) as database:
            row = self._owned(database, name)
            taken = database.execute(
                "SELECT 1 FROM snapshots WHERE name = ? AND owner IS ? AND id != ?",
                [new_name, row.owner, row.id],
            )
            if taken.fetchone():
                raise NameTaken(f"the library has an entry named {shown(new_name)} already")
            database.execute("UPDATE snapshots SET name = ? WHERE id = ?", [new_name, row.id])
            return self._described_again(database, row.id)

    def share(self, name: str, shared: bool) -> LibraryEntry:
        """Let all users of the server see a Snapshot, or only its owner again.

        Raises:
          InvalidInput: the name is unknown, belongs to another user, or has no owner.
        """
        with self._changing("share" if shared else "unshare", name) as database:
            row = self._owned(database, name)
            if row.owner is None:
                raise InvalidInput(f"{shown(name)} has no owner, so everyone sees it already")
            database.execute("UPDATE snapshots SET shared = ? WHERE id = ?", [int(shared), row.id])
            return self._entry(database, row.id)

    def delete(self, name: str) -> None:
        """Delete one Snapshot.

        Raises:
          InvalidInput: the name is unknown, or belongs to another user.
        """
        with self._changing("delete", name) as database:
            number = self._owned(database, name).id
            database.execute("DELETE FROM snapshots WHERE id = ?", [number])

    def bytes(self) -> int:
        """Return the compressed bytes of all Snapshots."""
        with self._connected() as database:
            question = "SELECT coalesce(sum(length(packed)), 0) FROM snapshots"
            return int(database.execute(question).fetchone()[0])

    def move_aside(self) -> Path:
        """Rename the unreadable file, so that a new library can start. Return the new path.

        Raises:
          InvalidInput: the file is readable or cannot be renamed, or the user is not the one of this machine.
        """
        if self._user is not None:
            raise InvalidInput("only the user who runs the server can move the library aside")
        try:
            self.entries()
        except Unreadable:
            return move_aside(self.path)
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

    def _visible(self, database: sqlite3.Connection) -> dict[str, _Row]:
        """Return the Snapshots that the user sees, under the names that this user sees."""
        rows = map(_Row._make, database.execute(f"SELECT {', '.join(_Row._fields)} FROM snapshots"))
        # Own ones first, then those without an owner.
        ordered = sorted(
            (row for row in rows if self._may_see(row.owner, row.shared)),
            key=lambda row: (not self._is_own(row.owner), row.owner or "", row.id),
        )
        named: dict[str, _Row] = {}
        for row in [row for row in ordered if named.setdefault(row.name, row) is not row]:
            name = f"{row.name} ({row.owner_name or 'without owner'})"
            counted = (f"{name} ({count})" for count in itertools.count(2))
            named[next(free for free in itertools.chain([name], counted) if free not in named)] = row
        return named

    def _row(self, database: sqlite3.Connection, name: str) -> _Row:
        """Return the row of a Snapshot.

        Raises:
          NameUnknown: the user sees no Snapshot of this name.
        """
        row = self._visible(database).get(name)
        if row is None:
            raise NameUnknown(f"the library has no entry named {shown(name)}")
        return row

    def _owned(self, database: sqlite3.Connection, name: str) -> _Row:
        """Return the row of a Snapshot that the user may change.

        Raises:
          InvalidInput: the name is unknown, or belongs to another user.
        """
        row = self._row(database, name)
        if not self._may_change(row.owner):
            whose = "has no owner" if row.owner is None else f"belongs to {row.owner_name}"
            raise InvalidInput(f"the Snapshot {shown(name)} {whose}, so you cannot change it")
        return row

    def _described_again(self, database: sqlite3.Connection, number: int) -> LibraryEntry:
        """Update the words that are searched, and return the entry."""
        entry = self._entry(database, number)
        facts = (entry.model, entry.mesh, entry.target, entry.source, entry.owner)
        searched = words(entry.name, entry.note, *facts)
        database.execute("UPDATE snapshots SET words = ? WHERE id = ?", [searched, number])
        return entry

    def _entry(self, database: sqlite3.Connection, number: int) -> LibraryEntry:
        owner, *facts = database.execute(
            f"SELECT owner, {_ENTRY} FROM snapshots WHERE id = ?", [number]
        ).fetchone()
        names = {row.id: name for name, row in self._visible(database).items()}
        return self._made(names[number], owner, facts)

    def _made(self, name: str, owner: str | None, row: Any) -> LibraryEntry:
        *facts, shared = row
        changeable = self._may_change(owner)
        return replace(LibraryEntry(name, *facts), shared=bool(shared), changeable=changeable)


INDEX = "library.json"
_UNSAFE = re.compile(r"[^\w.()+-]+", re.ASCII)
_LONGEST = 80  # characters of a file name


def zipped(library: Library, entries: Sequence[LibraryEntry]) -> bytes:
    """Return a zip with a JSON file for each entry, and `library.json` with names, notes and files.

    An unreadable entry has no file; the index has its `problem`.
    """
    files = file_names([entry.name for entry in entries])
    index = []
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, entry in zip(files, entries, strict=True):
            row = dataclasses.asdict(entry)
            del row["changeable"]  # by who exported it
            try:
                archive.writestr(file, library.text(entry.name))
                index.append({"file": file, **row})
            except InvalidInput as error:  # damaged, or deleted by now
                index.append({"file": None, "problem": str(error), **row})
        archive.writestr(INDEX, json.dumps(index, ensure_ascii=False, indent=1) + "\n")
    return packed.getvalue()


def file_name(name: str) -> str:
    """Return a file name that is valid on every system and similar to the Snapshot's name."""
    return f"{_stem(name)}.json"


def file_names(names: Sequence[str]) -> list[str]:
    """Return unique file names, also for file systems that ignore case."""
    taken = {INDEX}
    files = []
    for name in names:
        stem, number = _stem(name), 1
        file = f"{stem}.json"
        while file.lower() in taken:
            number += 1
            file = f"{stem}-{number}.json"
        taken.add(file.lower())
        files.append(file)
    return files


def _stem(name: str) -> str:
    # Leading dots would make a hidden file or a folder.
    return _UNSAFE.sub("-", name)[:_LONGEST].strip(".-") or "snapshot"
