"""The table of a recorded program's compiles."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inspector.answers import program_run, screen
from inspector.answers.catalogue import Subject
from inspector.answers.section import cell_text
from inspector.records.program_run import CompiledRecord, CompileReason, ProgramRun
from tests.compare import glances


def record(*reasons: CompileReason) -> CompiledRecord:
    return CompiledRecord(
        "step", "step", "step at /home/me/train.py:3", "programs/1.json", 1.0, 0.25, 0.5, 2.0, 4, 8,
        reasons=reasons,
    )  # fmt: skip


def test_equal_differences_are_one_reason() -> None:
    same = [CompileReason("sharding", name, "P()", "P('a')") for name in ("x", "y", "z")]
    run = ProgramRun(("train.py",), "2026", programs=(record(), record(*same, CompileReason("dtype", "x"))))
    table = program_run.table(run)
    headings = [column.heading for column in table.columns]
    rows = [dict(zip(headings, row, strict=True)) for row in table.rows]
    assert [row["Lower"] for row in rows] == [0.75, 0.75]
    reason = cell_text(rows[1]["Reason"], "text")
    assert reason.count("sharding of") == 1 and "2 other arguments" in reason
    facts = {fact.label: fact.value for fact in program_run.facts(run).facts}
    assert (facts["Compiled programs"], facts["Compiled again"]) == ("2", "1")


def test_the_home_folder_is_not_part_of_the_source() -> None:
    (row,) = program_run.table(ProgramRun((), "2026", programs=(record(),))).rows
    assert cell_text(row[1], "code") == "train.py:3"


@pytest.mark.parametrize("fingerprints", [("a", "b"), ("a", "a"), ("a",)])
def test_the_first_screen_has_the_reason_of_a_second_compile(fingerprints: tuple[str, ...]) -> None:
    """Also if both compiles have equal instructions, so that there is one program."""
    planned = glances.planned()
    step = planned.programs[0]
    programs = tuple(replace(step, name=f"step {at}", fingerprint=one) for at, one in enumerate(fingerprints))
    compiles = (record(), record(CompileReason("dtype", "x", "float32", "bfloat16")))[: len(programs)]
    run = ProgramRun(("train.py",), "2026", programs=compiles)
    about = Subject.of(replace(planned, layout=None, programs=programs), None, run)
    assert ("compiled again" in str(screen.of_snapshot(about))) == (len(programs) == 2)
