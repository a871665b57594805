"""An entry of the library: its facts, and the rules for names and notes."""

import datetime
import unicodedata
from dataclasses import dataclass
from typing import Any

from inspector.compare.board import Board
from inspector.records.snapshot import Snapshot
from inspector.sharding.sharding_text import mesh_text
from inspector.sharding.totals import state_totals
from inspector.text.errors import InvalidInput, shown

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
