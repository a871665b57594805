"""The verb `report`: complete files, or an error and no file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from inspector.media import terminal as command_line
from inspector.records import snapshot
from tests.figures import samples


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    result = samples.snapshot(samples.mesh(data=2, model=2))
    other = dataclasses.replace(result, arrays=result.arrays[:9])
    paths = [tmp_path / "a.json", tmp_path / "deep" / "a.json"]
    paths[1].parent.mkdir()
    for path, found in zip(paths, (result, other), strict=True):
        snapshot.write(found, path)
    return [str(path) for path in paths]


@pytest.mark.nightly
def test_one_file_a_suffix(files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for name, words in (
        ("x.html", ": first against a</title>"),
        ("x.md", "`first` against `a`"),
    ):
        out = tmp_path / name
        given = [
            "report",
            *files,
            "--name",
            "first",
            "--note",
            "why",
            "--chip",
            "v5e",
            "-o",
            str(out),
        ]
        assert command_line.main(given) == 0
        assert words in out.read_text() and "why" in out.read_text()
        assert "v5e" in out.read_text()
    assert capsys.readouterr().out == ""
    assert command_line.main(["report", files[0], "-o", str(tmp_path / "UPPER.HTML")]) == 0


def test_equal_file_names_are_told_apart(files: list[str], tmp_path: Path) -> None:
    out = tmp_path / "x.md"
    assert command_line.main(["report", *files, "-o", str(out)]) == 0
    assert "`a` against `a (2)`" in out.read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{0}", "-o", "{tmp}/x.pdf"], "must end in .html, .md"),
        (["{0}", "-o", "/dev/null/none/x.html"], "/dev/null"),
        (["{tmp}/none.json", "-o", "{tmp}/x.html"], "cannot be read"),
        (["{0}", "-o", "{tmp}/x.html", "--chip", "v99"], "v99"),
        (["{0}", "-o", "{tmp}/x.html", "--name", "a", "--name", "b"], "--name is given 2 times"),
        (["{0}", "{0}", "-o", "{tmp}/x.html", "--name", "a", "--name", "a"], "names must differ"),
        (["{0}"] * 9 + ["-o", "{tmp}/x.html"], "must have 1 to 8"),
        (["{0}"], "-o"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_writes_nothing(
    arguments: list[str],
    words: str,
    files: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
) -> None:
    before = sorted(tmp_path.rglob("*"))
    given = [argument.format(*files, tmp=tmp_path) for argument in arguments]
    assert command_line.main(["report", *given]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before
