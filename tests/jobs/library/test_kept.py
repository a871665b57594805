"""Tests that the library keeps its Snapshots, also with several writers."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector import layout as layouts
from inspector.compare.board import Board
from inspector.files import private_database
from inspector.jobs.library import LONGEST_NAME, LONGEST_NOTE, Library, NameTaken, Unreadable
from inspector.records import snapshot
from inspector.records.snapshot import Snapshot, Source
from inspector.text.errors import InvalidInput
from tests.figures import samples

FOUND = samples.snapshot()
HOSTILE = "<img src=x onerror=alert(1)> *b* =1+1 'x'; DROP TABLE snapshots; --"


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path / "saved.sqlite3")


def names(library: Library, search: str = "") -> list[str]:
    return [entry.name for entry in library.entries(search)]


def test_what_is_saved_is_opened_as_it_was(library: Library) -> None:
    entry = library.save(" base ", "one\ntwo ", FOUND)
    assert (entry.name, entry.note) == ("base", "one\ntwo")
    assert library.open("base") == FOUND
    assert library.text("base") == snapshot.dumps(FOUND)
    # 24 kernels of 4 MiB in four parts, and two numbers.
    assert (entry.state_bytes, entry.per_device) == (24 * 4 * 2**20 + 8, 24 * 2**20 + 8)
    assert (entry.source, entry.target, entry.mesh) == ("cpu", "cpu", "data 2 × model 4")
    assert (entry.model, entry.devices, entry.arrays) == (None, 8, len(FOUND.arrays))
    assert library.entry("base") == entry == library.entries()[0]
    assert library.bytes() == entry.bytes > 0


def test_a_name_is_taken_once_unless_it_is_to_be_replaced(library: Library) -> None:
    library.save("base", "first", FOUND)
    other = dataclasses.replace(FOUND, arrays=FOUND.arrays[:2])
    with pytest.raises(NameTaken, match="'base' already"):
        library.save("base", "second", other)
    assert library.open("base") == FOUND and library.entry("base").note == "first"
    library.save("base", "second", other, replace=True)
    assert library.open("base") == other and names(library) == ["base"]


def test_deleting_is_for_good_and_gives_the_room_back(library: Library) -> None:
    long = dataclasses.replace(FOUND, extra={"noise": os.urandom(300_000).hex()})
    library.save("long", "", long)
    library.save("short", "", FOUND)
    library.delete("long")
    assert names(library) == ["short"]
    for use in (library.delete, library.open, library.text, library.entry):
        with pytest.raises(InvalidInput, match="no entry named 'long'"):
            use("long")
    with sqlite3.connect(library.path) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert library.path.stat().st_size < 100_000


def test_search_finds_every_word_in_any_field_whatever_its_case(library: Library) -> None:
    laid_out = dataclasses.replace(FOUND, layout={"model": "Transformer"})
    tpu = dataclasses.replace(FOUND.source, kind="tpu", target="tpu:v5p:4x4x4")
    library.save("Größe", "for the REVIEW", FOUND)
    library.save("second", "", laid_out)
    library.save("third", "100% _sure_", dataclasses.replace(FOUND, source=tpu))
    assert names(library, "GRÖSSE") == ["Größe"]
    assert names(library, "review  größe") == ["Größe"] and names(library, "review second") == []
    assert names(library, "transformer") == ["second"]
    assert names(library, "V5P") == ["third"] and names(library, "%") == ["third"]
    assert names(library, "data model") == ["third", "second", "Größe"]  # the newest first
    assert names(library, " ".join(["model"] * 5000)) == names(library)
    library.annotate("second", "now with words")
    assert names(library, "words transformer") == ["second"]
    assert library.open("second") == laid_out


@given(name=st.text(max_size=130), note=st.text(max_size=200))
def test_any_text_is_kept_as_it_is_or_refused(tmp_path_factory, name: str, note: str) -> None:
    library = Library(tmp_path_factory.getbasetemp() / "texts.sqlite3")
    try:
        entry = library.save(name, note, FOUND, replace=True)
    except InvalidInput as refused:
        assert (
            not name.strip().isprintable()
            or len(name) > LONGEST_NAME
            or not name.strip()
            or ("note" in str(refused))
        )
        return
    assert (entry.name, entry.note) == (name.strip(), note.strip())
    assert library.open(entry.name) == FOUND
    library.delete(entry.name)


def test_hostile_texts_are_texts(library: Library) -> None:
    library.save(HOSTILE, HOSTILE, FOUND)
    assert names(library, "drop TABLE") == [HOSTILE] and library.entry(HOSTILE).note == HOSTILE


def test_limits_are_checked(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("", "  ", "a\nb", "\x1b", "a" * (LONGEST_NAME + 1), "\ud800"):
        with pytest.raises(InvalidInput, match="name is "):
            library.save(name, "", FOUND)
    for note in ("a" * (LONGEST_NOTE + 1), "\ud800", "\0"):
        with pytest.raises(InvalidInput, match="note h"):
            library.save("base", note, FOUND)
    with pytest.raises(InvalidInput, match="no entry"):
        library.delete("\ud800")
    monkeypatch.setattr("inspector.jobs.library.MOST_BYTES", 100)
    with pytest.raises(InvalidInput, match="at most 100 B of one"):
        library.save("base", "", FOUND)
    assert names(library) == []


# --- Several at once --------------------------------------------------------------------------------

WRITER = """
import sys
from pathlib import Path
from inspector.records import snapshot
from inspector.jobs.library import Library
path, found, who = sys.argv[1:]
found = snapshot.read(found)
print("ready", flush=True)
sys.stdin.readline()
for number in range(25):
    Library(Path(path)).save(f"{who}-{number}", "", found)
    Library(Path(path)).save("shared", f"{who}-{number}", found, replace=True)
    if number % 2:
        Library(Path(path)).delete(f"{who}-{number - 1}")
"""


def test_two_processes_write_at_once_from_the_first_moment_on(library: Library, tmp_path: Path) -> None:
    snapshot.write(FOUND, tmp_path / "found.json")
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(library.path), str(tmp_path / "found.json"), who],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for who in ("a", "b")
    ]  # fmt: skip
    try:
        for writer in writers:
            assert writer.stdout.readline() == "ready\n"
        assert not library.path.exists()  # both are to make it
        for writer in writers:
            writer.stdin.write("go\n")
            writer.stdin.flush()
        while any(writer.poll() is None for writer in writers):
            for entry in library.entries():  # a reader sees whole entries all the while
                assert entry.arrays == len(FOUND.arrays)
        for writer in writers:
            assert writer.communicate()[1] == "" and writer.returncode == 0
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    expected = {f"{who}-{number}" for who in "ab" for number in (*range(1, 25, 2), 24)}
    assert set(names(library)) == expected | {"shared"}
    assert library.entry("shared").note in ("a-24", "b-24")
    assert library.open("a-24") == FOUND


def test_threads_of_one_server_use_it_at_once(library: Library) -> None:
    problems = []

    def work(number: int) -> None:
        try:
            for turn in range(5):
                library.save(f"{number}-{turn}", "", FOUND)
                library.open(f"{number}-{turn}")
        except InvalidInput as refused:
            problems.append(str(refused))

    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == [] and len(names(library)) == 20


# --- Files that are not as they should be -----------------------------------------------------------


def test_a_file_damaged_in_the_middle_is_refused_with_a_sentence(library: Library) -> None:
    for number in range(20):
        library.save(f"{number}", "", dataclasses.replace(FOUND, extra={"n": os.urandom(9000).hex()}))
    with sqlite3.connect(library.path) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = library.path.read_bytes()
    library.path.write_bytes(content[:4096] + b"\xff" * 40_000 + content[44_096:])
    with pytest.raises(InvalidInput):
        for name in names(library):
            library.open(name)


@pytest.mark.parametrize("application", [0, 0x12345678])
def test_another_programs_database_is_not_touched(library: Library, application: int) -> None:
    with sqlite3.connect(library.path) as database:
        database.execute(f"PRAGMA application_id = {application}")
        database.execute("CREATE TABLE theirs (x)")
    content = library.path.read_bytes()
    with pytest.raises(InvalidInput, match=f"another program .*{private_database.VARIABLE}") as no:
        library.save("a", "", FOUND)
    assert not isinstance(no.value, Unreadable)  # nothing is to be moved
    assert library.path.read_bytes() == content


def test_a_damaged_snapshot_is_refused_and_the_others_are_kept(library: Library) -> None:
    library.save("a", "", FOUND)
    library.save("b", "", FOUND)
    with sqlite3.connect(library.path) as database:
        database.execute("UPDATE snapshots SET packed = substr(packed, 1, 50) WHERE name = 'a'")
    with pytest.raises(InvalidInput, match="'a' in the library is damaged"):
        library.open("a")
    assert library.open("b") == FOUND and set(names(library)) == {"a", "b"}


def test_where_no_file_can_be_the_sentence_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "saved.sqlite3", tmp_path):
        with pytest.raises(InvalidInput, match="cannot be used") as refused:
            Library(path).entries()
        assert not isinstance(refused.value, Unreadable)


def test_a_library_in_use_is_waited_for_and_then_told(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.save("a", "", FOUND)
    monkeypatch.setattr("inspector.jobs.library._BUSY_SECONDS", 0.05)
    other = sqlite3.connect(library.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(InvalidInput, match="in use by another process"):
        library.save("b", "", FOUND)
    assert names(library) == ["a"]  # who reads need not wait
    other.execute("COMMIT")
    other.close()
    library.save("b", "", FOUND)


WITHOUT_ROOM = """
import resource, sys
from pathlib import Path
from inspector.text.errors import InvalidInput
from inspector.jobs.library import Library
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # as on a full disk, no file can grow
library = Library(Path(sys.argv[1]))
print(len(library.entries()), len(library.text("a")))
try:
    library.annotate("a", "new")
except InvalidInput as refused:
    print(refused)
"""


@pytest.mark.parametrize("was_wal", [False, True])
def test_entries_can_be_read_without_room_on_the_disk(library: Library, was_wal: bool) -> None:
    library.save("a", "", FOUND)
    if was_wal:  # a file of an earlier version is changed when there is room
        with contextlib.closing(sqlite3.connect(library.path)) as database:
            database.execute("PRAGMA journal_mode = WAL")
        library.entries()
    said = subprocess.run(
        [sys.executable, "-c", WITHOUT_ROOM, str(library.path)], capture_output=True, text=True
    )
    assert said.stderr == ""
    counts, refusal = said.stdout.splitlines()
    assert counts == f"1 {len(library.text('a'))}"
    assert str(library.path) in refusal and "full" in refusal
    assert library.entry("a").note == ""


def test_the_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(private_database.VARIABLE, os.fspath(tmp_path / "here"))
    Library().save("a", "", FOUND)
    assert (tmp_path / "here" / "saved.sqlite3").exists()


def test_a_snapshot_of_any_form_is_kept(library: Library) -> None:
    bare = Snapshot(FOUND.source, {"model": 3}, None, ())
    entry = library.save("bare", "", bare)
    assert (entry.mesh, entry.devices, entry.model) == (None, None, None)
    assert library.open("bare") == bare


def test_facts_in_which_the_layouts_of_a_comparison_differ_are_listed(
    library: Library,
) -> None:
    """The mesh of a Snapshot without snapshot is unknown; a comparison may have too many to list."""
    snapshot = samples.snapshot(samples.mesh(data=2, model=2))
    other = dataclasses.replace(snapshot, mesh=samples.mesh(data=4), arrays=())
    board = library.save("both", "", Board().pinned("a", snapshot).pinned("b", other))
    bare = library.save("bare", "", dataclasses.replace(snapshot, mesh=None, arrays=()))
    assert (board.text_of(board.mesh), bare.text_of(bare.mesh)) == ("data 2 × model 2, data 4", "unknown")
    assert board.text_of(None) == "–"
    alone = library.save("alone", "", Board().pinned("a", snapshot))
    assert alone.text_of(alone.mesh) == "data 2 × model 2"
    target = dataclasses.replace(snapshot.source, target=None)
    empty = library.save("none", "", Board().pinned("a", dataclasses.replace(snapshot, source=target)))
    assert empty.source_text == "comparison"


def test_a_plan_has_the_target_of_its_layout(library: Library) -> None:
    on_tpus = layouts.parse({"target": "tpu:v5e:4x4", "mesh": "4x4"}).unwrap().to_json()
    planned = dataclasses.replace(FOUND, source=Source("plan", "plan", "2026-01-01"), layout=on_tpus)
    assert library.save("planned", "", planned).target == "tpu:v5e:4x4"
    emulated = dataclasses.replace(planned, source=Source("cpu", "cpu", "2026-01-01"))
    both = library.save("both", "", Board().pinned("a", planned).pinned("b", emulated))
    assert both.target == "tpu:v5e:4x4, cpu"
