"""CompileCache outlive the process that found them, stay within their bound, and never do harm."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from inspector.jobs import compile_cache
from inspector.jobs.compile_cache import CompileCache, Usage


@pytest.fixture
def kept(tmp_path: Path) -> CompileCache:
    return CompileCache(tmp_path / "compiled.sqlite3", most_bytes=10_000)


def noise(size: int, seed: int) -> str:
    """Text that packs to about half of it."""
    return random.Random(seed).randbytes(size // 2).hex()


def test_an_answer_is_kept_replaced_and_let_go_of(kept: CompileCache) -> None:
    assert kept.get("a") is None and kept.usage() == Usage(0, 0)
    kept.put("a", "ö" * 100)
    kept.put("b", "")
    assert kept.get("a") == "ö" * 100 and kept.get("b") == ""
    kept.put("a", "new")
    assert kept.get("a") == "new" and kept.usage().count == 2
    kept.clear()
    assert kept.get("a") is None and kept.usage() == Usage(0, 0)


def test_another_process_reads_what_this_one_kept(kept: CompileCache) -> None:
    kept.put("a", "from here")
    code = (
        "import sys; from pathlib import Path; from inspector.jobs.compile_cache import CompileCache;"
        "kept = CompileCache(Path(sys.argv[1])); print(kept.get('a')); kept.put('b', 'from there')"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, str(kept.path)], capture_output=True, text=True, check=True
    )
    assert said.stdout == "from here\n" and kept.get("b") == "from there"


def test_what_was_asked_longest_ago_goes_first(kept: CompileCache) -> None:
    for number in range(8):
        kept.put(str(number), noise(4_000, number))
        kept.get("0")  # asked again and again, it stays
    assert kept.usage().bytes <= 10_000
    assert kept.get("0") is not None and kept.get("7") is not None
    assert kept.get("1") is None and kept.get("2") is None


def test_a_result_above_the_limit_is_not_kept(
    kept: CompileCache,
) -> None:
    kept.put("small", "s")
    kept.put("large", noise(40_000, 1))
    assert kept.get("large") is None and kept.get("small") == "s"


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 100, b"SQLite format 3\0" * 9])
def test_a_damaged_file_is_begun_anew(kept: CompileCache, content: bytes) -> None:
    kept.path.write_bytes(content)
    assert kept.get("a") is None
    kept.put("a", "again")
    assert kept.get("a") == "again"


def test_a_packed_answer_that_is_damaged_is_not_given(kept: CompileCache) -> None:
    kept.put("a", "whole")
    with sqlite3.connect(kept.path) as database:
        database.execute("UPDATE snapshots SET packed = x'00'")
    assert kept.get("a") is None


def test_a_file_of_another_form_is_begun_anew(kept: CompileCache) -> None:
    kept.put("a", "old")
    with sqlite3.connect(kept.path) as database:
        database.execute("PRAGMA user_version = 99")
    assert kept.get("a") is None
    kept.put("a", "new")
    assert kept.get("a") == "new"


def test_where_nothing_can_be_kept_every_question_is_new(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    nowhere = CompileCache(tmp_path / "file" / "compiled.sqlite3")
    nowhere.put("a", "text")
    assert nowhere.get("a") is None and nowhere.usage() == Usage(0, 0)
    nowhere.clear()


WITHOUT_ROOM = """
import resource, sys
from pathlib import Path
from inspector.jobs.compile_cache import CompileCache
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # as on a full disk, no file can grow
kept = CompileCache(Path(sys.argv[1]))
for number in range(3):
    kept.put(f"new {number}", "text")
print(kept.get("a"), kept.get("new 1"))
"""


def test_without_room_on_the_disk_it_is_read_and_one_warning_is_logged(kept: CompileCache) -> None:
    kept.put("a", "text")
    said = subprocess.run(
        [sys.executable, "-c", WITHOUT_ROOM, str(kept.path)], capture_output=True, text=True
    )
    assert said.stdout == "text None\n"
    (warning,) = said.stderr.splitlines()
    assert str(kept.path) in warning and "full" in warning


def test_many_threads_keep_and_ask_at_once(kept: CompileCache) -> None:
    problems = []

    def work(number: int) -> None:
        for turn in range(15):
            kept.put(f"{number}", f"{number}-{turn}")
            for other in range(6):
                kept_snapshot = kept.get(f"{other}")
                if kept_snapshot is not None and not kept_snapshot.startswith(f"{other}-"):
                    problems.append(kept_snapshot)

    threads = [threading.Thread(target=work, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert [kept.get(f"{number}") for number in range(6)] == [f"{n}-14" for n in range(6)]


def test_keys_differ_by_question_and_by_code(monkeypatch: pytest.MonkeyPatch) -> None:
    key = compile_cache.key_of({"layout": {"mesh": "2x4"}, "target": "tpu:v5p:2x2x1"})
    assert key == compile_cache.key_of({"target": "tpu:v5p:2x2x1", "layout": {"mesh": "2x4"}})
    assert key != compile_cache.key_of({"layout": {"mesh": "4x2"}, "target": "tpu:v5p:2x2x1"})
    monkeypatch.setattr(compile_cache, "code", lambda: "other")
    assert key != compile_cache.key_of({"layout": {"mesh": "2x4"}, "target": "tpu:v5p:2x2x1"})


def test_the_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(compile_cache.FOLDER_VARIABLE, os.fspath(tmp_path / "here"))
    CompileCache().put("a", "text")
    assert (tmp_path / "here" / "compiled.sqlite3").exists()


def test_only_the_user_of_this_machine_reads_the_answers(tmp_path):
    cache = CompileCache(tmp_path / "cache" / "compiled.sqlite3")
    cache.put("key", "text")
    assert cache.get("key") == "text"
    assert cache.path.parent.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in cache.path.parent.iterdir()} == {0o600}
