"""Files of earlier versions: their rows are moved into the one file, or they stay as they are."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from inspector.compare.board import Board
from inspector.core import private_database
from inspector.core.errors import InvalidInput
from inspector.service.engine import LOCAL
from inspector.service.history import History
from inspector.service.library import Library, Unreadable
from inspector.service.store import NAME, View
from tests.paths import ROOT
from tests.service.library.test_kept import FOUND
from tests.service.library.test_owners import ANN, BEN
from tests.service.test_history import LAYOUT, TPU, run

# As the earlier versions wrote them.
_SAVED = (
    "note TEXT NOT NULL, saved TEXT NOT NULL, source TEXT NOT NULL, target TEXT, model TEXT, mesh TEXT, "
    "devices INTEGER, arrays INTEGER NOT NULL, state_bytes INTEGER, per_device INTEGER, words TEXT NOT NULL, "
    "packed BLOB NOT NULL"
)
_RECORDED = (
    "id TEXT PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, title TEXT NOT NULL, target TEXT, "
    "parameters TEXT NOT NULL, seconds REAL, basis TEXT, peak_bytes INTEGER, wire_bytes INTEGER"
)
_OWNERS = "owner TEXT, owner_name TEXT, shared INTEGER NOT NULL DEFAULT 0"
TABLES = {
    (Library, 1): f"CREATE TABLE snapshots (name TEXT PRIMARY KEY, {_SAVED}) STRICT",
    (Library, 2): f"CREATE TABLE snapshots (name TEXT PRIMARY KEY, {_SAVED}, {_OWNERS}) STRICT",
    (Library, 3): (
        f"CREATE TABLE snapshots (id INTEGER PRIMARY KEY, name TEXT NOT NULL, {_SAVED}, {_OWNERS}) STRICT; "
        "CREATE UNIQUE INDEX snapshots_names ON snapshots (name, ifnull(owner, ''))"
    ),
    (History, 1): f"CREATE TABLE history ({_RECORDED}, {_OWNERS}, packed BLOB) STRICT",
    (
        History,
        2,
    ): f"CREATE TABLE history ({_RECORDED}, assessment TEXT, {_OWNERS}, packed BLOB) STRICT",
}
APPLICATIONS = {Library: 0x53484C42, History: 0}


def name_of(view: type[View]) -> str:
    return f"{view.__name__.lower()}.sqlite3"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def earlier(folder: Path, view: type[View], version: int, count: int = 3) -> Path:
    """Write a file of an earlier version with `count` entries of Ann, the first of which is shared."""
    (folder / "source").mkdir(exist_ok=True)
    source = folder / "source" / NAME
    for number in range(count):
        if view is Library:
            Library(source, ANN).save(f"entry {number}", f"note {number}", FOUND)
        else:
            History(source).record_answer(LAYOUT, run(), ANN)
    if view is Library:
        Library(source, ANN).share("entry 0", True)
    else:
        History(source, ANN).share(History(source).entries()[-1].id, True)
    path = folder / name_of(view)
    table = "snapshots" if view is Library else "history"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA auto_vacuum = FULL")
        if (view, version) == (Library, 1):
            database.execute("PRAGMA journal_mode = WAL")
        database.executescript(TABLES[view, version])
        database.execute(f"PRAGMA application_id = {APPLICATIONS[view]}")
        database.execute(f"PRAGMA user_version = {version}")
        database.execute("ATTACH ? AS source", [str(source)])
        columns = ", ".join(row[1] for row in database.execute(f"PRAGMA main.table_info({table})"))
        database.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM source.{table}")
    for part in source.parent.iterdir():
        part.unlink()
    return path


@pytest.mark.parametrize(("view", "version"), TABLES)
def test_each_earlier_version_is_moved(tmp_path: Path, view: type[View], version: int) -> None:
    path = earlier(tmp_path, view, version)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        table = "snapshots" if view is Library else "history"
        before = [dict(row) for row in database.execute(f"SELECT * FROM {table} ORDER BY packed, 1")]
    for _ in range(2):  # the second use has nothing to move
        seen = view(tmp_path / NAME).entries()
        assert len(seen) == 3 and {path.name for path in tmp_path.iterdir()} == {"source", NAME}
    with contextlib.closing(sqlite3.connect(tmp_path / NAME)) as database:
        columns = ", ".join(name for name in before[0] if (view, name) != (Library, "id"))
        moved = database.execute(f"SELECT {columns} FROM {table} ORDER BY packed, 1").fetchall()
    assert sorted(moved) == sorted(
        tuple(value for name, value in row.items() if (view, name) != (Library, "id")) for row in before
    )
    has_owners = (view, version) != (Library, 1)
    assert {entry.owner for entry in seen} == {ANN.name if has_owners else None}
    assert len(view(tmp_path / NAME, ANN).entries()) == 3
    assert len(view(tmp_path / NAME, BEN).entries()) == (1 if has_owners else 3)
    if isinstance(history := view(tmp_path / NAME), History):
        assert all(history.run(entry.id) == run() for entry in seen)
        assert {entry.assessment is None for entry in seen} == {version == 1}
    else:
        assert Library(tmp_path / NAME).open("entry 1") == FOUND


def test_both_views_are_in_one_file(tmp_path: Path) -> None:
    earlier(tmp_path, Library, 3)
    earlier(tmp_path, History, 2)
    library, history = Library(tmp_path / NAME), History(tmp_path / NAME)
    assert len(library.entries()) == 3 and (tmp_path / "history.sqlite3").exists()
    assert len(history.entries()) == 3
    library.save("new", "", FOUND)
    history.record_answer(TPU, run(TPU), LOCAL)
    assert (len(library.entries()), len(history.entries())) == (4, 4)
    assert library.path == history.path and (tmp_path / NAME).stat().st_mode & 0o777 == 0o600


def test_an_earlier_file_that_comes_back_is_added(tmp_path: Path) -> None:
    """Such as from a backup, or written by an earlier version that still runs."""
    path = earlier(tmp_path, Library, 3)
    content = path.read_bytes()
    library = Library(tmp_path / NAME, ANN)
    library.entries()
    library.annotate("entry 1", "new note")
    library.save("entry 2", "another", dataclasses.replace(FOUND, arrays=()), replace=True)
    path.write_bytes(content)
    for _ in range(2):
        notes = {entry.name: entry.note for entry in library.entries()}
        (earlier_name,) = set(notes) - {"entry 0", "entry 1", "entry 2"}
        assert (notes["entry 1"], notes["entry 2"]) == ("new note", "another")
        assert earlier_name.startswith("entry 2 (2") and notes[earlier_name] == "note 2"
        assert library.open(earlier_name) == FOUND
        path.write_bytes(content)


def test_a_comparison_in_both_files_is_one_entry(tmp_path: Path) -> None:
    history = History(tmp_path / NAME)
    board = Board().pinned("one", run()).pinned("two", run(TPU))
    history.record_comparison(board, LOCAL)
    earlier(tmp_path, History, 2)
    with contextlib.closing(sqlite3.connect(tmp_path / "history.sqlite3")) as database:
        database.execute("ATTACH ? AS kept", [str(tmp_path / NAME)])
        columns = ", ".join(row[1] for row in database.execute("PRAGMA main.table_info(history)"))
        database.execute(f"INSERT INTO main.history ({columns}) SELECT {columns} FROM kept.history")
        database.commit()
    assert sorted(entry.kind for entry in history.entries()) == ["compare", "run", "run", "run"]


# --- Files that cannot be moved ---------------------------------------------------------------------

WITHOUT_ROOM = """
import resource, sys
from pathlib import Path
from inspector.core.errors import InvalidInput
from inspector.service.history import History
from inspector.service.library import Library
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)  # as on a full disk, no file can grow more
for view in (Library, History):
    try:
        view(Path(sys.argv[1])).entries()
    except InvalidInput as refused:
        print(refused)
"""


@pytest.mark.parametrize("room", [0, 30_000])  # for no table, and for tables without rows
def test_a_full_disk_leaves_the_earlier_files(tmp_path: Path, room: int) -> None:
    paths = [earlier(tmp_path, Library, 3, 30), earlier(tmp_path, History, 2, 30)]
    before = list(map(digest, paths))
    assert min(path.stat().st_size for path in paths) > room
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_ROOM, str(tmp_path / NAME), str(room)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    sentences = ended.stdout.splitlines()
    assert ended.stderr == "" and len(sentences) == 2 and all("full" in text for text in sentences)
    assert list(map(digest, paths)) == before
    assert [len(view(tmp_path / NAME).entries()) for view in (Library, History)] == [30, 30]


def test_a_read_only_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Library(tmp_path / NAME).entries()
    path = earlier(tmp_path, Library, 3)
    before, opened = digest(path), private_database.opened

    def read_only(path: Path, seconds: float, prepare: Callable[[sqlite3.Connection], object]):
        return opened(
            path,
            seconds,
            lambda database: (database.execute("PRAGMA query_only = ON"), prepare(database)),
        )

    with monkeypatch.context() as patch:
        patch.setattr(private_database, "opened", read_only)
        with pytest.raises(InvalidInput, match=r"library\.sqlite3 cannot .*read-only") as refused:
            Library(tmp_path / NAME).entries()
        assert not isinstance(refused.value, Unreadable) and digest(path) == before
    assert len(Library(tmp_path / NAME).entries()) == 3


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:8_192])


def overwrite(path: Path) -> None:
    path.write_bytes(b"nothing that SQLite knows " * 50)


def newer(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 4")


@pytest.mark.parametrize("damage", [cut, overwrite, newer])
@pytest.mark.parametrize("view", [Library, History])
def test_a_damaged_file_is_left_and_stops_only_its_view(
    tmp_path: Path,
    view: type[View],
    damage: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = History if view is Library else Library
    earlier(tmp_path, other, 2)
    path = earlier(tmp_path, view, 2, 30)
    damage(path)
    before = digest(path)
    for _ in range(2):
        with pytest.raises(Unreadable, match=path.name):
            view(tmp_path / NAME).entries()
        assert len(other(tmp_path / NAME).entries()) == 3
    with caplog.at_level(logging.WARNING):
        History(tmp_path / NAME).record_answer(LAYOUT, run(), LOCAL)
    assert len(caplog.records) == (view is History)
    assert digest(path) == before
    if view is Library:
        aside = Library(tmp_path / NAME).move_aside()
        assert digest(aside) == before and aside.name.startswith("library-aside-")
        assert Library(tmp_path / NAME).entries() == () and len(History(tmp_path / NAME).entries()) == 4
        with pytest.raises(InvalidInput):
            Library(tmp_path / NAME).move_aside()  # from a page that was drawn before


@pytest.mark.parametrize("view", [Library, History])
@pytest.mark.parametrize("application", [0, 0x12345678])
def test_the_file_of_another_program_is_left(tmp_path: Path, view: type[View], application: int) -> None:
    path = tmp_path / name_of(view)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(f"PRAGMA application_id = {application}")
        database.execute("PRAGMA user_version = 1")
        database.execute("CREATE TABLE theirs (x)")
    before = digest(path)
    with pytest.raises(InvalidInput, match="another program") as refused:
        view(tmp_path / NAME).entries()
    assert not isinstance(refused.value, Unreadable) and digest(path) == before


# --- Several at once --------------------------------------------------------------------------------

MOVE = """
import json, sys
from pathlib import Path
from inspector.service.history import History
from inspector.service.library import Library
print("ready", flush=True)
sys.stdin.readline()
views = Library(Path(sys.argv[1])), History(Path(sys.argv[1]))
print(json.dumps([sorted(map(str, view.entries())) for view in views]))
"""


def test_two_processes_move_at_once(tmp_path: Path) -> None:
    earlier(tmp_path, Library, 2, 15)
    earlier(tmp_path, History, 1, 15)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", MOVE, str(tmp_path / NAME)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    seen = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    assert seen[0] == seen[1] and [len(set(names)) for names in seen[0]] == [15, 15]
    assert {path.name for path in tmp_path.iterdir()} == {"source", NAME}


def test_many_threads_move_and_write(tmp_path: Path) -> None:
    earlier(tmp_path, Library, 1)
    problems: list[BaseException] = []

    def use(number: int) -> None:
        try:
            library = Library(tmp_path / NAME, ANN)
            assert "entry 2" in {entry.name for entry in library.entries()}
            library.save(f"new {number}", "", FOUND)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == [] and len(Library(tmp_path / NAME).entries()) == 11
    assert {path.name for path in tmp_path.iterdir()} == {"source", NAME}


ENDED = """
import os, sys
from pathlib import Path
from inspector.service.library import Library
move = Library._move_rows
def ended(*arguments):
    arguments[1].execute("PRAGMA cache_size = 1")  # so that both files are changed before the end
    move(*arguments)
    os._exit(9)
Library._move_rows = ended
Library(Path(sys.argv[1])).entries()
"""


def test_a_process_that_ends_while_it_moves_changes_nothing(tmp_path: Path) -> None:
    earlier(tmp_path, Library, 1, 30)
    command = [sys.executable, "-c", ENDED, str(tmp_path / NAME)]
    assert subprocess.run(command, cwd=ROOT).returncode == 9
    assert (tmp_path / "library.sqlite3").exists()
    assert {entry.name for entry in Library(tmp_path / NAME).entries()} == {
        f"entry {number}" for number in range(30)
    }
