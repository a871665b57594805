"""The verb `compare`: text, JSON, and one line per error."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from inspector.media.terminal import compare_verbs, main, render
from inspector.records import snapshot
from tests.compare.difference.layouts import planned
from tests.compare.difference.programs import collective, ran


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = []
    for name, found in (
        ("tensor", ran(planned(), collective("all-reduce", ("data",), 100))),
        ("data", planned(rules="batch=data")),
        ("wide", planned(mesh="4x2")),
    ):
        snapshot.write(found, tmp_path / f"{name}.json")
        paths.append(str(tmp_path / f"{name}.json"))
    return paths


def test_text_has_sentences_table_and_specs(files: list[str], capsys: pytest.CaptureFixture) -> None:
    assert main(["compare", *files, "--chip", "v5e", "--baseline", "2", "--all"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "tensor compared with data\n- " in printed.out and "wide compared with data\n" in printed.out
    assert "Rule hidden → model added" in printed.out
    assert "Train state per device" in printed.out and "better" in printed.out
    assert "more answers" in printed.out
    assert max(map(len, printed.out.splitlines()[-6:])) < 240


def test_json_holds_everything(files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "all.json"
    assert main(["compare", *files, "-o", str(out)]) == 0
    assert capsys.readouterr().out == ""
    plain = json.loads(out.read_text())
    assert (plain["format"], plain["version"], plain["baseline"]) == ("sharding-comparison", 1, 0)
    assert [one["name"] for one in plain["snapshots"]] == ["tensor", "data", "wide"]
    assert [(one["before"], one["after"]) for one in plain["differences"]] == [(0, 1), (0, 2)]
    for one in plain["differences"]:
        assert one["sentences"] and one["reservations"]
        assert all(row["changed"] and row.keys() >= {"path", "before", "after"} for row in one["arrays"])
    kernel = next(row for row in plain["differences"][0]["arrays"] if row["path"] == "params/DotReluDot_0/W2")
    assert kernel["before"]["spec"] == [["model"], None] and kernel["after"]["spec"] == [None, None]
    assert {len(row["answers"]) for row in plain["questions"]} == {3}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["0"], "at least two"),
        (["0", "1", "-o", "x.txt"], "must end in .html, .md, .json"),
        (["0", "1", "-o", "/dev/null/x.json"], "is not a folder"),
        (["0", "1", "--baseline", "3"], "--baseline is '3'"),
        (["0", "1", "--baseline", "²"], "--baseline is '²'"),
        (["0", "1", "--chip", "v99"], "chip is 'v99'"),
        (["0", "--board", "x"], "--board is 'x'"),
        (["0", "nothing.json"], "nothing.json cannot be read"),
        (["0", "broken.json"], "broken.json"),
    ],
)
def test_an_error_is_one_line(
    files: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: str,
) -> None:
    (tmp_path / "broken.json").write_text('{"format": "sharding-snap')
    given = [files[int(argument)] if argument in ("0", "1") else argument for argument in arguments]
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *given]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert words in line
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "broken.json", "data.json", "tensor.json", "wide.json",
    ]  # fmt: skip


def test_names_cannot_command_a_terminal() -> None:
    snapshot = planned()
    evil = dataclasses.replace(snapshot.arrays[3], path="params/\x1b[2J\r<img src=x onerror=…>\n=1+1")
    named = [("a\x1b", snapshot), ("b", dataclasses.replace(snapshot, arrays=(*snapshot.arrays, evil)))]
    printed = render.text(compare_verbs.blocks(named))
    assert "\x1b" not in printed and "\r" not in printed
    assert "<img src=x onerror=…>" in printed


def test_one_file_twice_has_two_names(files: list[str], capsys: pytest.CaptureFixture) -> None:
    assert main(["compare", files[1], files[1]]) == 0
    printed = capsys.readouterr().out
    assert "data (2)" in printed and "- No differences. " in printed
