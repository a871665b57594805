"""The verb `history`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inspector.compare.search import result as results
from inspector.core import snapshot, user_folder
from inspector.media.terminal import main
from inspector.service.engine import LOCAL
from inspector.service.history import History
from tests.service.test_history import LAYOUT, TPU, found, run


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    monkeypatch.setenv(user_folder.VARIABLE, str(tmp_path))
    return History()


def test_entries_are_listed_and_deleted(history: History, capsys) -> None:
    for _ in range(2):
        history.record_answer(LAYOUT, run(), LOCAL)
    assert main(["history", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [one["seconds"] for one in listed] == [0.5, 0.5]
    assert main(["history"]) == 0 and "Run" in capsys.readouterr().out
    assert main(["history", "--delete-larger-than", "0MB"]) == 0
    assert "2 entries" in capsys.readouterr().err and len(history.entries()) == 2
    assert main(["history", "--delete-older-than", "1d", "--yes"]) == 0
    assert len(history.entries()) == 2
    assert main(["history", "--delete-larger-than", "0MB", "--yes"]) == 0
    assert history.entries() == ()


def test_answers_are_written(history: History, tmp_path: Path, capsys) -> None:
    history.record_answer(LAYOUT, run(), LOCAL)
    history.record_search(TPU, found(), LOCAL)
    history.record_answer(TPU, run(TPU), LOCAL)
    compiled, searched, ran = (entry.id for entry in history.entries())
    file = tmp_path / "answer.json"
    assert main(["history", "--export", ran, "-o", str(file)]) == 0
    assert snapshot.read(file) == run()
    assert main(["history", "--export", searched]) == 0
    assert json.loads(capsys.readouterr().out) == results.to_json(found())
    # The compile cache does not have what this test made.
    for unknown in (compiled, "x"):
        assert main(["history", "--export", unknown, "-o", str(tmp_path / "no.json")]) == 2
    assert not (tmp_path / "no.json").exists()


@pytest.mark.parametrize(
    "options",
    [
        ["-o", "x.json"],
        ["--delete-older-than", "x"],
        ["--delete-older-than", "-1d"],
        ["--delete-larger-than", "9"],
    ],
)
def test_bad_bounds_are_refused(history: History, options: list[str]) -> None:
    assert main(["history", *options]) == 2
