"""Answers without options: what is asked for next, and what a prediction needs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from inspector.answers.program_run import next_command
from inspector.media.terminal import main
from inspector.records import program_run, snapshot
from inspector.records.program_run import CompiledRecord, ProgramRun
from inspector.records.snapshot import (
    Array,
    Collective,
    Mesh,
    MeshAxis,
    OpenChoice,
    Program,
    Snapshot,
    Source,
)

MESH = Mesh((MeshAxis("data", 8),), tuple(range(8)))
SMALL = Collective(
    "all-reduce", False, "all-reduce.1", "main", 1, False, ("data",), 8, 1, 64, 112,
    op_name="jit(step)/reduce_sum",
)  # fmt: skip
LARGE = replace(SMALL, name="all-reduce.2", wire_bytes_per_device=4096)
LOOP = OpenChoice("while.3", "loop", source="solve.py:9")
FOUND = Snapshot(
    Source("capture", None, "2026-01-01"),
    None,
    MESH,
    (
        Array(
            "w",
            "params",
            (64, 8),
            "float32",
            spec=(("data",), None),
            bytes=2048,
            bytes_per_device=256,
        ),
        Array(
            "x",
            "other",
            (64, 64),
            "float32",
            spec=(None, None),
            bytes=16384,
            bytes_per_device=16384,
        ),
    ),
    (Program("solve", collectives=(SMALL, LARGE), stage="compiled", open_choices=(LOOP,)),),
)
RUN = ProgramRun(
    ("-m", "pack.train", "--flag"), "2026-01-01", ended="exit 0", seconds=1.0,
    programs=(CompiledRecord("f", "f", "f at a.py:1", "a.json", 0.0, None, None, 0.0, 1, 8),),
)  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "found.json"
    snapshot.write(FOUND, path)
    return str(path)


def test_explain_answers_for_the_largest(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert not main(["explain", file, "--json"])
    plain = json.loads(capsys.readouterr().out)
    assert (plain["collective"]["name"], plain["array"]["array"]) == ("all-reduce.2", "x")


def test_predict_without_a_chip_lists_what_it_needs(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert not main(["predict", file, "--json"])
    plain = json.loads(capsys.readouterr().out)
    assert plain["seconds"] is None
    assert [row["option"] for row in plain["needs"]] == ["--chip NAME", "--trips solve.py:9=N"]


def test_the_next_command_runs_the_same_program() -> None:
    command = next_command(RUN)
    assert "sharding-inspector same --devices 8 -m pack.train --flag" in str(command)
    # Programs on meshes of half of the devices need all of them.
    assert "--devices 16 -m" in str(next_command(RUN, placed_on=16))
    for other in (
        replace(RUN, ended="exit 1"),
        replace(RUN, programs=()),
        replace(RUN, target="tpu:v5e:2x4"),
    ):
        assert next_command(other) is None


def test_programs_of_one_name_have_their_lines() -> None:
    named = [("f", "a.py:1"), ("f", "a.py:9"), ("f", "a.py:1"), ("g", "b.py:1"), ("g", "b.py:1")]
    assert program_run.unique_names(named) == [
        "f at a.py:1", "f at a.py:9", "f at a.py:1 (2)", "g", "g (2)",
    ]  # fmt: skip
