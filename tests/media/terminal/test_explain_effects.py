"""`explain --effects` and `inspect --effects`."""

from __future__ import annotations

import json
import re

import pytest

from inspector.media.terminal import main
from inspector.records import snapshot as snapshots

LAYOUT = {"model": "logical_mlp", "mesh": "2x4", "sizes": {"depth": 32, "layers": 1}}


@pytest.fixture
def layout(tmp_path):
    path = tmp_path / "layout.json"
    path.write_text(json.dumps(LAYOUT))
    return path


def test_effects_of_a_layout_as_text_and_json(layout, capsys) -> None:
    assert main(["explain", str(layout), "--effects", "--chip", "v5e"]) == 0
    said = capsys.readouterr()
    assert "Remove hidden → model" in said.out and "Step" in said.out
    # Which of the changes are reported depends on the speed of the machine.
    assert re.search("change [0-9]+ of 13", said.err)
    assert main(["explain", str(layout), "--effects", "--program", "apply", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["program"] == "apply" and plain["chip"] is None
    assert len(plain["changes"]) == 13 and plain["current"]["wire_bytes"].keys() == {"model"}


@pytest.mark.nightly
def test_a_snapshot_contains_the_effects_and_needs_no_second_computation(
    layout, tmp_path, capsys, monkeypatch
) -> None:
    path = tmp_path / "run.json"
    assert main(["inspect", str(layout), "--target", "plan", "--effects", "-o", str(path)]) == 0
    effects = snapshots.read(path).effects
    assert effects is not None and len(effects.changes) == 13
    monkeypatch.setattr("inspector.media.terminal.explain_verb.computed_effects", None)
    capsys.readouterr()
    assert main(["explain", str(path), "--effects", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["changes"]) == 13
    assert main(["show", str(path), "--section", "findings"]) == 0
    assert "Remove hidden → model" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--program", "missing"], "program is 'missing'"),
        (["--chip", "abacus"], "abacus"),
        (["--array", "params/x"], "not allowed with"),
    ],
)
def test_bad_input_is_one_line(layout, capsys, arguments: list[str], said: str) -> None:
    assert main(["explain", str(layout), "--effects", *arguments]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert said in error and not error.startswith("Traceback")


def test_a_snapshot_without_a_layout_is_refused(tmp_path, capsys) -> None:
    path = tmp_path / "captured.json"
    source = snapshots.Source("capture", None, "2026-01-01")
    snapshots.write(snapshots.Snapshot(source, None, None, ()), path)
    assert main(["explain", str(path), "--effects"]) == 2
    assert "without a layout" in capsys.readouterr().err
