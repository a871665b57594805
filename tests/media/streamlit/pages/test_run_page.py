"""The page of a recorded program: its table, its Snapshots, and the request for the live arrays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from inspector.answers import assessed
from inspector.media.streamlit.page.plain_text import plain
from inspector.records import program_run, snapshot
from inspector.records.program_run import CompiledRecord, ProgramRun
from inspector.records.snapshot import Array, Mesh, MeshAxis, Program, Snapshot, Source
from tests.media.streamlit.scripted_page import PATIENCE

PAGE = """
from inspector.media.streamlit.pages import run_page
run_page.show()
"""
MESH = Mesh((MeshAxis("data", 2),), (0, 1))
FOUND = Snapshot(
    Source("capture", None, "2026-11-22T12:00:00+00:00"), None, MESH,
    (Array("state/w", "params", (4, 2), "float32", spec=(("data",), None), bytes=32),),
    (Program("step"),),
)  # fmt: skip
COMPILED = CompiledRecord("step", "step", "step at train.py:3", "programs/1.json", 1.0, 0.2, 0.5, 2.0, 4, 2)


def test_a_running_program_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(program_run.FOLDER_VARIABLE, str(tmp_path))
    run = ProgramRun(("train.py",), "2026-11-22T12:00:00+00:00")
    program_run.write(run, tmp_path)
    page = AppTest.from_string(PAGE, default_timeout=PATIENCE).run()
    assert not page.exception and not page.selectbox
    page.button[0].click().run()
    assert (tmp_path / program_run.REQUEST).exists()

    (tmp_path / "programs").mkdir()
    snapshot.write(FOUND, tmp_path / program_run.SNAPSHOT)
    snapshot.write(replace(FOUND, arrays=()), tmp_path / COMPILED.file)
    program_run.write(replace(run, programs=(COMPILED,), ended="exit 0", seconds=9.0), tmp_path)
    page.run()
    assert not page.exception and not page.error
    assert page.selectbox(key="run_snapshot").options == ["Live arrays and all programs", "step"]
    # The answers of the head of a layout.
    answers = [(plain(fact.label), plain(fact.value)) for fact in assessed.facts(FOUND, None).facts]
    assert [(metric.label, metric.value) for metric in page.metric][: len(answers)] == answers
    assert not page.button or page.button[0].label != "Capture arrays now"  # it has ended
    page.selectbox(key="run_snapshot").set_value("step").run()
    assert not page.exception and not page.error


def test_without_a_folder_the_page_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(program_run.FOLDER_VARIABLE, raising=False)
    page = AppTest.from_string(PAGE, default_timeout=PATIENCE).run()
    assert len(page.info) == 1 and not page.exception


def test_folders_of_recorded_programs_can_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "train-run"
    (folder / "programs").mkdir(parents=True)
    snapshot.write(FOUND, folder / program_run.SNAPSHOT)
    snapshot.write(replace(FOUND, arrays=()), folder / COMPILED.file)
    run = ProgramRun(("train.py",), "2026-11-22T12:00:00+00:00", programs=(COMPILED,), ended="exit 0")
    program_run.write(run, folder)
    script = "from inspector.media.streamlit.pages import open_page\nopen_page.show()"
    page = AppTest.from_string(script, default_timeout=PATIENCE).run()
    page.button(key="open_run:0").click().run()
    assert not page.exception and not page.error
    _, opened = page.session_state["opened_snapshot"]
    assert [array.path for array in opened.arrays] == ["state/w"]
