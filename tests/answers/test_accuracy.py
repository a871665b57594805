"""Published runs: the introduction is true for compiled and for other runs, and compiled ones come first."""

from __future__ import annotations

import pytest

from inspector.answers.accuracy import introduction, runs, section
from inspector.answers.section import Table, Text, plain
from inspector.compare.measured import accuracy
from inspector.compare.measured.accuracy import AccuracyRow
from inspector.machines import hardware
from inspector.prediction import predicted

COMPILED = AccuracyRow("a", "v5e", "m", 8, 1.0, predicted=1.1, left_out=1.2, low=0.9, high=1.5)
PROPAGATED = AccuracyRow("b", "v5e", "m", 8, 1.0, before_compile=0.8)


@pytest.mark.parametrize(
    ("rows", "counts"),
    [
        ((COMPILED,), ("1 published run ",)),
        ((COMPILED, PROPAGATED), ("1 published run ", "1 more run, ")),
        ((PROPAGATED,) * 2, ("0 published runs ", "2 more runs, ")),
    ],
)
def test_runs_with_an_unknown_time_are_counted_apart(
    rows: tuple[AccuracyRow, ...], counts: tuple[str, ...]
) -> None:
    said = introduction(rows)
    assert all(count in said for count in counts)
    assert ("unknown" in said) == (PROPAGATED in rows)


def test_runs_of_a_file_are_not_said_to_be_left_out() -> None:
    own = AccuracyRow("c", "v5e", "m", 8, 1.0, predicted=1.1)
    assert "without the runs" in introduction([COMPILED])
    assert "without the runs" not in introduction([COMPILED, own])


def test_the_counts_are_those_of_the_shipped_table() -> None:
    rows = [row for row in accuracy.shipped().rows if row.judged or row.before_compile]
    known = [row for row in rows if row.low]
    assert f"{len(known)} published runs " in introduction(rows)
    assert f"{len(rows) - len(known)} more runs, " in introduction(rows)


def test_runs_of_compiled_programs_come_first_in_their_order() -> None:
    other = AccuracyRow("d", "v5e", "m", 8, 1.0, predicted=1.1)
    table = runs([PROPAGATED, COMPILED, other])
    assert [row[0] for row in table.rows] == ["a", "d", "b"]


@pytest.mark.parametrize("name", ["v5e", "h100", "v3", "gb200"])
def test_the_runs_on_a_chip(name: str) -> None:
    shipped, chip = accuracy.shipped(), hardware.chip(name)
    rows = [row for row in shipped.rows if row.chip == name]
    reproduced = [row for row in rows if row.error is not None or row.before_compile]
    blocks = section(shipped, chip=chip).blocks
    tables = {block.key: block for block in blocks if isinstance(block, Table)}
    listed = [row[0] for row in tables["accuracy_runs"].rows] if reproduced else []
    assert sorted(listed) == sorted(row.id for row in reproduced)
    said = " ".join(plain(block.parts) for block in blocks if isinstance(block, Text))
    compiled = [row for row in shipped.rows if row.left_out]
    enough = sum(row.chip == name for row in compiled) >= predicted.ENOUGH_RUNS
    # Too few runs on a chip give its predictions no interval; those of the table are judged by all.
    assert (f"judged by {len(compiled)} runs on all chips" in said) == (not enough)
    assert ("have no interval" in said) == (not enough)
    assert (f"No published run on {chip.title}" in said) == (not reproduced)
