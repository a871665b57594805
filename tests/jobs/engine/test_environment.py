"""The folders from which a worker imports."""

from __future__ import annotations

import os
import site
import sys
from pathlib import Path

import pytest

from inspector.jobs.engine import Environment
from tests.paths import ROOT


def test_folders_of_pth_files_stay_behind_the_packages_of_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages, editable, mine = (tmp_path / name for name in ("packages", "editable", "mine"))
    for folder in (packages, editable, mine):
        folder.mkdir()
    (packages / "editable.pth").write_text(f"# a comment\nimport os\n{editable}\n{ROOT}\n")
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(packages)])
    monkeypatch.setattr(sys, "path", ["", str(ROOT), str(packages), str(editable), str(mine)])
    passed = Environment(1).for_child()["PYTHONPATH"].split(os.pathsep)
    # PYTHONPATH comes before the packages, so a folder that a .pth file adds behind them is not in it.
    # The current folder is not, either, though this process imports from it.
    assert passed == [str(mine)]
