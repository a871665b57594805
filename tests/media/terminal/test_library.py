"""The verb `library`: the Snapshots of the Library page."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from inspector.files import private_database
from inspector.jobs.library import Library
from inspector.media.terminal import main
from inspector.records import snapshot
from tests.figures import samples


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A Snapshot file, and an empty library."""
    monkeypatch.setenv(private_database.VARIABLE, str(tmp_path / "library"))
    snapshot.write(samples.snapshot(), tmp_path / "run.json")
    return str(tmp_path / "run.json")


def test_renamed(file: str) -> None:
    assert main(["library", "save", file, "--name", "base", "--note", "why"]) == 0
    assert main(["library", "rename", "base", "new name"]) == 0
    assert [(entry.name, entry.note) for entry in Library().entries()] == [("new name", "why")]
    assert main(["library", "rename", "base", "other"]) == 2


def test_saved_listed_exported_deleted(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["library", "save", file, "--name", "base", "--note", "why\x1b[2J\nand how"]) == 0
    assert main(["library", "save", file, "--name", "other"]) == 0
    capsys.readouterr()
    assert main(["library", "list", "WHY"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["Name", "Saved", "Target", "Model"] and len(lines) == 2
    assert lines[1].startswith("base ") and "data 2 × model 4" in lines[1]
    assert lines[1].endswith("why\ufffd[2J and how")
    assert main(["library", "list", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["other", "base"]
    out = tmp_path / "back.json"
    assert main(["library", "export", "base", "-o", str(out)]) == 0
    assert out.read_bytes() == Path(file).read_bytes()
    assert main(["library", "export", "--all", "-o", str(tmp_path / "all.zip")]) == 0
    with zipfile.ZipFile(tmp_path / "all.zip") as archive:
        assert sorted(archive.namelist()) == ["base.json", "library.json", "other.json"]
    assert main(["library", "delete", "base"]) == 0
    assert [entry.name for entry in Library().entries()] == ["other"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["save", "FILE", "--name", "taken"], "has an entry named 'taken' already"),
        (["save", "absent.json", "--name", "a"], "absent.json cannot be read"),
        (["save", "FILE"], "--name"),
        (["export", "absent", "-o", "x.json"], "NAME is 'absent', but must be one of taken"),
        (["export", "-o", "x.json"], "one of the arguments NAME --all is required"),
        (["export", "--all", "-o", "/dev/null/x.zip"], "is not a folder"),
        (["delete", "absent"], "NAME is 'absent', but must be one of taken"),
        (["delete", "\udcff"], "one of taken"),
        (["keep"], "invalid choice"),
    ],
)
def test_an_error_is_one_line(
    file: str, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["library", "save", file, "--name", "taken"]) == 0
    capsys.readouterr()
    given = [file if argument == "FILE" else argument for argument in arguments]
    assert main(["library", *given]) == 2
    said = capsys.readouterr()
    assert said.out == "" and len(said.err.splitlines()) == 1 and words in said.err
    assert [entry.name for entry in Library().entries()] == ["taken"]
