"""The sections of collectives: sums by mesh axes, unknown values, filters."""

from __future__ import annotations

from inspector.core.snapshot import Program, Snapshot, Source
from inspector.media.terminal import render
from inspector.sections import collectives
from inspector.sections.section import Section, Table
from tests.core.test_collectives import collective

PROGRAM = Program(
    "train_step",
    collectives=(
        collective("all-reduce", ("data", "model"), 12, 2048),
        collective("all-gather", None, None, 5),
        collective("all-to-all", (), 1, 0, conditional=True),
    ),
)
SNAPSHOT = Snapshot(Source("cpu", "cpu", "2026-01-01"), None, None, (), (Program("apply"), PROGRAM))


def test_rows_by_mesh_axes_keep_unknown_values() -> None:
    (table,) = [
        block
        for block in collectives.of_program(PROGRAM, SNAPSHOT, figures=False)
        if isinstance(block, Table)
    ]
    assert table.rows == (
        ("data × model", "all-reduce", 1, 12, 24 * 1024, 24 * 1024, "no"),
        ("no axis", "all-to-all", 1, 1, 0, 0, "yes"),
        ("unknown axes", "all-gather", 1, None, None, None, "no"),
    )
    assert "unknown axes  all-gather" in render.text([table])


def test_the_program_of_a_step_comes_first() -> None:
    section = collectives.section(SNAPSHOT)
    assert [one.heading for one in section.blocks if isinstance(one, Section)] == [
        "Train step",
        "Inference",
    ]


def test_filters_keep_any_match_and_put_unknown_traffic_last() -> None:
    each = PROGRAM.collectives or ()
    assert [one.op for one in collectives.matching(each)] == [
        "all-reduce",
        "all-to-all",
        "all-gather",
    ]
    assert [one.op for one in collectives.matching(each, ["data"])] == ["all-reduce"]
    assert {one.op for one in collectives.matching(each, ["unknown"])} == {
        "all-gather",
        "all-to-all",
    }
