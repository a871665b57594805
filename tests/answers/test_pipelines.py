"""Pipelines in sections and in JSON: exact, at least, or unknown until the trip count is stated."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inspector.answers import pipelines
from inspector.compiled.assumed import Assumed, assume
from inspector.media.terminal import main
from inspector.records.snapshot import OpenChoice, Pipeline, Program, Snapshot, Source, write

KNOWN = Pipeline(4, 8, "collective-permute.1", ("stage",), "train.py:31", flops=6e9)
OPEN = replace(KNOWN, microbatches=None, loop="while.3", stack=8, flops=None)
PROGRAM = Program("step", flops_per_device=8e9, pipelines=(KNOWN, replace(KNOWN, backward=True)))
LOOP = OpenChoice("while.3", "loop", 0, 0, None, "train.py:30", None)


def printed(tmp_path: Path, capsys: pytest.CaptureFixture[str], program: Program, *verb: str) -> str:
    file = tmp_path / "snapshot.json"
    write(Snapshot(Source("hlo", None, "2026-01-01"), None, None, (), (program,)), file)
    assert main([verb[0], str(file), *verb[1:]]) == 0
    return capsys.readouterr().out


def test_equal_pipelines_have_one_sentence() -> None:
    (said,) = pipelines.sentences(PROGRAM, PROGRAM.pipelines or ())
    assert re.findall(r"\d+", said) == ["4", "31", "8", "11", "3", "27"]


@pytest.mark.parametrize("verb", ["show", "predict"])
def test_the_command_line_shows_the_schedule(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = printed(tmp_path, capsys, PROGRAM, verb, "--all")
    assert "0 1 2 3 4 5 6 7 . . ." in out
    assert "7 6 5 4 3 2 1 0 . . ." in out
    rows: list[dict[str, Any]] = json.loads(printed(tmp_path, capsys, PROGRAM, verb, "--json"))["pipelines"]
    assert [(row["stages"], row["iterations"], row["bubble"], row["bubble_is"]) for row in rows] == [
        (4, 11, 3 / 11, "exact")
    ] * 2


def test_the_bubble_of_an_open_loop_follows_from_its_trip_count() -> None:
    program = replace(PROGRAM, pipelines=(OPEN,), open_choices=(LOOP,))
    assert [row["bubble_is"] for row in pipelines.plain(program)] == ["unknown"]
    assert "--trips train.py:30=N" in pipelines.sentences(program, (OPEN,))[0]
    for trips, microbatches, repeats, iterations in ((11, 8, 1, 11), (19, 8, 2, 19), (12, None, 1, 12)):
        (stated,) = assume(program, Assumed({"train.py:30": trips})).pipelines or ()
        assert (stated.microbatches, stated.repeats, stated.iterations) == (microbatches, repeats, iterations)
        assert stated.bubble == 3 / iterations


def test_a_bound_is_at_least() -> None:
    bound = replace(KNOWN, microbatches=None, trips=11)
    (row,) = pipelines.plain(replace(PROGRAM, pipelines=(bound,)))
    assert (row["bubble"], row["bubble_is"]) == (3 / 11, "at least")
