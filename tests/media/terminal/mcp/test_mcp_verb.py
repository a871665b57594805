"""The verb `mcp` before it serves: errors of its start are one line."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from inspector.media.terminal import main


@pytest.mark.parametrize("name", ["absent", "file", "", "a\0b"])
def test_the_folder_must_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    (tmp_path / "file").write_text("")
    given = str(tmp_path / name) if name.isalpha() else name or str(tmp_path / "x/y")
    assert main(["mcp", given]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "FOLDER is " in line and "must be an existing folder" in line


def test_a_missing_package_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "mcp" else find(name, *rest)
    )
    assert main(["mcp", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "pip install 'sharding-inspector[mcp]'" in line
