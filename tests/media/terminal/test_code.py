"""The verb `code`: the script runs in another folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from inspector import layout as layouts
from inspector.layout.script import script
from inspector.media import terminal as command_line
from tests.layout.script.test_scripts import without_jax_settings

LAYOUT = {"model": "logical_mlp", "mesh": "4x2", "layers": 1, "depth": 16, "steps": 2}


@pytest.fixture
def layout_file(tmp_path: Path) -> Path:
    path = tmp_path / "layout.json"
    path.write_text(json.dumps(LAYOUT))
    return path


@pytest.mark.nightly
def test_the_script_sets_its_devices_itself_and_ends_with_the_losses(
    layout_file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "script.py"
    assert command_line.main(["code", str(layout_file), "-o", str(path)]) == 0
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path, env=without_jax_settings(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines[-2:]] == ["step 1", "step 2"]
    assert any(line.startswith("params/DotReluDot_0/W2 (16, 16) P") for line in lines)


def test_a_layout_by_itself_and_that_of_a_snapshot_give_the_same_script(
    layout_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = {"format": "sharding-snapshot", "version": 1, "layout": LAYOUT}
    of_snapshot = tmp_path / "snapshot.json"
    of_snapshot.write_text(json.dumps(whole))
    printed = []
    for path in (layout_file, of_snapshot):
        assert command_line.main(["code", str(path)]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] == script(layouts.from_json(LAYOUT))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        ("{", "layout.json"),
        ('{"model": "nobody"}', "must be one of"),
        ('{"format": "sharding-snapshot", "layout": null}', "without a layout"),
        ('{"rules": [["x; import os", ["data"]]]}', "rules has"),
    ],
)
def test_bad_input_is_one_line(
    content: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "layout.json"
    if content is not None:
        path.write_text(content)
    out = tmp_path / "script.py"
    assert command_line.main(["code", str(path), "-o", str(out)]) == command_line.UNUSABLE_INPUT
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert not out.exists()
