"""The page's script without a browser, on real workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from benchmarks.processes import until
from inspector.files import private_database
from inspector.jobs.inspection import Inspection
from inspector.jobs.request import Request
from inspector.media.streamlit.page import page_switch
from inspector.records import snapshot
from inspector.records.snapshot import Snapshot
from tests.media.streamlit.scripted_page import PATIENCE, ScriptedPage


@pytest.fixture
def open_page(service: Inspection) -> Callable[..., ScriptedPage]:
    """Open the page in a new session, with the given fields in its URL."""
    return ScriptedPage


@pytest.fixture
def no_other_jobs(service: Inspection) -> None:
    """Wait for the jobs that earlier tests have left in the shared service: pages list them."""
    until(lambda: not service.pool.jobs(), "the end of the jobs of earlier tests")


@pytest.fixture
def page(open_page: Callable[..., ScriptedPage]) -> ScriptedPage:
    """The page with the default layout."""
    return open_page()


@pytest.fixture
def without_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partition no programs, which takes half a second for each layout that a test opens or types."""
    endless = SimpleNamespace(
        state="running", finished=False, progress={}, wait=lambda seconds: None, cancel=lambda: None
    )
    monkeypatch.setattr(
        Inspection, "programs", lambda _, layout, *__, **___: Request(layout.key(), lambda: endless)
    )


@pytest.fixture
def user_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of the user. Instead of opening another page, buttons keep its name as `went_to`."""
    monkeypatch.setenv(private_database.VARIABLE, str(tmp_path))
    monkeypatch.setattr(page_switch, "to", lambda path: st.session_state.__setitem__("went_to", path))
    return tmp_path


@pytest.fixture
def shown(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., AppTest]:
    """Draw a part of the page with the module's SCRIPT, for a Snapshot.

    The session state has the Snapshot's file as `path`, and the other arguments.
    """

    def show(one: Snapshot, **state: str) -> AppTest:
        path = tmp_path / "found.json"
        snapshot.write(one, path)
        page = AppTest.from_string(request.module.SCRIPT, default_timeout=PATIENCE)
        page.session_state["path"] = str(path)
        for key, value in state.items():
            page.session_state[key] = value
        page.run()
        assert not page.exception, [error.value for error in page.exception]
        return page

    return show
