"""The commands that fit the predictions and judge the order of layouts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.accuracy.__main__ import main
from inspector.prediction.calibration import accuracy_table


@pytest.fixture
def runs(tmp_path: Path) -> str:
    """A file with one run, which cannot be reproduced."""
    path = tmp_path / "runs.json"
    path.write_text(json.dumps({"rows": [{"id": "a", "measured": {"step_seconds": 1}}]}))
    return str(path)


def test_a_fit_without_programs_keeps_the_constants_of_this_version(runs, tmp_path: Path) -> None:
    written = tmp_path / "table.json"
    assert main(["fit", runs, str(written), "--no-compile"]) == 0
    table = json.loads(written.read_text())
    assert table["constants"] == accuracy_table()["constants"]
    assert [row["id"] for row in table["rows"]] == ["a"] and table["rows"][0]["reason"]


def test_a_sweep_has_the_number_of_its_layouts(runs, tmp_path: Path, capsys) -> None:
    sweeps = tmp_path / "sweeps.json"
    sweeps.write_text(json.dumps({"sweeps": [{"id": "s", "rows": [{"layout": "data=8"}]}]}))
    assert main(["sweeps", runs, str(sweeps), "--no-compile"]) == 0
    assert "s 1 0 0" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("verb", ["fit", "sweeps", "trials"])
def test_a_missing_file_is_refused_in_one_line(verb: str, tmp_path: Path, capsys) -> None:
    missing = [str(tmp_path / "no.json")] * (1 if verb == "trials" else 2)
    with pytest.raises(SystemExit) as ended:
        main([verb, *missing])
    assert ended.value.code == 2
    usage, error = capsys.readouterr().err.splitlines()
    assert usage.startswith("usage:") and str(tmp_path)[:20] in error
