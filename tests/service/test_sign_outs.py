"""Which sign-ins have ended: after a restart, in several servers, beyond the bound, and without a disk."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from inspector.service.sign_outs import KEPT_SECONDS, SignIn, SignOuts


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "sign_outs.sqlite3"


def rows(path: Path) -> list[tuple[str, int]]:
    with sqlite3.connect(path) as database:
        result = database.execute("SELECT sign_in, issued FROM sign_outs ORDER BY issued").fetchall()
    database.close()
    return result


def test_other_servers_and_later_ones_know_what_has_ended(path: Path) -> None:
    here, there = SignOuts(path), SignOuts(path)
    ended, other = SignIn("a", 1), SignIn("b", 1)
    assert not here.has(ended) and not path.exists(), "a question creates no file"
    here.add(ended)
    here.add(ended)
    assert [sign_outs.has(ended) for sign_outs in (here, there, SignOuts(path))] == [True] * 3
    assert [sign_outs.has(other) for sign_outs in (here, there, SignOuts(path))] == [False] * 3
    there.add(other)
    assert here.has(other)
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_entry_is_deleted_when_its_cookie_has_expired(path: Path) -> None:
    kept = SignOuts(path)
    kept.add(SignIn("old", 1000), now=1000)
    kept.add(SignIn("new", 1001), now=1000 + KEPT_SECONDS)
    assert rows(path) == [("old", 1000), ("new", 1001)]
    kept.add(SignIn("newer", 1002), now=1001 + KEPT_SECONDS)
    assert rows(path) == [("new", 1001), ("newer", 1002)]


def test_a_full_list_ends_all_sign_ins_of_the_time_of_those_that_it_forgets(path: Path) -> None:
    kept = SignOuts(path, most=20)
    for number in range(100):
        kept.add(SignIn(f"s{number}", number), now=1000)
        assert len(rows(path)) <= 21
    fresh = SignOuts(path, most=20)
    assert all(fresh.has(SignIn(f"s{number}", number)) for number in range(100))
    limit = dict(rows(path))[""]
    assert 80 - 3 <= limit <= 80 + 3
    assert fresh.has(SignIn("never signed out", limit))
    assert not fresh.has(SignIn("never signed out", limit + 1))


def test_without_a_usable_file_a_sign_out_holds_in_its_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = tmp_path / "damaged.sqlite3"
    damaged.write_bytes(b"not a database" * 100)
    for path in (damaged, tmp_path / "damaged.sqlite3" / "inside.sqlite3"):
        kept = SignOuts(path)
        kept.add(SignIn("a", 1))
        assert kept.has(SignIn("a", 1)) and not kept.has(SignIn("b", 2))
        assert "not kept" in caplog.text
        caplog.clear()
    assert damaged.read_bytes() == b"not a database" * 100


def test_many_sign_out_at_once(path: Path) -> None:
    servers = [SignOuts(path) for _ in range(4)]
    threads = [
        threading.Thread(target=servers[number % 4].add, args=(SignIn(f"s{number}", number),))
        for number in range(24)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(server.has(SignIn(f"s{number}", number)) for server in servers for number in range(24))
