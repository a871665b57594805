"""The history: what was run, compiled, searched and compared with a library, in the same file.

The answer of a compile is in the compile cache, and a comparison can be repeated, so only their parameters
and main figures are kept. The Snapshot of a run and the result of a search are kept with them. The size is
bounded for each owner and together: the oldest entries are deleted first. Servers and commands can use the
file at the same time. If it cannot be written, the work goes on and a warning is logged.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
import math
import sqlite3
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from inspector.assessment import assess
from inspector.compare import board_link
from inspector.compare.board import Board
from inspector.compare.search import result as results
from inspector.compare.search.result import SearchResult
from inspector.core import snapshot, strict_json, typed_json
from inspector.core.assessment import Assessment
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
from inspector.machines import hardware
from inspector.service import store
from inspector.service.engine import Requester
from inspector.service.store import View, ownership
from inspector.service.subject import layout_title

MOST_BYTES = 2**30  # of all entries
MOST_BYTES_OF_OWNER = 2**26  # a run of 126 arrays takes about 20 kB
MOST_ENTRIES_OF_OWNER = 2_000
MOST_BYTES_OF_ANSWER = 128 * 2**20  # as text, as for an entry of the library
_WHAT = "the history"  # in errors about what it has
_OWN = "(? OR owner IS ?)"  # the condition that the user may change a row
_SIZE = "(length(parameters) + coalesce(length(packed), 0))"
# Columns that are attributes of an entry.
_COLUMNS = (
    *("id", "time", "kind", "title", "target", "parameters"),
    *("seconds", "basis", "peak_bytes", "wire_bytes", "assessment"),
)

Kind = Literal["run", "compile", "search", "compare"]
DAMAGED = "damaged"  # the kind of an entry that cannot be read
# What the parameters of each kind must have, by its key.
_NEEDED = {"run": "layout", "compile": "layout", "search": "layout", "compare": "board"}
_BASES = (None, "measured", "predicted")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HistoryEntry:
    """One thing that was done. Unknown figures are None.

    `time` is in UTC, ISO 8601. `parameters` has the `layout` of a run, compile or search; a search also has
    its `objective` and the `best` layout; a comparison has the `board` as URL parameters. `assessment` is
    that of the answer, of the best layout of a search, or of the baseline of a comparison. `seconds` is the
    step, `basis` is `measured` or `predicted`. `bytes` is the size in the file. `owner` is the name of a
    signed-in user, and `changeable` whether who asked can share and delete the entry. An entry that cannot be
    read has the defaults, so that it can be deleted.
    """

    id: str
    time: str = "1970-01-01T00:00:00.000+00:00"
    kind: str = DAMAGED
    title: str = ""
    target: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    seconds: float | None = None
    basis: str | None = None
    peak_bytes: int | None = None
    wire_bytes: int | None = None
    assessment: Assessment | None = None
    bytes: int = 0
    owner: str | None = None
    shared: bool = False
    changeable: bool = True


class History(View):
    """The entries, as a user sees them. Reading raises `InvalidInput` if the file is unusable."""

    WHAT = TABLE = "history"
    DAMAGED = "cannot be used: {}"
    EARLIER = (0, 2)

    # --- Recording -------------------------------------------------------------------------------

    def record_answer(self, layout: Layout, found: Snapshot, requester: Requester) -> None:
        """Record a run or a compile of a layout."""
        kind: Kind = "run" if layout.machine is None else "compile"
        answer = snapshot.dumps(found) if kind == "run" else None
        figures = _figures(assess(found))
        self._record(kind, layout, {"layout": layout.to_json()}, figures, requester, answer)

    def record_search(self, layout: Layout, result: SearchResult, requester: Requester) -> None:
        """Record a search that began with a layout, with its result and the figures of the best one."""
        best = result.best_candidate
        parameters = {
            "layout": layout.to_json(),
            "objective": result.objective,
            "best": None if best is None else best.layout,
        }
        known = None if best is None else best.assessment
        figures = {} if known is None else _figures(known)
        self._record("search", layout, parameters, figures, requester, results.dumps(result))

    def record_comparison(
        self, board: Board, requester: Requester, grown_from: str | None = None
    ) -> str | None:
        """Record that layouts were compared. The same comparison again only gets a new time.

        Args:
          grown_from: the id of the entry of an earlier state of the board, which this one replaces unless it
            is shared.

        Returns:
          The id of the entry; None for fewer than two layouts.
        """
        link = board_link.to_query(board, figures=False)
        if len(link.get("pin", ())) < 2:
            return None
        layout = board_link.layout_of(board.snapshots[board.baseline])
        title = " and ".join(board.names)
        text = json.dumps([link, requester.owner if requester.signed_in else None])
        entry = hashlib.sha256(text.encode()).hexdigest()[:32]
        chip = hardware.CHIPS.get(board.chip or "")
        figures = _figures(assess(board.snapshots[board.baseline], chip))
        self._record("compare", layout, {"board": link}, figures, requester, None, title, entry, grown_from)
        return entry

    def _record(
        self,
        kind: Kind,
        layout: Layout | None,
        parameters: Mapping[str, Any],
        figures: Mapping[str, Any],
        requester: Requester,
        answer: str | None = None,
        title: str | None = None,
        entry: str | None = None,
        replaced: str | None = None,
    ) -> None:
        row = {
            "id": entry or uuid.uuid4().hex,
            "time": _now().isoformat(timespec="milliseconds"),
            "kind": kind,
            "title": title or (layout_title(layout) if layout else ""),
            "target": layout.target if layout else None,
            "parameters": json.dumps(parameters),
            **figures,
            **ownership(requester),
            "packed": None if answer is None else store.packed(answer, MOST_BYTES_OF_ANSWER),
        }
        try:
            with self._writing() as database:
                database.execute(
                    "DELETE FROM history WHERE id = ? AND kind = ? AND owner IS ? AND NOT shared",
                    [replaced, kind, row["owner"]],
                )
                changes = ", ".join(f"{name} = excluded.{name}" for name in ("time", *figures))
                self._insert(database, row, f"ON CONFLICT (id) DO UPDATE SET {changes}")
                self._shrink(database, row["owner"])
        except InvalidInput as error:
            _log.warning("The history was not written: %s", error)

    def _shrink(self, database: sqlite3.Connection, owner: str | None) -> None:
        """Delete the oldest entries of an owner beyond their bounds, then those of all."""
        order = "(ORDER BY time DESC, id)"
        database.execute(
            f"DELETE FROM history WHERE id IN (SELECT id FROM (SELECT id, sum({_SIZE}) OVER {order} AS "
            f"together, row_number() OVER {order} AS place FROM history WHERE owner IS ?) "
            "WHERE together > ? OR place > ?)",
            [owner, MOST_BYTES_OF_OWNER, MOST_ENTRIES_OF_OWNER],
        )
        (together,) = database.execute(f"SELECT sum({_SIZE}) FROM history").fetchone()
        if together > MOST_BYTES:
            database.execute(
                f"DELETE FROM history WHERE id IN (SELECT id FROM (SELECT id, sum({_SIZE}) OVER {order} "
                "AS together FROM history) WHERE together > ?)",
                [MOST_BYTES],
            )

    # --- Reading ---------------------------------------------------------------------------------

    def entries(self) -> tuple[HistoryEntry, ...]:
        """Return what the user sees, newest first."""
        columns = ", ".join((*_COLUMNS, _SIZE, "owner_name", "owner", "shared"))
        with self._connected() as database:
            rows = database.execute(f"SELECT {columns} FROM history ORDER BY time DESC, id").fetchall()
        return tuple(self._entry(*row) for row in rows if self._may_see(*row[-2:]))

    def run(self, entry: str) -> Snapshot | None:
        """Return the Snapshot of a run; None for another entry, or one too large to be kept.

        Raises:
          InvalidInput: the user sees no such entry, or it is damaged.
        """
        answer = self._answer(entry, "run")
        return None if answer is None else _snapshot(answer)

    def search(self, entry: str) -> SearchResult | None:
        """Return the result of a search; None for another entry, or one too large to be kept.

        Raises:
          InvalidInput: the user sees no such entry, or it is damaged.
        """
        answer = self._answer(entry, "search")
        return None if answer is None else results.from_plain(_unpacked(answer), _WHAT)

    def _answer(self, entry: str, kind: Kind) -> bytes | None:
        with self._connected() as database:
            row = database.execute(
                "SELECT kind, packed, owner, shared FROM history WHERE id = ?", [entry]
            ).fetchone()
        if row is None or not self._may_see(*row[2:]):
            raise InvalidInput("this entry of the history was deleted")
        answer: bytes | None = row[1] if row[0] == kind else None
        return answer

    def last_run(self, layout: Layout) -> Snapshot | None:
        """Return the last run of a layout that the user sees, or None."""
        with self._connected() as database:
            rows = database.execute(
                "SELECT packed, owner, shared FROM history WHERE kind = 'run' AND packed IS NOT NULL AND "
                "parameters = ? ORDER BY time DESC",
                [json.dumps({"layout": layout.to_json()})],
            ).fetchall()
        found = next((row[0] for row in rows if self._may_see(*row[1:])), None)
        return None if found is None else _snapshot(found)

    # --- Changing --------------------------------------------------------------------------------

    def share(self, entry: str, shared: bool) -> None:
        """Let all users of the server see an entry, or only its owner again.

        Raises:
          InvalidInput: the entry is not one of the user's own.
        """
        with self._writing() as database:
            changed = database.execute(
                f"UPDATE history SET shared = ? WHERE id = ? AND owner IS NOT NULL AND {_OWN}",
                [int(shared), entry, *self._own()],
            )
            if not changed.rowcount:
                raise InvalidInput("only the owner of an entry can share it")

    def delete(self, entries: Sequence[HistoryEntry]) -> int:
        """Delete the entries that the user may change. Return the number of deleted entries."""
        question = f"DELETE FROM history WHERE id = ? AND {_OWN}"
        with self._writing() as database:
            return sum(database.execute(question, [entry.id, *self._own()]).rowcount for entry in entries)

    def _own(self) -> tuple[bool, str | None]:
        """Return the values for `_OWN`."""
        return self._user is None, ownership(self._user)["owner"]

    def _entry(self, *row: Any) -> HistoryEntry:
        *values, size, owner_name, owner, shared = row
        facts = dict(zip(_COLUMNS, values, strict=True))
        try:
            facts["parameters"] = strict_json.parse(facts["parameters"], _WHAT)
            facts["assessment"] = _assessment(facts["assessment"])
            entry = HistoryEntry(**facts, bytes=size)
            _check(entry)
        except (InvalidInput, ValueError):
            entry = HistoryEntry(facts["id"], bytes=size)
        return replace(entry, owner=owner_name, shared=bool(shared), changeable=self._may_change(owner))


def _check(entry: HistoryEntry) -> None:
    """Check what SQLite does not.

    Raises:
      ValueError: the row is damaged.
    """
    datetime.datetime.fromisoformat(entry.time)
    needed = _NEEDED.get(entry.kind)
    parameters = entry.parameters
    if needed is None or not isinstance(parameters, dict):
        raise ValueError
    content = parameters.get(needed)
    if not isinstance(content, dict) or (needed == "board" and not _is_query(content)):
        raise ValueError
    amounts = (entry.seconds, entry.peak_bytes, entry.wire_bytes)
    known = [amount for amount in amounts if amount is not None]
    if entry.basis not in _BASES or not all(0 <= amount < math.inf for amount in known):
        raise ValueError


def _is_query(content: dict[str, Any]) -> bool:
    """Return whether the value can be the parameters of a URL."""
    return all(
        isinstance(texts, list) and all(isinstance(text, str) for text in texts) for texts in content.values()
    )


def _assessment(text: str | None) -> Assessment | None:
    """Return the assessment of an entry; None for one of an earlier version.

    Raises:
      InvalidInput: it is damaged.
    """
    if text is None:
        return None
    return typed_json.decode(Assessment, strict_json.parse(text, _WHAT), _WHAT)


def older_than(entries: Sequence[HistoryEntry], days: float) -> tuple[HistoryEntry, ...]:
    """Return the changeable entries that are older than this."""
    limit = (_now() - datetime.timedelta(days=days)).isoformat(timespec="milliseconds")
    return tuple(entry for entry in entries if entry.changeable and entry.time < limit)


def beyond_size(entries: Sequence[HistoryEntry], size: int) -> tuple[HistoryEntry, ...]:
    """Return the oldest changeable entries, so that at most `size` bytes of changeable ones are left."""
    together, history_entries = 0, []
    for entry in sorted((entry for entry in entries if entry.changeable), key=lambda entry: entry.time)[::-1]:
        together += entry.bytes
        if together > size:
            history_entries.append(entry)
    return tuple(history_entries)


def _figures(assessment: Assessment) -> dict[str, Any]:
    """Return the assessment, and its figures that lists are sorted by: seconds, peak and bytes sent."""
    step, need, sent = assessment.step, assessment.memory, assessment.traffic
    return {
        "seconds": None if step is None else step.seconds,
        "basis": None if step is None else step.kind,
        "peak_bytes": None if need is None else _whole(need.peak_bytes),
        "wire_bytes": None if sent is None else _whole(sent.bytes),
        "assessment": json.dumps(typed_json.encode(assessment)),
    }


def _whole(number: float | None) -> int | None:
    """Return an integer that SQLite can store, or None."""
    return None if number is None or not number < 2**63 else round(number)


def _unpacked(content: bytes) -> Any:
    text = store.unpacked(content, MOST_BYTES_OF_ANSWER, "this entry of the history")
    return strict_json.parse(text, _WHAT)


def _snapshot(content: bytes) -> Snapshot:
    return snapshot.from_json(_unpacked(content), _WHAT)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
