"""`explain --collective` on a plan: the collective, its sources and its rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inspector.media.terminal import main


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    fields = ["--mesh", "8", "--axes", "fsdp", "--rules", "batch=fsdp,embed=fsdp"]
    assert main(["inspect", "--target", "plan", *fields, "--set", "depth=64", "-o", str(path)]) == 0
    return path


def collectives(plan: Path) -> list[dict]:
    programs = json.loads(plan.read_text())["programs"]
    assert {program["stage"] for program in programs} == {"propagated"}
    return next(each["collectives"] for each in programs if each["name"] == "train_step")


def test_a_gather_of_parameters_comes_from_the_rule_of_the_parameters(
    plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gather = next(each for each in collectives(plan) if each["op"] == "all-gather")
    name = f"train_step/{gather['name']}"
    assert main(["explain", str(plan), "--collective", name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["program"], found["name"]) == ("train_step", gather["name"])
    assert {origin["rule"] for origin in found["origins"]} == {"embed → fsdp"}


def test_the_text_names_axis_and_rule(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = collectives(plan)[0]["name"]
    assert main(["explain", str(plan), "--collective", name]) == 0
    text = capsys.readouterr().out
    assert "fsdp" in text and "→ fsdp" in text


def test_an_unknown_collective_is_refused(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(plan), "--collective", "all-reduce.none"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
