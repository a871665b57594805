"""A damaged row of the library is shown or explained, and can be deleted."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given

from inspector import layout as layouts
from inspector.jobs.library import Library
from inspector.text import printable
from tests.hostile import whole
from tests.hostile.damage import FLOATS, INTEGERS, TEXTS, damaged_text
from tests.hostile.test_damaged_input import accepted, examples, randoms

LAYOUT = layouts.parse({}).unwrap()
WHOLE = whole.snapshot()
VALUES = (
    *TEXTS, *FLOATS, *(number for number in INTEGERS if abs(number) < 2**63), None, float("inf"), b"\xff\x00",
    "{}", "[]", '{"layout": 1}', '{"layout": {}}', '{"board": {"pin": 1}}', '{"board": {"pin": ["A"]}}',
    '{"layout": NaN}', "run", "compile", "search", "compare", "2026-13-01", "[" * 5000,
)  # fmt: skip


def damage(path: Path, table: str, draw: random.Random) -> None:
    """Write one to three values that SQLite accepts into random columns of random rows."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.text_factory = lambda raw: raw.decode("utf-8", "replace")
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        for _ in range(draw.choice((1, 1, 2, 3))):
            column, value = draw.choice(columns), draw.choice(VALUES)
            before = database.execute(f"SELECT {column} FROM {table} LIMIT 1").fetchone()[0]
            if isinstance(before, str) and draw.random() < 0.5:
                value = damaged_text(before, draw)
            new = "CAST(x'61ff' AS TEXT)" if draw.random() < 0.1 else "?"
            with contextlib.suppress(sqlite3.Error, UnicodeEncodeError):
                database.execute(f"UPDATE {table} SET {column} = {new}", [value] if new == "?" else [])


@examples(30)
@given(randoms)
def test_the_library(tmp_path_factory: pytest.TempPathFactory, draw: random.Random) -> None:
    kept = Library(tmp_path_factory.mktemp("kept") / "saved.sqlite3")
    kept.save("a", "note", WHOLE)
    damage(kept.path, "snapshots", draw)
    for entry in accepted(kept.entries) or ():
        printable.one_line(f"{entry.name} {entry.saved} {entry.source}")
        accepted(lambda entry=entry: kept.open(entry.name))
        accepted(lambda entry=entry: kept.board(entry.name))
        accepted(lambda entry=entry: kept.rename(entry.name, "b"))
    accepted(lambda: kept.delete("b"))
