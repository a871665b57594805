"""The library: named Snapshots and Boards with notes, which are saved, found, opened, shared and exported.

Unlike a cache, the library, a file of the user, never deletes anything by itself.

Browser tabs, servers and commands can use it at the same time. Each use is one transaction and waits for
another that writes. A file that is damaged, newer, or of another program is refused and left unchanged.
"""

import contextlib
import dataclasses
import datetime
import io
import itertools
import json
import re
import sqlite3
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from inspector.compare import board as boards
from inspector.compare.board import Board
from inspector.files import private_database, strict_json
from inspector.files.private_database import VARIABLE, user_folder
from inspector.jobs.engine import Requester
from inspector.records import snapshot
from inspector.records.snapshot import Snapshot
from inspector.sharding.sharding_text import mesh_text
from inspector.sharding.totals import state_totals
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import bytes_text

BOARD = "board"  # the source of a Board
_SHARED = ("devices", "state_bytes", "per_device")  # of a Board, if all of its layouts have the same
_LISTED = ("target", "model", "mesh")
_MOST_LISTED = 3  # different ones
LONGEST_NAME = 120  # characters
LONGEST_NOTE = 4_000  # characters, about a page


@dataclass(frozen=True)
class LibraryEntry:
    """A saved Snapshot or Board without its arrays. Unknown fields are None.

    A Board has the source `BOARD`, and as `target`, `model` and `mesh` the different ones of its layouts, or
    None if there are many.

    `saved` is a UTC time in ISO 8601. `state_bytes` and `per_device` are bytes of the train state. `bytes` is
    the compressed size in the file.

    `owner` is the name of the user who saved it on a server with sign-in; others see it if it is `shared`.
    Everyone sees an entry without an owner. `changeable` is whether who asked can change and delete it.
    """

    name: str
    note: str
    saved: str
    source: str
    target: str | None
    model: str | None
    mesh: str | None
    devices: int | None
    arrays: int
    state_bytes: int | None
    per_device: int | None
    bytes: int
    owner: str | None = None
    shared: bool = False
    changeable: bool = True

    @property
    def is_board(self) -> bool:
        return self.source == BOARD

    @property
    def source_text(self) -> str:
        """Return the target if it is known, else the kind of the entry."""
        return self.target or ("comparison" if self.is_board else self.source)

    def text_of(self, fact: str | None) -> str:
        """Return a fact; for None `unknown`, or `–` because the layouts of a comparison may differ in it."""
        return fact or ("–" if self.is_board else "unknown")


def checked_name(name: str) -> str:
    """Return a name without blanks around it.

    Raises:
      InvalidInput: it is empty, too long, or has characters that are not printable.
    """
    name = name.strip()
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise InvalidInput(
            f"name is {shown(name)}, but must be one line of 1 to {LONGEST_NAME} printable characters"
        )
    return name


def checked_note(note: str) -> str:
    """Return a note, which may have several lines.

    Raises:
      InvalidInput: it is too long, or is not valid Unicode text.
    """
    note = note.strip()
    if len(note) > LONGEST_NOTE:
        raise InvalidInput(f"note has {len(note):,} characters, but may have {LONGEST_NOTE:,}")
    if any(unicodedata.category(character) == "Cs" or character == "\0" for character in note):
        raise InvalidInput("note has a lone surrogate or a zero byte, but must be text")
    return note


def described(
    name: str, note: str, snapshot: Snapshot | Board, packed: bytes, owner_name: str | None = None
) -> dict[str, Any]:
    """Return the columns of the table that do not depend on other rows."""
    if isinstance(snapshot, Board):
        each = [_facts(one) for one in snapshot.snapshots]
        facts = {key: _shared([one[key] for one in each]) for key in _SHARED}
        facts |= {key: _listed([one[key] for one in each]) for key in _LISTED}
        facts |= {"source": BOARD, "arrays": 0}
        names = snapshot.names
    else:
        facts, names = _facts(snapshot), ()
    searched = (facts["model"], facts["mesh"], facts["target"], facts["source"], owner_name)
    return {
        "name": name,
        "note": note,
        "saved": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
        **facts,
        "words": words(name, note, *searched, *names),
        "packed": packed,
    }


def _facts(snapshot: Snapshot) -> dict[str, Any]:
    model = None if snapshot.layout is None else snapshot.layout.get("model")
    totals = state_totals(snapshot)
    return {
        "source": snapshot.source.kind,
        "target": _target(snapshot),
        "model": model if isinstance(model, str) else None,
        "mesh": None if snapshot.mesh is None else mesh_text(snapshot.mesh),
        "devices": None if snapshot.mesh is None else snapshot.mesh.size,
        "arrays": len(snapshot.arrays),
        "state_bytes": _stored(totals.bytes),
        "per_device": _stored(totals.per_device),
    }


def _target(snapshot: Snapshot) -> str | None:
    """Return the target of a plan's layout, or that of the source of any other Snapshot."""
    planned_for = (snapshot.layout or {}).get("target") if snapshot.source.kind == "plan" else None
    return planned_for if isinstance(planned_for, str) else snapshot.source.target


def _listed(values: list[str | None]) -> str | None:
    """Return the different values, one after the other; None if one is unknown or there are many."""
    different = list(dict.fromkeys(values))
    known = [value for value in different if value is not None]
    return ", ".join(known) if len(known) == len(different) <= _MOST_LISTED else None


def _shared(values: list[Any]) -> Any:
    """Return the value that all have, or None."""
    return values[0] if values and all(value == values[0] for value in values) else None


def _stored(count: int | None) -> int | None:
    """Return None for a count that exceeds the 64-bit integers of SQLite."""
    return count if count is None or count < 2**63 else None


def words(*texts: str | None) -> str:
    """Return the text to search. Line ends separate the parts, so that no word spans two of them."""
    return "\n".join(folded(text) for text in texts if text)


def folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


MOST_BYTES = 128 * 2**20  # of one Snapshot as text; 126 arrays take 60 kB

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


class Unreadable(InvalidInput):
    """A file is damaged or of a newer version. The user can move it aside."""


class NameTaken(InvalidInput):
    """Another Snapshot of the same owner has the name."""


class NameUnknown(InvalidInput):
    """The user sees no entry of this name."""


class Library:
    """The Snapshots in the file. Every method raises `InvalidInput` if the file is unusable.

    A name is unique among those of one owner. If a user sees several Snapshots of one name, the user's own
    one, or else one without an owner, has the name, and the others have that of their owner added, such as
    `base (ann@my.org)`. So no answer depends on objects a user does not see.

    Args:
      user: a signed-in user sees and changes their entries, and sees shared ones and those without an owner,
        which users who are not signed in can change. None is the user of this machine, who sees and changes
        everything.
      on_change: is called with each change or its refusal: `save`, `annotate`, `rename`, `share` or `delete`,
        the user, the name of the Snapshot, and the outcome.
    """

    def __init__(
        self,
        path: Path | None = None,
        user: Requester | None = None,
        on_change: Callable[[str, Requester, str, str], None] | None = None,
    ) -> None:
        self.path = path or user_folder() / NAME
        self._user = user
        self._on_change = on_change

    def save(self, name: str, note: str, found: Snapshot | Board, replace: bool = False) -> LibraryEntry:
        """Save a Snapshot or a Board under a name. Replace one of that name only with `replace`.

        Raises:
          NameTaken: another Snapshot has this name.
          InvalidInput: name, note or Snapshot is too long.
        """
        name, note = checked_name(name), checked_note(note)
        plain = boards.dumps(found) if isinstance(found, Board) else snapshot.dumps(found)
        content = plain.encode()
        if len(content) > MOST_BYTES:
            noun = "comparison" if isinstance(found, Board) else "Snapshot"
            raise InvalidInput(
                f"the {noun} has {bytes_text(len(content))}, but the library keeps at most "
                f"{bytes_text(MOST_BYTES)} of one"
            )
        owner_name = None if self._owner is None or self._user is None else self._user.name
        entry = described(name, note, found, zlib.compress(content), owner_name)
        entry |= {"owner": self._owner, "owner_name": owner_name, "shared": 0}
        with self._changing("save", name) as database:
            taken = self._visible(database).get(name)
            if taken is None or not self._may_change(taken.owner):
                columns = f"({', '.join(entry)}) VALUES ({', '.join('?' * len(entry))})"
                inserted = database.execute(f"INSERT INTO snapshots {columns}", [*entry.values()])
                number = inserted.lastrowid
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
        try:
            unpacker = zlib.decompressobj()
            text = unpacker.decompress(content, MOST_BYTES)
            if unpacker.unconsumed_tail or not unpacker.eof:
                raise zlib.error("the compressed data is incomplete")
            return text.decode()
        except (zlib.error, UnicodeDecodeError) as error:
            raise InvalidInput(f"the Snapshot {shown(name)} in the library is damaged: {error}") from None

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
            stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S%f")
            aside = self.path.with_name(f"{self.path.stem}-aside-{stamp}{self.path.suffix}")
            try:
                # SQLite has recent or unfinished writes in files of the same name with a suffix.
                for end in private_database.SUFFIXES:
                    part = Path(f"{self.path}{end}")
                    if part.exists():
                        part.rename(f"{aside}{end}")
            except OSError as error:
                raise InvalidInput(f"{self.path} cannot be moved: {error.strerror}") from None
            return aside
        raise InvalidInput(f"the library {self.path} can be read, so it was not moved")

    @contextlib.contextmanager
    def _changing(self, event: str, name: str) -> Iterator[sqlite3.Connection]:
        """Run one exclusive transaction; roll it back on an error. Report its outcome."""
        try:
            with self._connected() as database, private_database.exclusive(database):
                yield database
        except InvalidInput as error:
            self._report(event, name, str(error))
            raise
        self._report(event, name, "done")

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
            text = "the library stores text, but this has a lone surrogate"
            raise InvalidInput(text) from None

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
                f"the library {self.path} has version {version}, but this program reads version "
                f"{VERSION}: open it with a newer Sharding Inspector"
            )
        return int(version)

    def _explained(self, error: sqlite3.Error | OSError) -> InvalidInput:
        """Return a sentence why a file cannot be used."""
        kind = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary result code
        what = f"the library {self.path}"
        if kind in _BUSY:
            seconds = f"{_BUSY_SECONDS:.0f} seconds"
            return InvalidInput(f"{what} is in use by another process for more than {seconds}")
        if kind in _NO_PLACE or isinstance(error, OSError):
            return InvalidInput(f"{what} cannot be used: {private_database.reason(self.path, error)}")
        return Unreadable(f"{what} is damaged or not a library: {error}; it was left unchanged")

    def _report(self, event: str, name: str, outcome: str) -> None:
        if self._on_change is not None and self._user is not None:
            self._on_change(event, self._user, name, outcome)

    @property
    def _owner(self) -> str | None:
        """The owner of what the user saves; None unless signed in."""
        return self._user.owner if self._user is not None and self._user.signed_in else None

    def _may_change(self, owner: str | None) -> bool:
        return self._user is None or owner == self._owner

    def _visible(self, database: sqlite3.Connection) -> dict[str, _Row]:
        """Return the Snapshots that the user sees, under the names that this user sees."""
        rows = map(_Row._make, database.execute(f"SELECT {', '.join(_Row._fields)} FROM snapshots"))
        # Own ones first, then those without an owner.
        ordered = sorted(
            (row for row in rows if row.owner is None or row.shared or self._may_change(row.owner)),
            key=lambda row: (row.owner != self._owner, row.owner or "", row.id),
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
