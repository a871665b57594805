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
    assert {program["stage"] for program in programs} == {"partitioned"}
    return next(program["collectives"] for program in programs if program["name"] == "train_step")


@pytest.mark.nightly
def test_a_gather_of_parameters_comes_from_the_rule_of_the_parameters(
    plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gather = next(collective for collective in collectives(plan) if collective["op"] == "all-gather")
    name = f"train_step/{gather['name']}"
    assert main(["explain", str(plan), "--collective", name, "--json"]) == 0
    decoded = json.loads(capsys.readouterr().out)
    assert (decoded["program"], decoded["name"]) == ("train_step", gather["name"])
    assert {origin["rule"] for origin in decoded["origins"]} == {"embed → fsdp"}


def test_the_text_names_axis_and_rule(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = collectives(plan)[0]["name"]
    assert main(["explain", str(plan), "--collective", name]) == 0
    text = capsys.readouterr().out
    assert "fsdp" in text and "→ fsdp" in text


@pytest.mark.parametrize(
    "unknown",
    [
        ("--collective", "all-reduce.none"),
        ("--rule", "heads"),
        ("--rules", "no.json"),
        ("--program", "x"),
    ],
)
def test_an_unknown_name_is_refused(
    plan: Path, capsys: pytest.CaptureFixture[str], unknown: tuple[str, str]
) -> None:
    assert main(["explain", str(plan), *unknown]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    option, value = unknown
    assert f"{option} is {value!r}" in captured.err
    known = {"--collective": "train_step/", "--rule": "batch → fsdp", "--rules": "file"}
    assert known.get(option, "--effects") in captured.err


def test_a_conflict_names_both_sides_and_its_collectives(
    plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    programs = json.loads(plan.read_text())["programs"]
    step = next(program for program in programs if program["name"] == "train_step")
    names = {each["name"] for each in step["collectives"]}
    assert step["conflicts"]
    for each in step["conflicts"]:
        assert set(each["collectives"]) <= names
        assert any(side["spec"] != side["used"] for side in each["sides"])


def test_a_rule_lists_what_depends_on_it(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(plan), "--rule", "embed", "--json"]) == 0
    decoded = json.loads(capsys.readouterr().out)
    snapshot = json.loads(plan.read_text())
    embed = [
        array["path"]
        for array in snapshot["arrays"]
        if "embed" in (array["logical_axes"] or ()) and array["group"] == "params"
    ]
    assert set(embed) <= set(decoded["arrays"])
    expected = {
        (program["name"], each["name"])
        for program in snapshot["programs"]
        for each in program["collectives"]
        if any(one.get("rule") == "embed → fsdp" for one in each.get("origins") or ())
    }
    assert {(each["program"], each["name"]) for each in decoded["collectives"]} == expected


def test_a_value_inside_a_program_has_origins(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrays = json.loads(plan.read_text())["arrays"]
    value = next(array["path"] for array in arrays if array["group"] == "activation")
    assert main(["explain", str(plan), "--array", value, "--json"]) == 0
    decoded = json.loads(capsys.readouterr().out)
    assert {one["mesh_axis"] for one in decoded["origins"]} == {"fsdp"}
