"""`same`: layouts, and input that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inspector.answers import same_results
from inspector.media.terminal import render
from inspector.records import typed_json
from inspector.records.same_results import ComparedProgram, ComparedValue, SameResults
from tests.jobs.program_run.test_program_run import call
from tests.media.terminal.command import inspector
from tests.paths import ROOT

RULES = [["batch", ["data"]], ["hidden", ["model"]]]
MESH = {"mesh": "2x2", "axes": ["data", "model"], "rules": RULES, "steps": 5}
OWN = "examples.linen_mlp:build"
LAYOUTS: dict[str, dict[str, Any]] = {
    "logical_mlp": {"model": "logical_mlp", "sizes": {"depth": 32, "layers": 2}, **MESH},
    OWN: {"model": OWN, "sizes": {"rows": 8, "width": 16, "hidden": 32}, **MESH},
}


@pytest.mark.nightly
@pytest.mark.parametrize("model", LAYOUTS)
def test_a_layout_computes_the_same(model: str, tmp_path: Path) -> None:
    layout, written = tmp_path / "layout.json", tmp_path / "results.json"
    layout.write_text(json.dumps(LAYOUTS[model]))
    own = ("--model", model) if model == OWN else ()
    command = ("same", *own, "--json", "-o", str(written), str(layout))
    ended = call(ROOT, "-m", "inspector", *command)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == ""  # neither shardings nor losses of the script
    results = typed_json.decode(SameResults, json.loads(written.read_text()))
    assert results.same
    names = [program.name for program in results.programs]
    assert "init" in names and len(names) >= 2
    for program in results.programs:
        assert program.devices == 4 and program.results == len(program.values) > 0
        for value in program.values:
            assert value.difference <= value.tolerance and value.unequal is None


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("missing.py",),
        ("missing.json",),
        ("--devices", "0", "script.py"),
        ("--devices", "8", "layout.json"),
        ("--model", "m:f", "script.py"),
        ("layout.json", "--steps"),
        ("one.json",),
        ("snapshot.json",),
        ("--model", "m:f", "layout.json"),
        ("-o", ".", "layout.json"),
    ],
)
def test_bad_input_is_one_line(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("raise SystemExit(5)\n")
    layout = LAYOUTS["logical_mlp"]
    (tmp_path / "layout.json").write_text(json.dumps(layout))
    (tmp_path / "one.json").write_text(json.dumps({**layout, "mesh": "1x1"}))
    (tmp_path / "snapshot.json").write_text('{"format": "sharding-snapshot", "version": 1}')
    ended = inspector("same", *arguments)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("sharding-inspector: ")
    assert ended.stdout == ""


def test_a_result_that_rounding_changes_completely_is_not_called_the_same() -> None:
    """Half of a value is as near as its tolerance allows, which is what a forgotten sum leaves."""

    def value(path: str, difference: float, tolerance: float) -> ComparedValue:
        differs = difference > tolerance
        return ComparedValue(path, "float32", (), difference, tolerance, None, None, None, None, differs)

    loose, tight, wrong = value("loose", 0.5, 4.9), value("tight", 0.006, 0.06), value("wrong", 9.0, 4.9)
    for values, same in (((tight,), True), ((loose, tight), None), ((wrong, loose, tight), False)):
        program = ComparedProgram("step", "step at a.py:1", 8, len(values), values)
        results = SameResults("a.py", (program,))
        assert results.same is same
        printed = render.text(same_results.section(results).blocks)
        assert ("loose cannot be checked" in printed) is (loose in values)
        assert program.largest == (wrong if same is False else tight)
        assert same is False or printed.count("0.006") == 2  # the sentence and the table
