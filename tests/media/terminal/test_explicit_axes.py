"""Explicit mesh axes on the command line: types of axes, and programs that JAX refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inspector.media.terminal import main

SMALL = ["--set", "depth=64", "--set", "layers=1"]


@pytest.fixture(scope="module")
def layout_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A layout that JAX refuses: the product z has no sharding."""
    path = tmp_path_factory.mktemp("explicit") / "layout.json"
    layout = {
        "axis_types": ["explicit", "explicit"],
        "unconstrained": ["z"],
        "sizes": {"depth": 64, "layers": 1},
        "target": "plan",
    }
    path.write_text(json.dumps(layout))
    return path


@pytest.fixture(scope="module")
def refused(layout_file: Path) -> Path:
    path = layout_file.with_name("plan.json")
    assert main(["inspect", str(layout_file), "-o", str(path)]) == 0
    return path


def test_a_refused_program_is_in_the_plan_with_everything_else(refused: Path) -> None:
    plan = json.loads(refused.read_text())
    (program,) = plan["programs"]
    error = program["sharding_error"]
    assert (error["error"], error["operation"]) == ("ShardingTypeError", "dot_general")
    assert [one["spec"] for one in error["operands"]] == [[["data"], ["model"]], [["model"], None]]
    assert error["choices"][0]["result"] == [["data"], None]
    assert {one["path"] for one in plan["arrays"]} >= {"batch/x", "output"}
    assert [axis["type"] for axis in plan["mesh"]["axes"]] == ["explicit", "explicit"]
    assert "sharding-type-error" in {one["code"] for one in plan["findings"]}


def test_show_and_reports_have_the_choices(refused: Path, capsys: pytest.CaptureFixture[str]) -> None:
    choices = json.loads(refused.read_text())["programs"][0]["sharding_error"]["choices"]
    assert main(["show", str(refused)]) == 0
    texts = [capsys.readouterr().out]
    for name in ("report.md", "report.html"):
        path = refused.with_name(name)
        assert main(["report", str(refused), "-o", str(path)]) == 0
        texts.append(path.read_text().replace("&#39;", "'"))
    for text in texts:
        assert "float32[8@data,64@model]" in text
        for choice in choices:
            assert choice["code"] in text


def test_inspect_prints_the_choices_to_standard_error(
    layout_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(layout_file)]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["programs"]
    assert "out_sharding=P('data', None)" in captured.err


def test_a_run_of_a_refused_layout_ends_with_one_line(
    layout_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = layout_file.with_name("run.json")
    assert main(["inspect", str(layout_file), "--target", "cpu", "-o", str(path)]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("sharding-inspector: JAX refuses dot_general at logical_mlp.py:")
    assert not path.exists()


def test_axes_replace_the_types_of_a_layout_file(layout_file: Path) -> None:
    path = layout_file.with_name("auto.json")
    command = ["inspect", str(layout_file), "--axes", "data:auto,model", "-o", str(path)]
    assert main(command) == 0
    plan = json.loads(path.read_text())
    assert "axis_types" not in plan["layout"]
    assert len(plan["programs"]) == 3


@pytest.mark.nightly
def test_a_difference_in_axis_types_is_named(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("auto.json", "explicit.json")]
    for path, axes in zip(paths, ("data,model", "data:explicit,model"), strict=True):
        command = ["inspect", "--target", "plan", "--axes", axes, *SMALL, "-o", str(path)]
        assert main(command) == 0
    difference = tmp_path / "difference.json"
    assert main(["compare", *map(str, paths), "-o", str(difference)]) == 0
    assert "axis type" in difference.read_text()


@pytest.mark.parametrize("axes", ["data:manual,model", "data:fast,model"])
def test_other_types_are_refused(axes: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--axes", axes]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "auto or explicit" in captured.err
